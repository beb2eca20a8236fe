"""How schedules look: nothing of what decides about them is left out, and no name moves the cursor."""

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console

from tickwork.cli.commands.schedules import _state, _tree
from tickwork.cli.output import ago, until
from tickwork.protocol import http_models as wire


def drawn(thing):
    out = io.StringIO()
    Console(file=out, width=160, emoji=False).print(thing)
    return out.getvalue()


def moment(**ahead):
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat()


def test_a_governed_schedule_shows_its_candidates_its_hint_and_who_gave_it():
    hints = wire.Hints(interval="30s", expires_at=moment(minutes=59), reason="queue is long", by="ann", cost=7)
    governed = wire.Governed(
        source="ai-interval",
        candidates=(("baseline-interval", moment(minutes=9)), ("ai-interval", moment(seconds=29))),
        min="20s",
        failures=2,
        hints=hints,
    )
    one = wire.Schedule(
        name="poll", workflow="w", expression="every 10m", says="every 10m", governed=governed, failures=2,
        next_at=moment(seconds=29),
    )  # fmt: skip
    text = drawn(
        _tree(one, (wire.Due(schedule="poll", utc="2026-03-29T01:00:00Z", local="2026-03-29T03:00:00+02:00"),))
    )

    assert "ai-" not in text
    for words in ("Governor: by interval hint by ann", "candidate interval hint by ann", "chosen",
                  "baseline-interval", "every 30s", "ann", "queue is long", "cost 7", "20s",
                  "2 failures in a row", "2026-03-29T03:00:00+02:00", "2026-03-29T01:00:00Z"):  # fmt: skip
        assert words in text
    assert text.count("chosen") == 1


def test_a_state_says_why():
    paused = wire.Schedule(name="s", workflow="w", expression="x", paused=True, pause_reason="[red]repairs[/]\x1b[2J")
    text = drawn(_state(paused))

    assert "paused: [red]repairs[/]" in text and "\x1b" not in text
    assert "broken: no such zone" in drawn(
        _state(wire.Schedule(name="s", workflow="w", expression="x", broken="no such zone"))
    )
    assert drawn(_state(wire.Schedule(name="s", workflow="w", expression="x"))).strip() == "active"


def test_a_time_says_how_far_it_is():
    assert "(in 9 m" in until(moment(minutes=10))
    assert "(now)" in until(moment(seconds=-1))
    assert "(1 h 00 m ago)" in ago(moment(hours=-1))
    assert until(None) == ago(None) == "-"
