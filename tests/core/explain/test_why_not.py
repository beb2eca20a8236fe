"""Why not yet: what holds a run now, and that the named remedy really lets it go on."""

import pytest

from driver import BY, Driver, T, task
from histories import History
from tickwork.core.decide.admission import what_holds
from tickwork.core.explain.blockers import NOTHING_HOLDS, BlockKind, BlockReason
from tickwork.core.explain.resource_requests import unmet_requests
from tickwork.core.explain.why_not import BlockedNode, WhyNot, why_not
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import Phase

GPU = {"labels": {"gpu": "true"}}


def asked(driver: Driver, run_id: str, tenant: str = T) -> WhyNot:
    answer = why_not(driver.state, tenant, run_id)
    assert answer is not None
    return answer


def node_of(driver: Driver, run_id: str, node: str, child: int = -1) -> BlockedNode:
    [found] = [one for one in asked(driver, run_id).nodes if (one.node, one.child) == (node, child)]
    return found


def only(driver: Driver, run_id: str, node: str = "a") -> BlockReason:
    [obstacle] = node_of(driver, run_id, node).obstacles
    return obstacle


# ---- it agrees with the machine


@pytest.mark.parametrize("seed", range(41))
def test_whatever_happened_every_unfinished_node_is_held_by_something_that_is_named(seed):
    history = History(seed)
    history.check = False
    for _ in range(3):
        history.run(40)
        driver = history.driver
        at_once = driver.machine.next_tick() == driver.tick + 1
        for run in driver.state.runs.values():
            answer = asked(driver, run.id, run.tenant.id)

            assert answer.nodes or answer.obstacles
            for node in answer.nodes:
                assert node.obstacles, (seed, run.id, node)
                assert at_once or not [one for one in node.obstacles if one.held in NOTHING_HOLDS], (run.id, node)


@pytest.mark.parametrize("seed", range(41))
def test_the_first_obstacle_in_a_lane_is_the_one_that_admission_would_name(seed):
    history = History(seed)
    history.check = False
    history.run(100)
    state = history.driver.state
    for item in state.tasks.values():
        if item.queued and item.phase == Phase.READY and not item.parent:
            holds = what_holds(state, item.lane)
            nodes = asked(history.driver, item.run.id, item.run.tenant.id).nodes
            first = next(one for one in nodes if one.node == item.step.id).obstacles[0]

            if holds is not None:
                assert (first.held, first.by, first.needs.at) == holds
            else:
                assert first.held in (BlockKind.TURN, BlockKind.RESOURCES)


@pytest.mark.parametrize("seed", range(5))
def test_asking_changes_nothing(seed):
    history = History(seed)
    history.check = False
    history.run(80)
    before = digest(history.driver.state)
    for run in history.driver.state.runs.values():
        asked(history.driver, run.id, run.tenant.id)

    assert digest(history.driver.state) == before


def test_a_run_that_is_not_in_memory_has_no_answer():
    driver = Driver()
    driver.define("flow", task("a"))
    driver.submit("flow", "done")
    driver.finish_all()

    assert why_not(driver.state, T, "done") is None
    assert why_not(driver.state, T, "never") is None
    assert why_not(driver.state, "nobody", "done") is None


# ---- the remedy helps


def held_by_a_tenants_limit(driver):
    driver.expect(inp.PutTenant(BY, T, limit=1))
    return start_two(driver)


def held_by_a_queues_limit(driver):
    driver.expect(inp.PutQueue(BY, "default", limit=1))
    return start_two(driver)


def held_by_a_labels_limit(driver):
    driver.expect(inp.Offer("w1", 9, labels={"gpu": "true"}), inp.PutLabelLimit(BY, "gpu", "true", 1))
    return start_two(driver, task("a", **GPU))


def held_by_a_rate(driver):
    driver.expect(inp.PutQueue(BY, "default", None, 1, 5_000, 1))
    return start_two(driver)


def held_by_a_paused_scope(scope, name):
    def hold(driver):
        driver.define("flow", task("a"))
        driver.expect(inp.Pause(BY, scope, T, name, "repairs"))
        return driver.submit("flow")

    return hold


def held_by_a_busy_worker(driver):
    driver.expect(inp.Offer("w1", 1))
    return start_two(driver)


def held_because_nobody_serves_it(driver):
    driver.define("flow", task("a", **GPU))
    return driver.submit("flow")


def held_by_resources(driver):
    driver.expect(inp.Offer("w1", 9, slots=9, memory_mb=100))
    driver.define("flow", task("a", resources={"memory_mb": 500}))
    return driver.submit("flow")


def held_by_load(driver):
    """Important work lags on a queue of its own, so that workers are free for the rest."""
    driver.expect(inp.PutQueue(BY, "urgent"), inp.Offer("w2", 1, ("urgent",)))
    driver.define("important", task("a", priority=9, queue="urgent"))
    driver.submit("important", "i1")
    driver.submit("important", "i2")
    driver.advance(500)
    driver.define("flow", task("a", priority=0))
    return driver.submit("flow")


def held_by_a_key(driver):
    return start_two(driver, concurrency={"limit": 1})


def held_by_a_delay(driver):
    driver.define("flow", task("a"))
    return driver.submit("flow", delay_ms=700)


def held_by_a_debounce(driver):
    driver.define("flow", task("a"))
    return driver.submit("flow", delay_ms=700, debounce="quiet")


def held_by_its_backoff(driver):
    driver.define("flow", task("a", retry={"attempts": 3, "delay": "2s"}))
    run_id = driver.submit("flow")
    driver.fail(run_id, "a")
    return run_id


def held_by_a_pause(driver):
    driver.expect(inp.PutQueue(BY, "default", limit=0))
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run_id, "look first"), inp.PutQueue(BY, "default"))
    driver.quiet()
    return run_id


def held_by_its_parent(kind):
    def hold(driver):
        driver.define("flow", {"id": "first", **kind}, task("a", needs=["first"]))
        return driver.submit("flow")

    return hold


def held_by_another_task(driver):
    driver.define("flow", task("first"), task("a", needs=["first"]))
    return driver.submit("flow")


def held_by_children(driver):
    driver.define(
        "flow",
        {"kind": "map", "id": "first", "over": "inputs.n", "max_parallel": 1, "body": {"kind": "task", "handler": "h"}},
        task("a", needs=["first"]),
        inputs={"n": {"type": "array"}},
    )
    return driver.submit("flow", inputs={"n": [1, 2]})


def number_of_a(driver, run_id):
    run = driver.run(run_id)
    return run.number + run.plan.index["a"]


def start_two(driver, node=None, **fields):
    driver.define("flow", node or task("a"), **fields)
    driver.submit("flow")
    return driver.submit("flow")


def apply_remedy(driver: Driver, run_id: str, obstacle: BlockReason) -> None:
    """Do what `needs` says, knowing nothing else."""
    need = obstacle.needs
    scope, _, name = need.subject.partition(":")
    match need.kind:
        case "time" | "tick":
            driver.advance(driver.settings.clock.ms_of(need.at) - driver.now_ms)
        case "resume":
            driver.expect(inp.Resume(BY, scope, T, name))
        case "limit":
            raised = {
                "tenant": inp.PutTenant(BY, name),
                "queue": inp.PutQueue(BY, name),
                "label": inp.PutLabelLimit(BY, *name.split("=")) if "=" in name else None,
            }
            driver.expect(raised[scope])
        case "worker" | "credit" | "resources":
            queue, *labels = need.subject.split(" ")
            have = dict(label.split("=") for label in labels)
            queue = queue.removeprefix("queue:")
            driver.expect(inp.Offer("helper", 5, (queue,), have, 5, 10_000, 10_000, 8))
        case "load" | "result" | "children":
            driver.finish_all()
            driver.send()
        case "runs":
            for other in need.subject.split(","):
                driver.expect(inp.Cancel(BY, T, other))
        case "event":
            driver.expect(inp.Ingest(BY, T, need.subject, str(obstacle.facts["key"])))
        case "approval":
            who = next(one for one in [*obstacle.facts["approvers"], "carol"] if one != obstacle.facts["not_by"])
            driver.expect(inp.Decide(who, T, run_id, need.subject, True))
        case "nodes":
            for one in asked(driver, run_id).nodes:
                if one.node in need.subject.split(",") and one.child < 0:
                    for inner in one.obstacles:
                        apply_remedy(driver, run_id, inner)
    driver.quiet()


WAITS = {"kind": "wait", "duration": "3s"}
LISTENS = {"kind": "event", "event": "paid"}
ASKS = {"kind": "approval", "approvers": [BY, "bob"], "four_eyes": True}

HELD = [
    (held_by_a_tenants_limit, BlockKind.LIMIT, "tenant:acme"),
    (held_by_a_queues_limit, BlockKind.LIMIT, "queue:default"),
    (held_by_a_labels_limit, BlockKind.LIMIT, "label:gpu=true"),
    (held_by_a_rate, BlockKind.RATE, "queue:default"),
    (held_by_a_paused_scope("queue", "default"), BlockKind.PAUSED, "queue:default"),
    (held_by_a_paused_scope("workflow", "flow"), BlockKind.PAUSED, "workflow:flow"),
    (held_by_a_paused_scope("tenant", T), BlockKind.PAUSED, "tenant:acme"),
    (held_by_a_paused_scope("partition", "0"), BlockKind.PAUSED, "partition:0"),
    (held_by_a_busy_worker, BlockKind.CREDIT, "queue:default"),
    (held_because_nobody_serves_it, BlockKind.CREDIT, "queue:default"),
    (held_by_resources, BlockKind.RESOURCES, "queue:default"),
    (held_by_load, BlockKind.LOAD, "load"),
    (held_by_a_key, BlockKind.KEY, "key:"),
    (held_by_a_delay, BlockKind.DELAY, "run:r0001"),
    (held_by_a_debounce, BlockKind.DEBOUNCE, "run:r0001"),
    (held_by_its_backoff, BlockKind.BACKOFF, "node:a"),
    (held_by_a_pause, BlockKind.PAUSED, "run:r0001"),
    (held_by_its_parent(WAITS), BlockKind.PARENTS, "node:first"),
    (held_by_its_parent(LISTENS), BlockKind.PARENTS, "node:first"),
    (held_by_its_parent(ASKS), BlockKind.PARENTS, "node:first"),
    (held_by_another_task, BlockKind.PARENTS, "node:first"),
    (held_by_children, BlockKind.PARENTS, "node:first"),
]


@pytest.mark.parametrize(("hold", "held", "by"), HELD)
def test_what_holds_a_task_is_named_and_its_remedy_lets_it_start(hold, held, by):
    driver = Driver(shed_lag_ms=200)
    run_id = hold(driver)
    obstacle = only(driver, run_id)

    assert (obstacle.held, obstacle.by) == (held, by)
    assert obstacle.text and obstacle.remedy.endswith(".")
    assert not driver.is_running(run_id, "a")
    number, before = number_of_a(driver, run_id), len(driver.started)
    apply_remedy(driver, run_id, obstacle)
    assert number in [one.task for one in driver.started[before:]]


@pytest.mark.parametrize(("hold", "held", "by"), HELD)
def test_without_its_remedy_it_stays_where_it_is(hold, held, by):
    driver = Driver(shed_lag_ms=200)
    run_id = hold(driver)
    obstacle = only(driver, run_id)
    if obstacle.until:
        driver.advance(driver.settings.clock.ms_of(obstacle.until) - driver.now_ms - 1)
    elif obstacle.held is not BlockKind.PARENTS:
        driver.advance(60_000)

    assert (only(driver, run_id).held, only(driver, run_id).by) == (held, by)


def test_all_obstacles_are_named_in_the_order_in_which_they_are_asked():
    driver = Driver(set_up=False)
    driver.expect(inp.PutTenant(BY, T, limit=0), inp.PutQueue(BY, "default"))
    driver.define("flow", task("a"))
    driver.expect(inp.Pause(BY, "queue", T, "default", "repairs"))
    run_id = driver.submit("flow")

    assert [(one.held, one.needs.kind) for one in node_of(driver, run_id, "a").obstacles] == [
        (BlockKind.LIMIT, "limit"),
        (BlockKind.PAUSED, "resume"),
        (BlockKind.CREDIT, "worker"),
    ]
    assert [one.since > 0 for one in node_of(driver, run_id, "a").obstacles] == [True, False, False]
    for one in node_of(driver, run_id, "a").obstacles:
        assert not driver.running
        apply_remedy(driver, run_id, one)
    assert driver.is_running(run_id, "a")


# ---- what is said


def test_the_place_in_line_and_the_time_in_it_are_told():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    for _ in range(3):
        driver.submit("flow")
    driver.advance(500)

    assert [node_of(driver, run_id, "a").ahead for run_id in ("r0001", "r0002", "r0003")] == [0, 1, 2]
    assert only(driver, "r0001").held_ms >= 500
    assert driver.tick - node_of(driver, "r0001", "a").queued_since >= 500
    driver.send(inp.Cancel(BY, T, "r0002"))
    assert node_of(driver, "r0003", "a").ahead == 1


def test_a_queue_that_nobody_serves_says_so():
    driver = Driver()
    driver.define("flow", task("a", **GPU))

    assert only(driver, driver.submit("flow")).text == "no worker serves queue:default gpu=true"


def test_busy_workers_are_counted():
    driver = Driver(credit=1)
    driver.send(inp.Offer("w2", 0))
    start_two(driver)

    assert only(driver, "r0002").facts == {"workers": 2, "busy": 1, "offering_nothing": 1}


def test_demand_is_compared_with_the_worker_that_comes_nearest():
    driver = Driver(credit=0)
    driver.send(inp.Offer("small", 4, memory_mb=100), inp.Offer("large", 4, memory_mb=800, gpu=1))
    driver.define("flow", task("a", resources={"memory_mb": 900, "gpu": 1}))
    obstacle = only(driver, driver.submit("flow"))

    assert obstacle.facts == {
        "wants": "slots 1, memory_mb 900, gpu 1",
        "best": "large",
        "best_has": "slots 4, memory_mb 800, gpu 1",
        "possible": 0,
    }
    assert obstacle.text == (
        "it wants memory 900 MB, gpu 1, and no connected worker that serves queue:default is large enough: "
        "large comes nearest with memory 800 MB, gpu 1"
    )
    assert obstacle.remedy == "Start a worker for queue:default that has memory 900 MB, gpu 1."


def test_demand_that_running_work_takes_now_is_possible_later():
    driver = Driver(credit=0)
    driver.send(inp.Offer("w2", 4, gpu=1, memory_mb=4096))
    driver.define("flow", task("a", resources={"memory_mb": 1024, "gpu": 1}))
    driver.submit("flow")
    obstacle = only(driver, driver.submit("flow"))

    assert (obstacle.held, obstacle.facts["possible"]) == (BlockKind.RESOURCES, 1)
    assert "w2 comes nearest with memory 3 GB, gpu 0 left" in obstacle.text


def test_only_requests_that_no_worker_of_their_queue_could_meet_are_named():
    driver = Driver(credit=0)
    large = {"kind": "task", "handler": "h", "resources": {"memory_mb": 5}}
    driver.send(inp.PutQueue(BY, "other"), inp.PutQueue(BY, "empty"))
    driver.send(inp.Offer("w2", 4, gpu=1), inp.Offer("w3", 4, ("other",), gpu=8), inp.Offer("w4", 4, ("other",)))
    driver.define(
        "flow",
        task("small", resources={"gpu": 1}),
        task("large", resources={"gpu": 2, "cpu_milli": 1500}),
        task("there", resources={"gpu": 8}, queue="other"),
        task("nowhere", resources={"gpu": 1}, queue="empty"),
        {"kind": "map", "id": "many", "over": "inputs.x", "body": large},
        inputs={"x": {"type": "array"}},
    )
    plan = driver.state.tenants[T].plans["flow"]
    but = "and no connected worker that serves queue:default is large enough: w2 comes nearest with"

    assert unmet_requests(driver.state, plan) == [
        f"large wants cpu 1.5, gpu 2, {but} cpu 0, gpu 1",
        f"many wants memory 5 MB, {but} memory 0 MB",
    ]


def test_a_running_attempt_names_its_worker_and_its_limits():
    driver = Driver()
    driver.define("flow", task("a", timeout={"running_ms": 5_000}))
    run_id = driver.submit("flow")
    driver.advance(100)
    obstacle = only(driver, run_id)

    assert (obstacle.held, obstacle.by) == (BlockKind.RUNNING, "worker:w1")
    assert obstacle.held_ms >= 100
    assert obstacle.until == obstacle.since + 5_000


def test_a_backoff_tells_which_attempt_of_how_many():
    driver = Driver()
    run_id = held_by_its_backoff(driver)

    assert only(driver, run_id).facts["attempt"] == 1
    assert only(driver, run_id).facts["attempts"] == 3
    assert only(driver, run_id).until == driver.state.tasks[driver.run(run_id).number].due


def test_spent_retries_of_a_dependency_are_told():
    driver = Driver(retry_burst=1, retry_gap_ms=9_000)
    driver.define("flow", task("a", retry=5, dependency="bank"))
    run_id = driver.submit("flow")
    driver.fail(run_id, "a")

    assert only(driver, run_id).facts["budget_wait_ms"] > 0
    assert "retries of bank are spaced" in only(driver, run_id).text


def test_a_run_behind_a_key_names_its_holders_and_its_place():
    driver = Driver()
    driver.define("flow", task("a"), concurrency={"limit": 2})
    for _ in range(4):
        driver.submit("flow")
    [obstacle] = asked(driver, "r0004").obstacles

    assert obstacle.facts == {"key": "", "holding": 2, "limit": 2, "ahead": 1, "runs": ["r0001", "r0002"]}


def test_a_pause_tells_its_reason_and_its_end():
    driver = Driver()
    driver.define("flow", task("a"), task("b", needs=["a"]))
    run_id = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run_id, "look first", driver.now_ms + 1_000))
    driver.finish(run_id, "a")
    obstacle = only(driver, run_id, "b")

    assert obstacle.facts == {"reason": "look first"}
    assert 0 < obstacle.until - driver.tick <= 1_000
    assert asked(driver, run_id).state == "PAUSED"


def test_an_event_and_an_approval_say_what_they_wait_for():
    driver = Driver()
    driver.define(
        "flow",
        {"kind": "event", "id": "e", "event": "paid", "key": "inputs.order", "timeout": "1h"},
        {"kind": "approval", **ASKS, "id": "p"},
        inputs={"order": {"type": "string"}},
    )
    run_id = driver.submit("flow", inputs={"order": "o7"})
    event, approval = only(driver, run_id, "e"), only(driver, run_id, "p")

    assert event.facts == {"event": "paid", "key": "o7", "on_timeout": "fail"}
    assert event.until - event.since == 3_600_000
    assert approval.facts == {"approvers": [BY, "bob"], "not_by": BY, "on_timeout": "fail", "message": ""}
    assert asked(driver, run_id).state == "WAITING"


def test_a_map_counts_its_children_and_each_of_them_answers_for_itself():
    driver = Driver()
    run_id = held_by_children(driver)
    children = only(driver, run_id, "first").facts

    assert (children["total"], children["begun"], children["running"], children["max_parallel"]) == (2, 1, 1, 1)
    assert node_of(driver, run_id, "first", 0).obstacles[0].held is BlockKind.RUNNING


def test_a_map_that_could_begin_more_says_what_keeps_it():
    driver = Driver(credit=1)
    driver.define(
        "flow",
        {"kind": "map", "id": "m", "over": "inputs.n", "body": {"kind": "task", "handler": "h"}},
        inputs={"n": {"type": "array"}},
    )
    run_id = driver.submit("flow", inputs={"n": [1, 2, 3]})

    assert [one.held for one in node_of(driver, run_id, "m").obstacles] == [BlockKind.CHILDREN, BlockKind.CREDIT]


def test_a_child_run_is_named():
    driver = Driver()
    driver.define("inner", task("a"))
    driver.define("outer", {"kind": "workflow", "id": "c", "workflow": "inner"})
    run_id = driver.submit("outer")
    obstacle = only(driver, run_id, "c")

    assert obstacle.needs.subject == driver.id_of_child(run_id, "c")
    assert only(driver, obstacle.needs.subject).held is BlockKind.RUNNING


def test_a_result_that_is_looked_up_says_so():
    driver = Driver()
    driver.define("flow", task("a", cache={"ttl": "1h"}, handler_version="1"))
    driver.send(inp.Submit(BY, T, "r", "flow"))

    assert only(driver, "r").held is BlockKind.LOOKUP


def test_only_nodes_that_are_next_are_listed():
    driver = Driver()
    driver.define("flow", task("a"), task("b", needs=["a"]), task("c", needs=["b"]))

    assert [one.node for one in asked(driver, driver.submit("flow")).nodes] == ["a", "b"]


def test_a_redriven_run_says_when_it_is_brought_back():
    driver = Driver()
    driver.define("flow", task("a"))
    run_id = driver.submit("flow")
    driver.fail(run_id, "a")
    driver.send(inp.Redrive(BY, T, "again", 1, [driver.records[run_id]]))
    answer = asked(driver, run_id)

    assert answer.state == "FAILED"
    assert answer.obstacles[0].held is BlockKind.DELAY
    assert answer.nodes[0].obstacles == answer.obstacles


def test_in_a_full_tick_nothing_holds_what_comes_next():
    driver = Driver(max_changes_per_tick=4)
    driver.define("flow", task("a"))
    driver.send(*(inp.Submit(BY, T, f"r{number}", "flow") for number in range(4)))
    answer = asked(driver, "r3")

    assert [one.held for one in answer.obstacles] == [BlockKind.VISIT]
    assert driver.machine.next_tick() == driver.tick + 1
