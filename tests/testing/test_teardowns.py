"""Teardowns, as users write them."""

import json

import pytest

import tickwork as tw
from tickwork.core.base.errors import InvalidDefinition, Refused

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()


@tw.task
def create(name: str) -> dict[str, str]:
    done.append(f"create {name}")
    return {"id": name}


@tw.task
def work(cluster: dict[str, str], part: int = 0) -> str:
    done.append(f"work on {cluster['id']} {part}")
    return "worked"


@tw.task
def check() -> None:
    done.append("check")


@tw.task
def remove(cluster: dict[str, str]) -> None:
    done.append(f"remove {cluster['id']}")


@tw.task
def sweep() -> None:
    done.append("sweep")


@tw.workflow
def one() -> str:
    with tw.teardown(remove, create("a")) as cluster:
        check()
        return work(cluster)


@tw.workflow
def nested() -> None:
    outer = create("outer")
    with tw.teardown(remove, outer):
        inner = create.using(id="mount", after=outer)("inner")
        with tw.teardown(remove.using(id="unmount"), inner):
            work(inner)


@tw.workflow
def waiting() -> None:
    cluster = create("a")
    with tw.teardown(remove, cluster):
        work(cluster)
        tw.event("go")
        check()


def nodes(workflow):
    return {node["id"]: node for node in json.loads(workflow.document())["nodes"]}


def test_work_begins_after_its_set_up_and_ends_before_the_teardown(world):
    run = world.run(one)
    run.assert_completed(output="worked")
    assert done[0] == "create a" and done[-1] == "remove a" and sorted(done[1:3]) == ["check", "work on a 0"]
    assert nodes(one)["remove"]["teardown"] == {"of": "create"}
    assert nodes(one)["remove"]["needs"] == ["create", "check", "work"]


def test_a_teardown_runs_after_work_that_failed(world):
    world.fail(work, error=ValueError("no"))
    run = world.run(one)
    assert run.state == "failed" and done[-1] == "remove a"

    world.restore(work)
    world.retry(run)
    run.assert_completed()
    assert done.count("create a") == done.count("remove a") == 2


def test_a_teardown_that_fails_is_a_warning(world):
    world.fail(remove, error=ValueError("no"))
    world.run(one).assert_completed(output="worked")

    @tw.workflow
    def strict() -> None:
        with tw.teardown(remove, create("a"), fail=True):
            check()

    assert world.run(strict).state == "failed"


def test_nested_teardowns_run_innermost_first(world):
    world.fail(work, error=ValueError("no"))
    assert world.run(nested).state == "failed"
    assert done == ["create outer", "create inner", "remove inner", "remove outer"]


def test_a_cancelled_run_tears_down(world):
    run = world.start(waiting)
    world.settle()
    assert done == ["create a", "work on a 0"]
    world.cancel(run, reason="changed my mind")
    world.settle()
    run.assert_cancelled()
    assert done == ["create a", "work on a 0", "remove a"]
    assert "changed my mind: only what tears down goes on" in run.why()


def test_set_up_that_fails_is_not_torn_down(world):
    world.fail(create, error=ValueError("no"))
    assert world.run(one).state == "failed" and done == []


def test_a_teardown_need_not_take_what_it_removes(world):
    @tw.workflow
    def swept() -> None:
        cluster = create("a")
        with tw.teardown(sweep, of=cluster):
            work(cluster)

    world.run(swept).assert_completed()
    assert done == ["create a", "work on a 0", "sweep"]


def test_a_teardown_may_be_a_workflow_or_a_map(world):
    @tw.workflow
    def remove_all(cluster: dict[str, str]) -> None:
        remove(cluster)

    @tw.workflow
    def both() -> None:
        clusters = create.map(["a", "b"])
        with tw.teardown(remove.map, clusters), tw.teardown(remove_all, create.using(id="c")("c")) as c:
            work.map([0, 1], cluster=c)

    world.run(both).assert_completed()
    assert sorted(done[-2:]) == ["remove a", "remove b"] and done[-3] == "remove c"


def test_the_teardown_of_work_with_branches_and_races_waits_for_all_of_it():
    @tw.workflow
    def forked(n: int) -> None:
        with tw.teardown(remove, create("a")) as cluster:
            work(cluster)
            tw.branch(n > 3, lambda: work.using(id="large")(cluster), lambda: work.using(id="small")(cluster))

    assert set(nodes(forked)["remove"]["needs"]) == {"create", "work", "large", "small"}


def test_what_stands_below_a_block_may_come_after_its_teardown(world):
    world.fail(remove, error=ValueError("no"))

    @tw.workflow
    def later() -> None:
        with tw.teardown(remove, create("a")) as cluster:
            work(cluster)
        tw.wait("1h")
        check()

    run = world.start(later)
    world.advance(hours=2)
    run.assert_completed()
    assert done[-1] == "check" and "remove" in nodes(later)["wait"]["needs"]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (lambda _: tw.teardown(remove, {"id": "x"}), "the set-up that it belongs to"),
        (lambda cluster: tw.teardown(lambda _: None, cluster), "a call of a task or of a workflow"),
    ],
)
def test_mistakes_name_what_to_write(block, words):
    @tw.workflow
    def wrong() -> None:
        with block(create("a")):
            check()

    with pytest.raises(Refused, match=words):
        wrong.build()


def test_a_teardown_in_a_side_belongs_to_a_set_up_in_that_side():
    @tw.workflow
    def leaking(n: int) -> None:
        cluster = create("a")

        def side() -> None:
            with tw.teardown(remove, cluster):
                work(cluster)

        tw.branch(n > 3, side)

    with pytest.raises(InvalidDefinition, match="not in the same side of a branch"):
        leaking.build()
