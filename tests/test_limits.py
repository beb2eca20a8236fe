"""The table of limits in the guarantees: what it says is what the code has, and no other page has another figure."""

import re
from pathlib import Path

from tickwork.api.http.route import BodySpec
from tickwork.compose.settings import Settings
from tickwork.core.base.names import KEY_CHARACTERS_MAX
from tickwork.core.base.values import TASK_COMMANDS_MAX
from tickwork.core.decide.commands.setup_commands import SLIDING_STARTS_MAX
from tickwork.core.decide.commands.signals import EVENTS_KEPT_MAX
from tickwork.core.decide.runs.advance import MAP_ITEMS_MAX
from tickwork.core.decide.runs.functions import ENTRIES_MAX, HISTORY_BYTES_MAX, NESTING_MAX
from tickwork.core.definition.cel import TEXT_LENGTH_MAX
from tickwork.core.definition.cel_cost import SIZE_MAX, WORK_MAX
from tickwork.core.definition.cel_extracts import EXTRACT_BYTES_MAX
from tickwork.core.definition.model import ITERATIONS_MAX
from tickwork.core.definition.validation import Limits
from tickwork.core.evolve.tasks.children import CHILDREN_IN_TURN
from tickwork.executors.egress_client import BODY_BYTES_MAX
from tickwork.ports.artifacts import ARTIFACT_BYTES_MAX
from tickwork.protocol.log_lines import ByteRateLimit
from tickwork.protocol.task_commands import COMMANDS_BYTES_MAX
from tickwork.runtime.storage.payloads import INPUT_BYTES_MAX
from tickwork.runtime.storage.request_checks import COMMAND_BYTES_MAX
from tickwork.sdk.context import PIECE_CHARACTERS_MAX
from tickwork.worker.log_shipper import SPOOL_BYTES_MAX

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
