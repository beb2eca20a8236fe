"""How things look."""

import io
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from tickwork.cli import progress
from tickwork.cli.commands.runs import _tree
from tickwork.cli.output import duration, in_words, safe, table, took, value, when
from tickwork.cli.progress import _children_first, children_words, name_of, remark, tasks_table
from tickwork.protocol import http_models as wire


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0004, "0 ms"),
        (0.25, "250 ms"),
        (1.26, "1.3 s"),
        (61, "1 m 01 s"),
        (3_660, "1 h 01 m"),
        (90_000, "1 d 1 h"),
        (-5, "0 ms"),
    ],
)
def test_durations_are_read_at_a_glance(seconds, shown):
    assert duration(seconds) == shown


def test_today_needs_no_date():
    now = datetime.now(UTC)

    assert len(when(now.isoformat())) == len("12:34:56")
    assert len(when((now - timedelta(days=3)).isoformat())) == len("2026-01-01 12:34:56")
    assert when(None) == took(None, None) == "-"


def test_a_sentence_has_local_times_in_it():
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(days=400)
    iso = later.isoformat().replace("+00:00", "Z")

    assert in_words(f"it goes on at {iso}, or before") == f"it goes on at {when(iso)}, or before"
    assert in_words("order-2026-01-02") == "order-2026-01-02"


def test_what_users_wrote_reaches_the_screen_as_text():
    out = io.StringIO()
    screen = Console(file=out, width=100, highlight=False)
    screen.print(table(("name",), [(safe("[red]x[/] \x1b[31m \u202e"),)]))

    assert "[red]x[/] \\x1b[31m \\x202e" in out.getvalue()


def test_a_map_shows_the_counts_of_its_children_and_a_failure_its_first_line():
    attempt = wire.Attempt(
        attempt=1, worker="w", state="failed", dispatched_at="2026-01-01T00:00:00Z", error="ValueError",
        message="no\n  File app.py",
    )  # fmt: skip
    fan = wire.Task(id="1", node="score", kind="map", state="running", children={"succeeded": 3, "running": 1})
    broken = wire.Task(id="2", node="score", kind="task", state="failed", child=4, attempts=(attempt,))

    assert remark(fan) == "1 running, 3 succeeded"
    assert children_words({"total": 4, "running": 0, "succeeded": 3, "failed": 1}) == "3 succeeded, 1 failed of 4"
    assert children_words({"total": 4, "running": 0}) == "none started of 4"
    assert remark(broken) == "ValueError: no"
    assert name_of(broken) == "score\\[4]" or name_of(broken) == "score[4]"


def test_a_task_with_many_attempts_says_how_many_are_not_shown_and_how_to_see_them():
    attempt = wire.Attempt(attempt=901, worker="w", state="suspended", dispatched_at="2026-01-01T00:00:00Z")
    task = wire.Task(
        id="1", node="poll", kind="durable", state="waiting", attempts=(attempt,) * 100, attempts_earlier=900
    )
    run = wire.RunDetail(
        id="r-1", workflow="poll", definition="d", state="waiting", source="submit", by="api",
        submitted_at="2026-01-01T00:00:00Z", tasks=(task,),
    )  # fmt: skip
    out = io.StringIO()
    screen = Console(file=out, width=100, highlight=False)
    screen.print(_tree(run))
    screen.print(tasks_table(run))

    assert "900 earlier attempts (--attempts-before 901)" in out.getvalue()
    assert re.search(r"poll +waiting +1000 ", out.getvalue())


def test_an_id_stays_in_one_piece_however_narrow_the_screen():
    out = io.StringIO()
    screen = Console(file=out, width=40, highlight=False)
    name = "01a1ec0f-7c8e-7000-b04e-2f231827c963"
    screen.print(table(("=run", "workflow", ">time"), [(name, "with_a_long_name", "10 ms")]), soft_wrap=True)

    assert name in out.getvalue()


def test_lines_about_a_map_tell_its_children_before_its_end():
    def task(state, child=None):
        return wire.Task(id=f"{child}", node="m", kind="map", state=state, child=child)

    assert [one.child for one in _children_first([task("succeeded"), task("succeeded", 0)])] == [0, None]
    assert [one.child for one in _children_first([task("running"), task("succeeded", 0)])] == [None, 0]


def test_progress_is_shown_as_it_is_made(monkeypatch):
    """It is no change of the run, so nobody is told of it."""
    out, made = io.StringIO(), iter(range(1_000))
    monkeypatch.setattr(progress, "LOOKED_S", 0.01)

    def later():
        return any(int(one) > 3 for one in re.findall(r"(\d+)/999", out.getvalue()))

    class Client:
        def get(self, run):
            attempt = wire.Attempt(
                attempt=1, worker="w", state="running", dispatched_at="2026-01-01T00:00:00Z", progress=(next(made), 999)
            )
            return wire.RunDetail(
                id=run, workflow="w", definition="d", state="active", source="submit", by="api",
                submitted_at="2026-01-01T00:00:00Z",
                tasks=(wire.Task(id="1", node="n", kind="task", state="running", attempts=(attempt,)),),
            )  # fmt: skip

        def watch(self, _run):
            deadline = time.monotonic() + 10
            while not later() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield from ()

    progress._live(Client(), "r", Console(file=out, force_terminal=True, width=100))

    assert later()


def test_a_wide_run_is_shown_in_part():
    tasks = tuple(wire.Task(id=str(n), node=f"n{n}", kind="task", state="pending") for n in range(100))
    detail = wire.RunDetail(
        id="r", workflow="wide", definition="d", state="active", source="submit", by="api",
        submitted_at="2026-01-01T00:00:00Z", tasks=tasks,
    )  # fmt: skip

    assert "70 more" in str(tasks_table(detail).caption)


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 160])
def test_a_narrow_screen_leaves_no_column_out(width):
    """Columns that did not fit vanished, and numbers lost digits, without a sign."""
    columns = ("=run", ">took", "workflow", "", ">seq")
    row = ("01a1ef07-df4b-7000-8b06-1aa3ba9bb3ff", "12345678 ms", "invoices", "[red]failed[/]", "1234567890123")
    screen = io.StringIO()
    Console(file=screen, width=width).print(table(columns, [row, row]))
    shown = re.sub(r"\s", "", screen.getvalue())

    for cell in ("01a1ef07-df4b-7000-8b06-1aa3ba9bb3ff", "12345678ms", "invoices", "failed", "1234567890123"):
        assert shown.count(cell) == 2, screen.getvalue()


def test_a_value_that_is_cut_says_so_and_how_to_see_it_whole():
    assert value("x" * 50, characters_max=20) == '"xxxxxxxxxxxxxxxxxxx … (52 characters; --json has all)'
    assert value("x" * 5, characters_max=20) == '"xxxxx"'
