"""Programs as durable functions: what they do next depends on what came back, or who answered."""

import pytest

import tickwork as tw


def test_it_reminds_every_month_until_somebody_has_had_enough(world, program):
    module = program("sleep_for_days")
    run = world.run(module.remind, address="ada@example.org")
    world.advance(days=91)
    run.assert_waiting()

    world.signal("enough", run=run)

    run.assert_completed(output=4)


def test_it_reminds_for_more_than_ten_thousand_months(world, program, capsys):
    module = program("sleep_for_days")
    run = world.run(module.remind, address="ada@example.org", sent=10_000)
    world.advance(days=30 * 102 - 1)
    world.signal("enough", run=run)

    run.assert_completed(output=10_102)
    assert "mail 10101 to ada@example.org" in capsys.readouterr().out


def test_a_cancelled_job_gives_back_what_it_reserved(world, program, capsys):
    module = program("cancellation")
    run = world.start(module.convert, disk="b")
    world.advance(minutes=10)
    assert run.state in ("active", "waiting")

    world.cancel(run)

    run.assert_cancelled()
    assert [child.state for child in world.runs() if child.id != run.id] == ["cancelled"]
    assert capsys.readouterr().out == "gave back space on b\n"


def test_a_job_that_is_not_cancelled_gives_it_back_at_its_end(world, program, capsys):
    module = program("cancellation")
    run = world.run(module.convert)

    run.assert_completed(output="encoded in space on a")
    assert capsys.readouterr().out == "gave back space on a\n"


def test_a_flaky_service_is_polled_in_sequences_until_it_answers(world, program):
    module = program("polling")
    world.fail(module.ask, times=34, error=ConnectionError("away"))
    world.replace(module.ask, lambda job: f"the answer to {job}")
    run = world.run(module.wait_for_answer, job="j-1")
    world.advance(minutes=33)
    run.assert_waiting()
    world.advance(minutes=2)

    run.assert_completed(output="the answer to j-1")
    assert run.inputs == {"job": "j-1", "tries": 30}
    assert len(world.calls(module.ask)) == 35


@pytest.fixture
def switch(world, program, capsys):
    module = program("dead_mans_switch")

    def ping(job="backup"):
        module.ping(world, job)
        return capsys.readouterr().out

    return ping


def test_a_job_that_pings_in_time_raises_no_alert(world, switch, capsys):
    for _ in range(5):
        switch()
        world.advance(minutes=69)

    assert capsys.readouterr().out == ""
    assert len(world.runs()) == 1


def test_an_outage_has_one_alert_and_ends_with_the_next_ping(world, switch, capsys):
    switch()
    world.advance(hours=30)
    assert capsys.readouterr().out == "backup is silent\n"

    assert switch() == "backup is back\n"
    world.advance(minutes=69)
    assert capsys.readouterr().out == ""

    world.advance(minutes=2)
    assert capsys.readouterr().out == "backup is silent\n"
    assert [run.state for run in world.runs()] == ["completed", "waiting"]


def test_each_job_has_its_own_period(world, switch, capsys):
    switch("backup")
    switch("invoices")
    world.advance(hours=25)
    assert capsys.readouterr().out == "backup is silent\n"

    world.advance(hours=2)
    assert capsys.readouterr().out == "invoices is silent\n"


class Forge:
    """A project's releases, and whether it answers."""

    def __init__(self, *releases):
        self.releases, self.away = list(releases), False

    def __call__(self, project, cursor):
        if self.away:
            raise ConnectionError("no answer")
        return self.releases[self.releases.index(cursor) + 1 if cursor else 0 :]


@pytest.fixture
def sensor(world, program):
    module, forge = program("new_releases"), Forge("1.0", "1.1")
    world.replace(module.releases_after, forge)
    return module, forge, world.run(module.watch, project="x")


def pipelines(world, module):
    return [run.output for run in world.runs(module.pipeline)]


def test_each_new_release_starts_one_pipeline(world, sensor):
    module, forge, run = sensor
    world.advance(hours=1, minutes=1)
    assert pipelines(world, module) == ["x 1.0", "x 1.1"]

    forge.releases.append("1.2")
    world.advance(minutes=3)
    assert len(world.runs(module.pipeline)) == 2
    world.advance(minutes=2)

    assert pipelines(world, module) == ["x 1.0", "x 1.1", "x 1.2"]
    assert run.inputs == {"project": "x", "cursor": "1.2"}
    run.assert_waiting()


def test_a_sensor_that_polls_for_hours_keeps_its_cursor(world, sensor):
    module, forge, _ = sensor
    world.advance(hours=9)
    forge.releases.append("2.0")
    world.advance(minutes=6)

    assert pipelines(world, module) == ["x 1.0", "x 1.1", "x 2.0"]
    assert len(world.calls(module.releases_after)) > module.POLLS_PER_HISTORY


def test_a_sensor_goes_on_when_the_service_was_away_or_its_task_failed(world, sensor):
    module, forge, _ = sensor
    forge.away = True
    forge.releases.append("1.2")
    world.advance(hours=1)
    assert len(world.runs(module.pipeline)) == 2

    forge.away = False
    world.advance(minutes=6)
    assert pipelines(world, module) == ["x 1.0", "x 1.1", "x 1.2"]


def test_a_second_sensor_of_one_project_waits_for_the_first(world, sensor):
    module, _, _ = sensor
    second = world.start(module.watch, project="x")
    world.advance(hours=1)

    assert second.state == "pending"
    assert len(world.runs(module.pipeline)) == 2


def test_a_trip_is_booked(world, program):
    run = world.run(program("trip_saga").book_trip, who="ada", city="Oslo")

    run.assert_completed(output=["flight to Oslo for ada", "car in Oslo for ada", "hotel in Oslo for ada"])


def test_a_refused_booking_cancels_those_before_it_in_reverse(world, program, capsys):
    module = program("trip_saga")
    world.fail(module.book_hotel, error=LookupError("no room"))
    run = world.run(module.book_trip, who="ada", city="Oslo")
    world.advance(minutes=1)

    run.assert_failed()
    assert "no room" in run.error
    assert capsys.readouterr().out == "cancelled: car in Oslo for ada\ncancelled: flight to Oslo for ada\n"


def test_a_booking_that_fails_twice_is_tried_again(world, program, capsys):
    module = program("trip_saga")
    world.fail(module.book_car, times=2, error=TimeoutError("slow"))
    run = world.run(module.book_trip, who="ada", city="Oslo")
    world.advance(minutes=1)

    run.assert_completed()
    assert world.calls(module.book_car) == [{"who": "ada", "city": "Oslo"}] * 3
    assert len(world.calls(module.book_flight)) == 1
    assert capsys.readouterr().out == ""


@pytest.fixture
def cleanup(world, program):
    module = program("database_cleanup")
    return module, world.run(module.clean_up)


def test_old_rows_are_deleted_once_a_person_agrees(world, cleanup):
    _, run = cleanup
    run.assert_waiting()

    world.approve(run, "delete", by="eve")

    run.assert_completed(output="deleted 2000 rows, as eve approved")


def test_rows_stay_if_a_person_says_no(world, cleanup):
    module, run = cleanup

    world.reject(run, "delete", by="eve", comment="the audit needs them")

    run.assert_completed(output="not deleted: the audit needs them")
    assert world.calls(module.delete_old_rows) == []


def test_rows_stay_if_nobody_answers(world, cleanup):
    _, run = cleanup
    world.advance(days=2)

    run.assert_completed(output="nobody answered")


def test_the_agent_ends_early_where_there_is_nothing_to_do(world, program):
    module = program("database_cleanup")
    world.replace(module.ask_model, module.Advice("propose"))

    world.run(module.clean_up).assert_completed(output="nothing to clean up")


def test_an_agent_that_only_looks_is_stopped(world, program):
    module = program("database_cleanup")
    world.replace(module.ask_model, module.Advice("count_rows", "runs"))

    world.run(module.clean_up, limit=3).assert_completed(output="the model did not come to an end")


def test_machines_are_assigned_one_request_after_the_other_and_given_back(world, program):
    module = program("cluster_manager")
    run = world.run(module.cluster)

    assert world.ask(run, "assign", job="a", count=2) == ["node-00", "node-01"]
    assert world.ask(run, "assign", job="b", count=1) == ["node-02"]
    assert world.ask(run, "release", job="a") == ["node-00", "node-01"]
    assert world.ask(run, "assign", job="c", count=24)[0] == "node-00"
    with pytest.raises(tw.UpdateRefused, match="3 machines are not free, only 0"):
        world.ask(run, "assign", job="d", count=3)
    assert set(world.read(run, "nodes").values()) == {"b", "c"}

    assert world.ask(run, "shutdown") is None
    run.assert_completed(output=25)
    assert world.read(run, "nodes")["node-02"] == "b"
    with pytest.raises(tw.Refused, match="is completed, so nothing replies to assign"):
        world.ask(run, "assign", job="e", count=1)


def test_a_repeated_request_is_the_same_one_also_after_the_end(world, program):
    module = program("cluster_manager")
    run = world.run(module.cluster)
    for _ in range(2):
        assert world.ask(run, "assign", {"job": "a", "count": 1}, key="first") == ["node-00"]
    world.ask(run, "shutdown", key="last")

    assert world.ask(run, "assign", {"job": "a", "count": 1}, key="first") == ["node-00"]
    assert world.ask(run, "shutdown", key="last") is None
    with pytest.raises(tw.Refused, match="was used for a different request"):
        world.ask(run, "assign", {"job": "b", "count": 1}, key="first")


def test_machines_that_do_not_answer_are_found_while_nobody_asks_for_any(world, program):
    module = program("cluster_manager")
    world.replace(module.health, lambda nodes: nodes[:2])
    run = world.run(module.cluster)
    world.advance(minutes=31)

    assert len(world.calls(module.health)) == 3
    assert world.ask(run, "assign", job="a", count=1) == ["node-02"]


def test_requests_wait_in_the_inbox_while_the_function_continues_as_new(world, program, monkeypatch):
    module = program("cluster_manager")
    monkeypatch.setattr(module, "REQUESTS_MAX", 2)
    run = world.start(module.cluster)
    for number in range(5):
        world.signal("assign", run=run, payload={"job": f"j{number}", "count": 1})
    world.settle()

    nodes = world.read(run, "nodes")
    assert [nodes[f"node-{number:02}"] for number in range(6)] == [*(f"j{number}" for number in range(5)), None]


def test_an_order_that_is_paid_is_dispatched_and_everybody_can_follow_it(world, program, capsys):
    module = program("checkout")
    run = world.run(module.checkout, product="widget", count=2)
    assert world.read(run, "payment_link") == f"https://pay.example.org/{run.id}"
    assert world.read(run, "progress") == "waiting for the payment"

    world.signal("paid", run=run, payload={"status": "paid"})

    run.assert_completed(output="dispatched")
    assert world.read(run, "progress") == "dispatched"
    assert capsys.readouterr().out.count("on its way") == 2


def test_an_order_that_is_not_paid_in_time_gives_its_goods_back(world, program):
    module = program("checkout")
    run = world.run(module.checkout, product="widget", count=3)
    before = module.STOCK["widget"]
    world.advance(hours=2)

    run.assert_completed(output="not paid")
    assert module.STOCK["widget"] == before + 3
    assert world.read(run, "progress") == "given back"
    assert run.view.published["progress"] == "given back"


def test_an_order_of_what_is_sold_out_says_so(world, program):
    module = program("checkout")
    run = world.run(module.checkout, product="gadget")

    run.assert_completed(output="sold out")
    assert "there are not 1 of gadget" in world.read(run, "progress")
    with pytest.raises(tw.Refused, match="it has published progress"):
        world.read(run, "payment_link")


def test_a_ticket_is_solved_by_replies_that_came_before_anybody_waited(world, program, capsys):
    module = program("support_ticket")
    world.publish(module.ticket)
    world.signal("customer-reply", key="T-1", payload={"message": "no sound either"})
    world.signal("customer-reply", key="T-1", payload={"message": "Thanks, it works"})
    world.signal("customer-reply", key="T-2", payload={"message": "hello?"})
    run = world.run(module.ticket, number="T-1", question="no sound")

    run.assert_completed(output="solved")
    fates = [(message.key, message.fate, message.run) for message in world.mailbox_messages("customer-reply")]
    assert fates == [("T-2", "kept", ""), ("T-1", "taken", run.id), ("T-1", "taken", run.id)]
    assert capsys.readouterr().out.count("T-1: about 'no sound': try to restart") == 2

    world.advance(days=8)
    assert [message.fate for message in world.mailbox_messages("customer-reply", key="T-2")] == ["expired"]


def test_a_ticket_that_nobody_is_satisfied_with_goes_to_a_person(world, program):
    module = program("support_ticket")
    run = world.run(module.ticket, number="T-3", question="no sound")
    for _ in range(3):
        run.assert_waiting()
        world.signal("customer-reply", key="T-3", payload={"message": "no"})

    run.assert_completed(output="T-3 is with a person, after 6 messages")


def test_a_ticket_without_a_reply_is_closed_and_a_reply_needs_its_fields(world, program):
    module = program("support_ticket")
    run = world.run(module.ticket, number="T-4", question="no sound")
    with pytest.raises(tw.Refused, match="messages of customer-reply have this field"):
        world.signal("customer-reply", key="T-4", payload={})
    world.advance(days=2)

    run.assert_completed(output="closed without a reply")
