"""Tasks that a person approves before they run, wherever they are called."""

import pytest

import tickwork as tw
from tickwork.sdk.authoring.durable import as_workflow
from tickwork.testing.world import BY

PAID = []


@tw.task(requires_approval="Pay {amount} to {account}? ({note})", approvers=["ann", "bob"], approval_timeout="1d")
def pay(amount: int, account: str, note: str = "no note") -> str:
    PAID.append((amount, account))
    return f"{amount} to {account}"


@tw.task
def look_up(name: str) -> str:
    return name.upper()


@tw.task(requires_approval=True, four_eyes=True)
def delete(name: str) -> str:
    return f"{name} is gone"


@tw.workflow
def transfer(amount: int, name: str) -> str:
    account = look_up(name)
    return pay(amount, account)


@tw.workflow
def salaries(names: list[str]) -> list[str]:
    return pay.map(names, amount=100)


@tw.workflow
def only_large(amount: int) -> str:
    return pay.using(when=tw.cel("inputs.amount > 10"))(amount, "ed")


@tw.workflow
def either(amount: int) -> str:
    return tw.branch(tw.cel("inputs.amount > 10"), lambda: pay(amount, "ed"), lambda: look_up("small"))


@tw.durable
async def refund(ctx: tw.Durable, amount: int) -> str:
    try:
        return await ctx.call(pay, amount, "ed")
    except tw.CallFailed:
        return "not paid"


@pytest.fixture(autouse=True)
def nothing_paid():
    PAID.clear()


def messages(run):
    return {node: task.view.message for node, task in run.tasks.items() if task.view.kind == "approval"}


@pytest.mark.proves("S001-29", "S001-186")
def test_a_task_runs_only_after_a_person_has_approved_it_and_is_asked_with_its_arguments(world):
    run = world.run(transfer, amount=30, name="ed")

    run.assert_waiting("approve_pay")
    assert messages(run) == {"approve_pay": "Pay 30 to ED? (no note)"}
    assert PAID == []
    with pytest.raises(tw.Refused, match="not among the approvers"):
        world.approve(run, "approve_pay", by="eve")
    world.approve(run, "approve_pay", by="ann")
    run.assert_completed(output="30 to ED")


def test_a_rejection_or_silence_fails_the_run_and_the_task_never_runs(world):
    rejected = world.run(transfer, amount=30, name="ed")
    world.reject(rejected, "approve_pay", by="bob")
    silent = world.run(transfer, amount=31, name="ed")
    world.advance(days=1)

    assert (rejected.state, silent.state, PAID) == ("failed", "failed", [])


@pytest.mark.proves("S001-189")
def test_a_map_of_it_is_approved_once(world):
    run = world.run(salaries, names=["ann", "bob"])
    run.assert_waiting("approve_pay")

    assert messages(run) == {"approve_pay": "Pay 100 to each account? (no note)"}
    world.approve(run, "approve_pay", by="ann")
    run.assert_completed(output=["100 to ann", "100 to bob"])


def test_nobody_is_asked_about_what_does_not_run(world):
    world.run(only_large, amount=1).assert_completed()
    world.run(either, amount=1).assert_completed(output="SMALL")
    for workflow in (only_large, either):
        run = world.run(workflow, amount=11)
        run.assert_waiting("approve_pay")
        world.approve(run, "approve_pay", by="ann")
        run.assert_completed(output="11 to ed")


@pytest.mark.proves("S001-189")
def test_a_durable_function_that_calls_it_waits_for_the_person(world):
    run = world.run(refund, amount=7)
    [call] = [run for run in world.runs() if run.workflow != "refund"]
    assert PAID == []

    assert messages(call) == {"approve_pay": "Pay 7 to ed? (no note)"}
    world.approve(call, "approve_pay", by="bob")
    run.assert_completed(output="7 to ed")


@pytest.mark.proves("S001-189")
def test_a_single_task_waits_too_and_four_eyes_are_two_people(world):
    run = world.run(as_workflow(delete), name="backup")

    assert messages(run) == {"approve_delete": "Run delete(name=backup)?"}
    with pytest.raises(tw.Refused, match="cannot approve"):
        world.approve(run, "approve_delete", by=BY)
    world.approve(run, "approve_delete", by="somebody else")
    run.assert_completed(output="backup is gone")


# ---- what makes no sense


def test_a_step_cannot_ask(world):
    @tw.durable
    async def careless(ctx: tw.Durable) -> str:
        return await ctx.step(pay, 1, "ed")

    run = world.run(careless)
    assert (run.state, PAID) == ("failed", [])


@pytest.mark.parametrize(("options", "words"), [
    ({"requires_approval": "Pay {sum}?"}, "has {sum}"),
    ({"requires_approval": "Pay {amount!r}?"}, "names parameters"),
    ({"requires_approval": "Pay {"}, "cannot be read"),
    ({"requires_approval": 3}, "a message or True"),
    ({"approvers": ["ann"]}, "for a task with requires_approval"),
    ({"requires_approval": True, "approvers": "ann"}, "is a list"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused_where_they_are_written(options, words):
    with pytest.raises(tw.Refused, match=words):

        @tw.task(**options)
        def work(amount: int) -> int:
            return amount


def test_an_option_of_one_call_cannot_take_the_approval_away(world):
    @tw.workflow
    def hasty(amount: int) -> str:
        return pay.using(requires_approval=False, retries=2)(amount, "ed")

    world.run(hasty, amount=1).assert_waiting("approve_pay")


def test_a_trigger_that_would_start_it_unasked_is_refused():
    @tw.workflow
    def sloppy(name: str) -> None:
        found = look_up(name)
        delete.using(on="all_done", after=[found])(name)

    with pytest.raises(tw.Refused, match="would start it without one"):
        sloppy.build()
