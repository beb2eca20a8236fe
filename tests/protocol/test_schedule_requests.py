"""The table of schedule fields, which every reader of a schedule shares."""

import dataclasses

import pytest

from tickwork.cli.commands.schedules_put import ScheduleOptions
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.protocol.http_models import ScheduleRequest
from tickwork.protocol.schedule_requests import (
    POLICY_FIELDS,
    SCHEDULE_FIELDS,
    SPEC_FIELDS,
    fields_of,
    request_field,
    terms_of,
    when_of,
)
from tickwork.sdk.authoring.schedules import Policies

OF_RUNS = {"workflow", "inputs", "context", "description", "governor"}  # no part of times and policies
BY_FUNCTION = {"cron", "every", "at", "rrule", "anchor", "timezone"}  # `tw.cron(...)` and its siblings
OF_UPDATES = {"listen_to", "updates"}  # read and written together, as the trigger of a spec
OF_TRIGGERS = {"asset", "event", "event_key", "where", "ended", "together"}  # flags that make up `listen_to`
BY_FLAGS = {"input", "inputs_json", "context", "description", "governed", "min", "max"}
RENAMED_FLAGS = {"app_version": "version"}  # `--version` is that of the program


def test_the_table_has_every_field_of_a_request_and_of_the_core():
    assert set(SCHEDULE_FIELDS) | OF_RUNS | OF_UPDATES == set(ScheduleRequest.__struct_fields__)
    assert {field.core for field in SPEC_FIELDS} | {"on"} == set(ScheduleSpec.__struct_fields__)
    assert {field.core for field in POLICY_FIELDS} == set(SchedulePolicy.__struct_fields__)


def test_declarations_and_flags_have_the_fields_of_the_table():
    flags = {RENAMED_FLAGS.get(field.name, field.name) for field in dataclasses.fields(ScheduleOptions)}

    assert set(SCHEDULE_FIELDS) - BY_FUNCTION == set(Policies.__annotations__) - OF_RUNS
    assert set(SCHEDULE_FIELDS) | {"updates"} == flags - BY_FLAGS - OF_TRIGGERS


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"cron": "0 9 * * *"}, {}),
        ({"every": "PT5M", "anchor": "2026-01-01T00:00:00+01:00"}, {"every": "5m", "anchor": "2025-12-31T23:00:00Z"}),
        ({"at": "2026-01-01T00:00:00Z", "priority": 3, "grace": ""}, {}),
        ({"rrule": "FREQ=DAILY", "catch_up": "window", "catch_up_window": "60m"}, {"catch_up_window": "1h"}),
        ({"cron": "@daily", "include": ("2026-01-01",), "holidays": ("de",), "buffer": 7, "dst_gap": "skip"}, {}),
    ],
)
def test_a_request_comes_back_from_the_core_in_canonical_form(fields, same):
    request = ScheduleRequest(workflow="w", **fields)

    assert ScheduleRequest(workflow="w", **fields_of(when_of(request), terms_of(request))) == ScheduleRequest(
        workflow="w", **(fields | same)
    )


@pytest.mark.parametrize(
    ("path", "field"),
    [("when", "cron"), ("when.gap", "dst_gap"), ("overlap", "overlap"), ("when.overlap", "dst_overlap"),
     ("when.cron", "cron"), ("runs_max", "max_runs"), ("governing.min_ms", "governor.min"), ("ttl_ms", "ttl"),
     ("queue", "queue"), ("other", "other")],
)  # fmt: skip
def test_a_refusal_names_the_field_of_the_request(path, field):
    assert request_field(path) == field
