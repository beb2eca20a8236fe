"""Code in a workflow function that does something else than it seems to is reported where it stands."""

import warnings

import pytest

from tickwork.core.base.errors import Refused
from tickwork.sdk.authoring.useless_code import GraphWarning, ReplayWarning

HEAD = """
import asyncio, random, time, uuid
from datetime import date, datetime
from time import sleep as pause

@tw.task
def one(x: int) -> int:
    return x

class cleanup:
    pass

"""
LINE = HEAD.count("\n") + 4  # app.py begins with an import of tickwork; then decorator, def, body


def build(app, *body):
    text = HEAD + "@tw.workflow\ndef flow(n: int = 1):\n" + "".join(f"    {line}\n" for line in body)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        app(text).workflows["flow"].build()
    return [one for one in found if one.category is GraphWarning]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (["one(1)", "time.sleep(5)"], r"time.sleep\(...\) in a workflow function stops the program .* write tw.wait"),
        (["one(1)", "pause(5)"], "pause.* write tw.wait"),
        (["one(1)", "asyncio.sleep(5)"], "does nothing here"),
        (["one(1)", "input()"], "make it an input"),
        (["one(1)", "try: one(2)", "except ValueError: one(3)"], "except catches nothing of a run"),
    ],
)
def test_what_can_only_be_a_mistake_is_an_error_with_file_and_line(app, body, words):
    with pytest.raises(Refused, match=words) as refused:
        build(app, *body)

    assert f"app.py:{LINE + 1}: {body[1].split(':')[0]}" in str(refused.value)


@pytest.mark.parametrize(
    "call",
    [
        "print('built')",
        "datetime.now()",
        "date.today()",
        "time.time()",
        "random.random()",
        "random.choice([1])",
        "uuid.uuid4()",
    ],
)
def test_what_may_be_meant_is_a_warning_with_file_and_line(app, call):
    (found,) = build(app, "one(1)", call)

    assert (found.filename.rpartition("/")[2], found.lineno) == ("app.py", LINE + 1)
    assert str(found.message).startswith(call.partition("(")[0] + "(...) in a workflow function ")


@pytest.mark.parametrize(
    "body",
    [
        ["one(1)"],
        ["try:", "    import yaml", "except ImportError:", "    yaml = None", "one(1)"],
        ["try: one(1)", "finally: one(2)"],
        ["print = one", "print(3)"],
        ["datetime(2026, 1, 2)", "one(date(2026, 1, 2).day)"],
        ["tw.branch(n > 1, lambda: one(1), lambda: one(2))"],
    ],
)
def test_everything_else_is_left_alone(app, body):
    assert build(app, *body) == []


def test_code_in_lambdas_of_a_branch_is_looked_at_too(app):
    (found,) = build(app, "tw.branch(n > 1, lambda: one(print('x') or 1))")

    assert "prints when the workflow is built" in str(found.message)


def durable(app, *body):
    text = HEAD + "@tw.durable\nasync def flow(ctx: tw.Durable) -> None:\n" + "".join(f"    {line}\n" for line in body)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        app(text).workflows["flow"].build()
    return [one for one in found if one.category is ReplayWarning]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("time.time()", "use ctx.now()"),
        ("datetime.now()", "use ctx.now()"),
        ("random.random()", "use ctx.random()"),
        ("random.choice([1])", "use ctx.random()"),
        ("uuid.uuid4()", "use ctx.uuid()"),
        ("pause(5)", "await ctx.sleep"),
    ],
)
def test_what_differs_in_each_replay_of_a_durable_function_is_a_warning_with_its_line(app, call, words):
    (warning,) = durable(app, "await ctx.sleep(1)", f"if {call}: await ctx.sleep(2)")

    assert words in str(warning.message)
    assert (warning.lineno, warning.filename.endswith("app.py")) == (LINE + 1, True)


def test_branches_of_a_durable_function_are_replayed_and_steps_are_not(app):
    branch = ["async def branch():", "    await ctx.sleep(random.random())", "await ctx.gather(branch())"]
    step = [
        "async def step():",
        "    return time.time()",
        "await ctx.step(step)",
        "await ctx.step(lambda: uuid.uuid4())",
    ]

    assert len(durable(app, *branch)) == 1
    assert durable(app, *step, "await ctx.step(time.time)") == []
