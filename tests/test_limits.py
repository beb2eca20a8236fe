"""The table of limits in the guarantees: what it says is what the code has, and no other page has another figure."""

import inspect
import re
from pathlib import Path

from tickwork.api.http.route import BodySpec
from tickwork.compose.settings import Settings
from tickwork.core.base.names import KEY_CHARACTERS_MAX
from tickwork.core.base.values import INLINE_BYTES_MAX, TASK_COMMANDS_MAX
from tickwork.core.decide.commands.setup_commands import SLIDING_STARTS_MAX
from tickwork.core.decide.commands.signals import EVENTS_KEPT_MAX
from tickwork.core.decide.runs.advance import MAP_ITEMS_MAX
from tickwork.core.decide.runs.functions import ENTRIES_MAX, HISTORY_BYTES_MAX, NESTING_MAX, PUBLISHED_MAX
from tickwork.core.decide.runs.run_end import CLEAN_UP_MS_MAX, CLEAN_UP_MS_MIN
from tickwork.core.definition.cel import TEXT_LENGTH_MAX
from tickwork.core.definition.cel_cost import SIZE_MAX, WORK_MAX
from tickwork.core.definition.cel_extracts import EXTRACT_BYTES_MAX
from tickwork.core.definition.model import ITERATIONS_MAX, Retry
from tickwork.core.definition.validation import Limits
from tickwork.core.evolve.follow_ups import MESSAGE_CHARACTERS_MAX
from tickwork.core.evolve.messages import OUTCOMES_KEPT_MAX
from tickwork.core.evolve.tasks.children import CHILDREN_IN_TURN
from tickwork.core.state.mailboxes import FATES_KEPT_MAX
from tickwork.core.state.retry import ELSEWHERE, backoff_ms
from tickwork.core.state.state import Settings as MachineSettings
from tickwork.executors.child_process import INSIST_NS
from tickwork.executors.egress_client import BODY_BYTES_MAX
from tickwork.ports.artifacts import ARTIFACT_BYTES_MAX
from tickwork.protocol.log_lines import ByteRateLimit
from tickwork.protocol.task_commands import COMMANDS_BYTES_MAX
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX
from tickwork.runtime.storage.payloads import INPUT_BYTES_MAX
from tickwork.runtime.storage.request_checks import COMMAND_BYTES_MAX
from tickwork.runtime.workers.failure_detector import CLOSED_AFTER_MS, LOST_AFTER_MS
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.context import PIECE_CHARACTERS_MAX
from tickwork.sdk.runner.child_main import PARKED_BYTES_MAX
from tickwork.worker.log_shipper import PIECE_BYTES, PIECE_S, SPOOL_BYTES_MAX

GUIDE = {  # what the guide says, with the figure that the code has
    "Any intermediate value may have up to {} MiB": SIZE_MAX >> 20,
    "The work may be up to {} steps": WORK_MAX,
    "These parts may be up to {} KiB per value": EXTRACT_BYTES_MAX >> 10,
    "after {} items it goes to the end of the queue": CHILDREN_IN_TURN,
    "creates its child runs in the same way: {} at a time": CHILDREN_IN_TURN,
    "together they are at most {} items": MAP_ITEMS_MAX,
    "has at most {} entries": ENTRIES_MAX,
    "entries and {} MiB: let a function": HISTORY_BYTES_MAX >> 20,
    "A task starts and signals at most {} times": TASK_COMMANDS_MAX,
    "times, with {} MiB in all": COMMANDS_BYTES_MAX >> 20,
    "A piece has at most {} characters": PIECE_CHARACTERS_MAX,
    "More than {} KiB per second": ByteRateLimit.RATE >> 10,
    "(after a first {} MiB)": ByteRateLimit.BURST >> 20,
    "the oldest {} MiB while the server": SPOOL_BYTES_MAX >> 20,
    "At most {} starts, no `burst`": SLIDING_STARTS_MAX,
    "after `stop_grace_s` ({} s) the process is killed": int(Settings().stop_grace_s),
    "gives running tasks `--grace` seconds ({})": int(Settings().grace_s),
    "If `max_iterations` ({} unless you say less)": ITERATIONS_MAX,
    "A value above {} KiB automatically becomes an artifact": VALUE_BYTES_MAX >> 10,
    "An argument or a result may have {} MiB": ARTIFACT_BYTES_MAX >> 20,
    "all inputs of a run together {} MiB": INPUT_BYTES_MAX >> 20,
    "Its payload can have up to {} MiB": INPUT_BYTES_MAX >> 20,
    "The keys of a dict are at most {} KiB": EXTRACT_BYTES_MAX >> 10,
    "a message of more than {} KiB is not shown": INLINE_BYTES_MAX >> 10,
    "An answer has at most {} KiB in all": INLINE_BYTES_MAX >> 10,
    "list the kept messages and the latest {} others": FATES_KEPT_MAX,
    "wait in its inbox, at most {}": EVENTS_KEPT_MAX,
    "its latest {} replies": OUTCOMES_KEPT_MAX,
    "A run publishes up to {} values": PUBLISHED_MAX,
    "its latest {} suspended functions in memory": Settings().parked,
    "(`--parked`, at most {} MiB)": PARKED_BYTES_MAX >> 20,
    "in chunks of {} KiB or 50 ms": PIECE_BYTES >> 10,
    "in chunks of 4 KiB or {} ms": round(1000 * PIECE_S),
    "its first {} characters": MESSAGE_CHARACTERS_MAX,
    "up to `retry_max` ({} min)": Retry().delay_ms_max // 60_000,
    "`retry_delay` ({} s)": Retry().delay_ms // 1000,
    "is `retry_factor` ({}) times as long": Retry().factor,
    "at least {} minute and at most": CLEAN_UP_MS_MIN // 60_000,
    "1 minute and at most {} minutes": CLEAN_UP_MS_MAX // 60_000,
    "until its `deadline` ({} s) is over": round(inspect.signature(AsyncClient).parameters["deadline"].default),
    "otherwise after {} s of silence": LOST_AFTER_MS // 1000,
}
ROOT = Path(__file__).resolve().parents[1]
UNITS = {"characters": 1, "KiB": 1 << 10, "MiB": 1 << 20}
LIMITS = {
    "an argument or a result of a task; an artifact": ARTIFACT_BYTES_MAX,
    "all inputs of a run together, also of a child workflow": INPUT_BYTES_MAX,
    "the payload of an event": INPUT_BYTES_MAX,
    "the body of any other API request": BodySpec().bytes_max,
    "what the conditions of a workflow read of one value": EXTRACT_BYTES_MAX,
    "the text of a condition": TEXT_LENGTH_MAX,
    "a submission key": KEY_CHARACTERS_MAX,
    "the response of an HTTP call": BODY_BYTES_MAX,
    "items of a map": MAP_ITEMS_MAX,
    "nodes of a workflow": Limits().nodes,
    "workflows inside workflows": NESTING_MAX,
    "events that a run keeps": EVENTS_KEPT_MAX,
}


def table() -> dict[str, int]:
    text = (ROOT / "docs" / "guarantees.md").read_text().partition("## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \| ([\d,]+)(?: (KiB|MiB|characters|bytes))? \|", text, re.MULTILINE)
    return {what: int(figure.replace(",", "")) * UNITS.get(unit, 1) for what, figure, unit in rows}


def test_the_limits_of_the_page_are_those_of_the_code():
    assert table() == LIMITS


def test_no_page_gives_another_size_for_values_and_inputs():
    known = {value >> 20 for value in (ARTIFACT_BYTES_MAX, INPUT_BYTES_MAX, COMMAND_BYTES_MAX)}
    text = (ROOT / "docs" / "guide.md").read_text()
    section = text.partition("**Arguments and results**")[2].partition("```python")[0]

    assert {int(figure) for figure in re.findall(r"(\d+) MiB", section)} <= known
    assert "guarantees.md#limits" in section


def test_the_figures_of_the_guide_are_those_of_the_code():
    guide = " ".join((ROOT / "docs" / "guide.md").read_text().split()).replace("a million unless", "1,000,000 unless")

    assert [text for text, figure in GUIDE.items() if text.format(f"{figure:,}") not in guide] == []


def test_the_words_of_the_guide_for_figures_are_those_of_the_code():
    guide = " ".join((ROOT / "docs" / "guide.md").read_text().split())
    elsewhere_ms = sum(
        backoff_ms(ELSEWHERE, attempt, seed=(), error="") or 0 for attempt in range(1, ELSEWHERE.attempts)
    )

    assert "A task that kills six workers is given up" in guide and MachineSettings().loss_allowance + 1 == 6
    assert "Up to a tenth is added" in guide and Retry().jitter_percent == 10
    assert "fails after about two minutes (`HandlerMissing`)" in guide and 100_000 < elsewhere_ms < 140_000
    assert "noticed within 5 s if its connection closed" in guide and CLOSED_AFTER_MS < 5_000
    assert "half a second later an error is raised" in guide and INSIST_NS == 500_000_000
