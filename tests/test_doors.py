"""Whatever the machine takes can be reached: each input and each setting has an API route, a command, a method of the
client and, where it is a resource, a file form; or a reason why it has none."""

from typing import NamedTuple, get_args

import msgspec
import pytest

from tickwork.api.app import TABLE
from tickwork.cli.command_table import commands, entries
from tickwork.cli.main import make_app
from tickwork.compose.settings import Settings as StartSettings
from tickwork.core.base.machine_settings import CHANGEABLE
from tickwork.core.state.inputs import Input
from tickwork.core.state.state import Settings
from tickwork.sdk.client.async_client import AsyncClient


class Door(NamedTuple):
    route: str
    command: str
    method: str
    file: str  # a command that reads a file, or why there is none


ACTION = "it acts on something that is there"
DOORS = {
    "PutDefinition": Door("PUT /v1/workflows", "workflows put", "put_workflows", "workflows put"),
    "RemoveWorkflow": Door("DELETE /v1/workflows/{workflow}", "workflows delete", "delete_workflow", ACTION),
    "PutTenant": Door("PUT /v1/tenants/{tenant}", "tenants put", "put_tenant", "tenants apply"),
    "PutQueue": Door("PUT /v1/queues/{queue}", "queues put", "put_queue", "queues apply"),
    "RemoveQueue": Door("DELETE /v1/queues/{queue}", "queues delete", "delete_queue", ACTION),
    "PutLabelLimit": Door(
        "PUT /v1/label-limits/{label}/{value}", "label-limits put", "put_label_limit", "label-limits apply"
    ),
    "PutPolicy": Door("PUT /v1/policies/{policy}", "policies put", "put_policy", "policies apply"),
    "RemovePolicy": Door("DELETE /v1/policies/{policy}", "policies delete", "delete_policy", ACTION),
    "PutSettings": Door("PUT /v1/settings", "settings put", "put_settings", "settings apply"),
    "PutSchedule": Door("PUT /v1/schedules/{schedule}", "schedules put", "put_schedule", "schedules apply"),
    "RemoveSchedule": Door("DELETE /v1/schedules/{schedule}", "schedules delete", "delete_schedule", ACTION),
    "ApplySchedules": Door("PUT /v1/schedules", "schedules apply", "apply_schedules", "schedules apply"),
    "PutHolidays": Door("PUT /v1/holidays/{holidays}", "holidays put", "put_holidays", "holidays put"),
    "PutMailbox": Door("PUT /v1/mailboxes/{mailbox}", "mailboxes put", "put_mailbox", "its application declares it"),
    "RemoveMailbox": Door("DELETE /v1/mailboxes/{mailbox}", "mailboxes delete", "delete_mailbox", ACTION),
    "Advise": Door("PUT /v1/schedules/{schedule}/hints", "schedules hint", "hint", ACTION),
    "Trigger": Door("POST /v1/schedules/{schedule}/trigger", "schedules trigger", "trigger_schedule", ACTION),
    "SteerSchedule": Door("POST /v1/schedules/{schedule}/archive", "schedules archive", "archive_schedule", ACTION),
    "Backfill": Door("POST /v1/schedules/{schedule}/backfills", "backfill", "backfill_schedule", ACTION),
    "SteerBackfill": Door("POST /v1/backfills/{backfill}/cancel", "backfills cancel", "cancel_backfill", ACTION),
    "SetLatestVersion": Door("PUT /v1/versions/latest", "versions", "set_latest_application_version", ACTION),
    "Pause": Door("POST /v1/runs/{run}/pause", "pause", "pause", ACTION),
    "Resume": Door("POST /v1/runs/{run}/resume", "resume", "resume", ACTION),
    "UpdateAsset": Door("PUT /v1/assets/{asset}", "assets update", "update_asset", ACTION),
    "Submit": Door("POST /v1/runs", "run", "submit", "run takes its inputs from a file"),
    "Cancel": Door("POST /v1/runs/{run}/cancel", "cancel", "cancel", ACTION),
    "Resolve": Door("POST /v1/runs/{run}/resolve", "resolve", "resolve", ACTION),
    "CancelTask": Door("POST /v1/tasks/{task}/cancel", "cancel", "cancel", ACTION),
    "RetryTask": Door("POST /v1/tasks/{task}/retry", "retry", "retry", ACTION),
    "Redrive": Door("POST /v1/dead-letters/redrive", "dead-letters redrive", "redrive", ACTION),
    "DropDeadLetters": Door("POST /v1/dead-letters/drop", "dead-letters drop", "drop", ACTION),
    "Rerun": Door("POST /v1/runs/{run}/rerun", "rerun", "rerun", ACTION),
    "Decide": Door("POST /v1/runs/{run}/approvals/{node}", "approve", "approve", ACTION),
    "Ingest": Door("POST /v1/events", "signal", "signal", "signal takes its payload from a file"),
    "StartBulk": Door("POST /v1/bulk", "bulk cancel", "start_bulk", ACTION),
    "CancelBulk": Door("POST /v1/bulk/{operation}/cancel", "bulk stop", "cancel_bulk", ACTION),
    "SendUpdate": Door("POST /v1/runs/{run}/updates/{name}", "ask", "ask", "ask takes its payload from a file"),
}
# Facts that the shell observes, and what it says for itself; nobody asks for them.
NOT_ASKED_FOR = {
    "SkipInBulk": "a run of a bulk operation for which there is no request",
    "RunsKnown": "a fact that a backfill looked up",
    "NewZones": "a fact about the time zones of this server",
    "RegisterVersion": "a worker that starts registers the version of its application",
    "ChooseCatchUp": "the start setting catch_up",
    "Offer": "a worker's exchange",
    "WorkerLost": "the failure detector",
    "Started": "a worker's exchange",
    "Succeeded": "a worker's exchange",
    "Failed": "a worker's exchange",
    "Checkpointed": "a worker's exchange",
    "StepsRecorded": "a worker's exchange",
    "Suspended": "a worker's exchange",
    "Continued": "a worker's exchange",
    "HandedBack": "a worker's exchange",
    "Taken": "a worker that took an attempt from a broker",
    "Delivered": "a command of a task in another partition",
    "Acknowledged": "the answer of another partition",
    "CacheAnswered": "a fact that the shell looked up",
    "Extracted": "a fact that the shell looked up",
    "ClockGap": "the clock monitor",
    "HoldTimers": "the clock monitor, or a person who confirms the clock",
}
# A pause acts on any of these; each is a resource of its own.
PAUSED = {
    "run": ("pause", "resume"),
    "queue": ("queues pause", "queues resume"),
    "workflow": ("workflows pause", "workflows resume"),
    "tenant": ("tenants pause", "tenants resume"),
    "schedule": ("schedules pause", "schedules resume"),
    "partition": ("auditor", "release"),
}
FIXED_SETTINGS = {"clock": "fixed when a store is created: resolution_ms", "partition": "which partition it is"}

ROUTES = {f"{route.method} {route.path}" for route in TABLE}
COMMANDS = {" ".join(path) for entry in entries() for path, _ in commands(make_app(entry.name)[entry.name], entry.name)}
INPUTS = [kind.__name__ for kind in get_args(Input)]


def without_door(inputs):
    return [name for name in inputs if name not in DOORS and name not in NOT_ASKED_FOR]


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_has_its_doors_or_a_reason(name):
    assert without_door([name]) == [], "give it a route, a command, a method and a file form, or say who sends it"
    if name in NOT_ASKED_FOR:
        assert name not in DOORS and NOT_ASKED_FOR[name]
        return
    door = DOORS[name]
    assert door.route in ROUTES
    assert door.command in COMMANDS
    assert callable(getattr(AsyncClient, door.method, None)), door.method
    assert door.file in COMMANDS or " " in door.file


def test_an_input_without_a_door_is_noticed():
    assert without_door([*INPUTS, "PutMoon"]) == ["PutMoon"]


def test_the_tables_name_no_input_that_is_gone():
    assert sorted(set(DOORS) | set(NOT_ASKED_FOR)) == sorted(INPUTS)


@pytest.mark.parametrize("scope", PAUSED)
def test_whatever_can_be_paused_has_routes_commands_and_methods(scope):
    assert {f"POST /v1/{scope}s/{{{scope}}}/{word}" for word in ("pause", "resume")} <= ROUTES
    assert set(PAUSED[scope]) <= COMMANDS
    for word in ("pause", "resume"):
        assert callable(getattr(AsyncClient, word if scope == "run" else f"{word}_{scope}"))


def test_each_setting_of_the_machine_can_be_changed_or_says_why_not():
    fields = {field.name for field in msgspec.structs.fields(Settings)}

    assert fields == CHANGEABLE.keys() | FIXED_SETTINGS.keys()


@pytest.mark.parametrize("name", CHANGEABLE)
def test_each_setting_of_the_machine_is_a_start_setting_and_its_default_is_within_its_bounds(name):
    start = {field.name: field.default for field in msgspec.structs.fields(StartSettings)}
    spec = CHANGEABLE[name]

    assert start[name] is None, "not given: as it is in the store"
    assert spec.low <= getattr(Settings(), name) <= spec.high
    assert spec.does.endswith(".")
