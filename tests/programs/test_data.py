"""Programs that run when data is new."""


def outputs(world, workflow):
    return [run.output for run in world.runs(workflow)]


def test_reports_run_when_both_or_either_is_new_or_at_their_time(world, program):
    module = program("data_aware")
    world.publish(module.load_orders, module.load_rates, module.summarize_day, module.log_news, module.publish)

    world.run(module.load_orders, day="2026-01-01")
    world.run(module.load_orders, day="2026-01-02")
    world.settle()
    assert outputs(world, module.summarize_day) == []
    world.run(module.load_rates, day="2026-01-02")
    world.settle()

    assert outputs(world, module.summarize_day) == ["2026-01-02: shop.orders and bank.rates"]
    assert len(world.runs(module.log_news)) == 3
    assert outputs(world, module.publish) == ["shop.summary by task summarize"]
    world.advance(days=1)
    assert outputs(world, module.publish)[1:] == ["at its time"]


def test_data_that_somebody_else_makes_is_marked_as_updated_and_its_lineage_is_known(world, program):
    module = program("data_aware")
    world.publish(module.load_orders, module.summarize_day)

    world.update_asset(module.rates, partition="2026-01-05", details={"from": "the bank"}, id="r-5")
    world.update_asset(module.rates, partition="2026-01-05", id="r-5")
    world.run(module.load_orders, day="2026-01-05")
    world.settle()

    assert outputs(world, module.summarize_day) == ["2026-01-05: bank.rates and shop.orders"]
    rates, orders = world.asset(module.rates), world.asset(module.orders)
    assert (rates.count, rates.updates[0].details, rates.produced_by) == (1, {"from": "the bank"}, ())
    assert [(one.workflow, one.node) for one in orders.produced_by] == [("load_orders", "fetch_orders")]
    assert [one.schedule for one in orders.consumed_by] == ["summarize_day"]
    assert orders.updates[0].source.startswith("task fetch_orders of ")
    assert [one.partition for one in orders.partitions] == ["2026-01-05"]


def test_a_dashboard_follows_from_its_data_and_fetches_it_once(world, program):
    module = program("social_dashboard")
    world.publish(module.ingest, module.analyse, module.dashboard)

    for _ in range(2):
        world.run(module.ingest, account="ann.example").assert_completed(output=5)
        world.settle()

    assert outputs(world, module.dashboard) == ["# ann.example\n\n5 posts, 150 likes\n"] * 2
    assert len(world.calls(module.fetch)) == 1
    assert [one.node for one in world.asset(module.page).produced_by] == ["render"]
