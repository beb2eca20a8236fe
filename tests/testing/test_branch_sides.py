"""A branch that was not taken leaves both of its sides not taken, whatever the nodes of a side depend on."""

import pytest

import tickwork as tw


@tw.task
def double(n: int) -> int:
    return 2 * n


@tw.task
def charge(n: int) -> str:
    return f"charged {n}"


@tw.task
def refund(n: int) -> str:
    return f"refunded {n}"


@tw.workflow
def child(n: int) -> int:
    return double(n)


def _tasks(base):
    return charge(base)


def _map_of_a_constant(base):
    return double.map([1, 2, 3])


def _map_of_a_result(base):
    return double.map([base, base])


def _repeat(base):
    return tw.repeat(lambda: double(base), until=lambda last: last > 0, max_iterations=2)


def _child(base):
    return child(base)


def _child_map(base):
    return child.map([base, 4])


def _all_done(base):
    return charge.using(on="all_done")(base)


def _none_failed(base):
    return charge.using(on="none_failed")(base)


def _after(base):
    return charge.using(after=[base])(1)


def _wait(base):
    tw.wait("1h").after(base)
    return charge(base)


def _shell(base):
    return tw.shell(["true"], args={"n": base})


def _nested(base):
    return tw.branch(base > 0, lambda: charge(base), lambda: refund(base))


def _constant(base):
    return 5


SIDES = [
    _tasks,
    _map_of_a_constant,
    _map_of_a_result,
    _repeat,
    _child,
    _child_map,
    _all_done,
    _none_failed,
    _after,
    _wait,
    _shell,
    _nested,
    _constant,
]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.__name__.strip("_"))
def test_a_branch_that_was_not_taken_leaves_both_its_sides_not_taken(world, side):
    @tw.workflow(name="pay")
    def pay(n: int):
        base = double(1)
        review = double.using(id="review", when=n > 5)(n)
        return tw.branch(review > 3, lambda: side(base), lambda: refund.using(id="other")(base))

    run = world.run(pay, n=1)

    run.assert_completed()
    ran = sorted(name for name, task in run.tasks.items() if task.state == "succeeded")
    assert ran == ["double"]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.__name__.strip("_"))
def test_a_branch_that_was_taken_runs_one_side(world, side):
    @tw.workflow(name="pay")
    def pay(n: int):
        base = double(1)
        review = double.using(id="review", when=n > 5)(n)
        return tw.branch(review > 3, lambda: refund.using(id="other")(base), lambda: side(base))

    run = world.run(pay, n=6)

    run.assert_completed()
    ran = {name for name, task in run.tasks.items() if task.state == "succeeded"}
    assert ran >= {"double", "review", "other"}
    assert not ran & {"charge", "refund", "shell", "wait", "child"}
