"""What `tickwork doctor` makes of what the server has noticed."""

import msgspec
import pytest

from tickwork.cli.commands.doctor import _known
from tickwork.protocol import http_models as wire

STATUS = wire.Status(
    version="1", tick=1, seq=1, watermark=1, epoch=1, live_runs=0, live_tasks=0, ready=0, running=0, workers=0
)
TIMES = dict.fromkeys(("wall_time", "real_time", "logical_time"), "2026-01-01T00:00:00Z")
HELD = "the clock is 1h ahead of the database; logical time goes on without it"

CLOCK = wire.ClockStatus(state="held", description=HELD, **TIMES)


@pytest.mark.parametrize(
    ("status", "name", "advice"),
    [
        ({"clock": CLOCK}, "server's clock", "tickwork clock confirm"),
        ({"alarms": (f"other_store: {HELD}", f"other_store: {HELD}")}, "other_store", "TICKWORK_ADVERTISE"),
        ({"alarms": (f"stranded: {HELD}",)}, "stranded", "tickwork versions"),
    ],
)
def test_the_doctor_warns_of_a_held_clock_and_of_a_foreign_store_and_says_what_to_do(status, name, advice):
    [check] = _known(msgspec.structs.replace(STATUS, **status))

    assert (check.result, check.name, check.detail) == ("warn", name, HELD)
    assert advice in check.advice


def test_the_doctor_has_nothing_to_say_of_what_needs_nobody():
    status = msgspec.structs.replace(STATUS, alarms=("late: x",))

    assert not list(_known(status))
