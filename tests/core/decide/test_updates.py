"""Schedules that listen: events and the ends of runs become occurrences, and every update has one fate."""

import random
from typing import Any

import pytest

from campaign import seeds
from checkers import all_found
from driver import BY, Driver, T, document, task
from tickwork.core.base.values import Ref, pack, unpack
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.trigger_spec import TriggerSpec, UpdateSource
from tickwork.core.explain.occurrence_ledger import Ledger
from tickwork.core.explain.update_text import missing_updates
from tickwork.core.machine import Machine, Outcome
from tickwork.core.snapshot.dirty_rows import DirtyRows
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import digest, encode_header, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import Duplicate, RunScheduled, UpdatesSettled
from tickwork.core.state.schedule import Fate, SchedulePolicy
from tickwork.core.state.state import Run, Schedule, State

ORDER, PAID = UpdateSource(event="order"), UpdateSource(event="paid")
CAUSED = {"event": {"type": "any", "required": False}, "because": {"type": "array", "required": False}}
DEFINITIONS = (
    inp.PutDefinition(BY, T, document("w", task("a"), inputs=CAUSED)),
    inp.PutDefinition(BY, T, document("other", task("b"))),
)


class Observed(Driver):
    """With the independent ledger, and rows as a store would hold them."""

    def __init__(self) -> None:
        super().__init__(set_up=False)
        self.ledger, self.dirty = Ledger(self.state), DirtyRows(self.state)
        self.stored: dict[str, dict[int, bytes]] = {"runs": {}, "tasks": {}, "schedules": {}}
        self.send(inp.PutTenant(BY, T), inp.PutQueue(BY, "default"), inp.Offer("w1", 1_000))
        self.send(*DEFINITIONS)

    def _apply(self, tick: int, asked: list[inp.Input]) -> Outcome:
        outcome = super()._apply(tick, asked)
        self.ledger.observe(asked[: outcome.taken], outcome.events)
        self.dirty.note(self.state, outcome.events)
        if tick % 3 == 0:
            self.write()
        return outcome

    def write(self) -> None:
        rows = self.dirty.take(self.state)
        for name, live, gone in (
            ("runs", rows.live_runs, rows.gone_runs),
            ("tasks", rows.live_tasks, rows.gone_tasks),
            ("schedules", rows.schedules, rows.gone_schedules),
        ):
            self.stored[name] |= dict(live)
            for number in gone:
                self.stored[name].pop(number, None)

    def restored(self) -> State:
        self.write()
        pieces = ([row for _, row in sorted(self.stored[name].items())] for name in ("runs", "tasks", "schedules"))
        return restore(encode_header(self.state), sorted(self.state.documents.items()), *pieces)


def driver() -> Driver:
    made = Driver()
    made.send(*DEFINITIONS)
    return made


def listen(
    made: Driver, *sources: UpdateSource, together: bool = False, coalesce: bool = False, name: str = "s", **given: Any
) -> Schedule:
    groups = (tuple(range(len(sources))),) if together else tuple((index,) for index in range(len(sources)))
    on = TriggerSpec(sources=sources, groups=groups, coalesce=coalesce)
    when = ScheduleSpec(on=on, cron=given.pop("cron", None))
    made.send(inp.PutSchedule(BY, T, name, "w", when, SchedulePolicy(**given)))
    schedule = made.state.tenants[T].schedules.get(name)
    assert schedule is not None, made.answers[-1]
    return schedule


def event(name: str = "order", payload: Any = None, key: str = "", id: str = "") -> inp.Ingest:
    return inp.Ingest(BY, T, name, key, payload=None if payload is None else pack(payload), id=id)


def started(made: Driver) -> list[RunScheduled]:
    return made.events(RunScheduled)


def inputs_of(run: Run) -> Any:
    return unpack(run.inputs, what="inputs")


def fates(schedule: Schedule) -> dict[str, int]:
    return {Fate(index + 1).name.lower(): count for index, count in enumerate(schedule.fates) if count}


def test_an_event_starts_a_run_in_its_own_tick_with_what_caused_it():
    made = driver()
    listen(made, ORDER)

    made.send(event(payload={"n": 1}, key="k", id="o-1"))

    (run,) = made.state.runs.values()
    assert run.submitted == made.tick
    assert inputs_of(run)["event"] == {"n": 1}
    (cause,) = inputs_of(run)["because"]
    assert (cause["name"], cause["key"], cause["id"], cause["payload"]) == ("order", "k", "o-1", {"n": 1})


def test_twenty_events_of_one_tick_are_twenty_runs_with_ids_of_their_own():
    made = driver()
    schedule = listen(made, ORDER)

    made.send(*(event(payload={"n": n}) for n in range(20)))

    runs = made.state.runs.values()
    assert len({run.id for run in runs}) == 20
    assert [inputs_of(run)["event"]["n"] for run in runs] == list(range(20))
    assert fates(schedule) == {"ran": 20}


def test_twenty_events_of_one_tick_that_are_joined_are_one_run():
    made = driver()
    schedule = listen(made, ORDER, coalesce=True)

    made.send(*(event(payload={"n": n}) for n in range(20)))
    made.quiet()

    (run,) = made.state.runs.values()
    assert [cause["payload"]["n"] for cause in inputs_of(run)["because"]] == list(range(20))
    assert fates(schedule) == {"ran": 1, "coalesced": 19}


@pytest.mark.parametrize(
    ("overlap", "coalesce", "expected"),
    [
        ("forbid", False, {"ran": 1, "skipped": 4}),
        ("buffer_one", False, {"ran": 2, "skipped": 3}),
        ("buffer_one", True, {"ran": 2, "coalesced": 3}),
        ("buffer_all", False, {"ran": 5}),
        ("buffer_all", True, {"ran": 2, "coalesced": 3}),
        ("replace", False, {"ran": 5}),
        ("allow", False, {"ran": 5}),
    ],
)
def test_the_overlap_policy_decides_about_events_while_a_run_goes_on(overlap, coalesce, expected):
    made = driver()
    schedule = listen(made, ORDER, coalesce=coalesce, overlap=overlap)
    made.send(event())
    made.quiet()

    for _ in range(4):
        made.send(event())
        made.quiet()
    made.finish_all()

    assert fates(schedule) == expected
    assert schedule.updates is not None and schedule.updates.open == 0


def test_events_that_come_in_a_pause_are_skipped_and_those_made_up_for_run_after_it():
    made = driver()
    lost, kept = listen(made, ORDER, name="lost"), listen(made, ORDER, name="kept", automatic_backfill=True)
    made.send(inp.Pause(BY, "schedule", T, "lost"), inp.Pause(BY, "schedule", T, "kept"))

    made.send(event(), event())
    made.quiet()
    assert not started(made)
    made.send(inp.Resume(BY, "schedule", T, "lost"), inp.Resume(BY, "schedule", T, "kept"))
    made.quiet()

    assert (fates(lost), fates(kept)) == ({"skipped": 2}, {"ran": 2})


def test_all_of_a_group_must_come_and_what_lacks_is_named():
    made = driver()
    schedule = listen(made, ORDER, PAID, together=True)

    made.send(event(payload={"n": 1}), event(payload={"n": 2}))
    made.quiet()

    assert not started(made)
    (lack,) = missing_updates(schedule)
    assert lack.startswith("event paid: none since ")
    made.send(event("paid"))
    (run,) = made.state.runs.values()
    assert [cause["name"] for cause in inputs_of(run)["because"]] == ["order", "order", "paid"]
    assert fates(schedule) == {"ran": 1, "coalesced": 2}


def test_more_updates_than_one_source_keeps_join_unseen_and_have_a_fate():
    made = driver()
    schedule = listen(made, ORDER, PAID, together=True)

    made.send(*(event() for _ in range(105)))
    made.send(event("paid"))

    (run,) = made.state.runs.values()
    assert len(inputs_of(run)["because"]) == 101
    assert fates(schedule) == {"ran": 1, "coalesced": 105}


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        (UpdateSource(event="order", where="event.total > 100"), {"total": 101}),
        (UpdateSource(event="order", key="eu"), {"total": 1}),
        (UpdateSource(event="order", where="key.startsWith('e')"), {"total": 1}),
    ],
)
def test_a_filter_lets_pass_only_what_fits(source, passes):
    made = driver()
    listen(made, source)

    made.send(event(payload={"total": 5}, key="us"), event("paid", {"total": 500}, "eu"))
    assert not started(made)
    made.send(event(payload=passes, key="eu"))

    assert len(started(made)) == 1


def test_a_filter_that_fails_lets_nothing_pass_and_says_so():
    made = driver()
    listen(made, UpdateSource(event="order", where="event.total > 100"))

    made.send(event(payload={"sum": 1}))

    assert not started(made)
    assert [(alert.kind, alert.subject) for alert in made.alerts] == [("filter_failed", "s")]


@pytest.mark.parametrize(
    ("when", "workflow", "path"),
    [
        (TriggerSpec(sources=(UpdateSource(event="a", where="event.("),), groups=((0,),)), "w", "when.on[0].where"),
        (TriggerSpec(sources=(UpdateSource(event="a", where="inputs.x"),), groups=((0,),)), "w", "when.on[0].where"),
        (TriggerSpec(sources=(UpdateSource(),), groups=((0,),)), "w", "when.on[0]"),
        (TriggerSpec(sources=(UpdateSource(event="a", ended="b"),), groups=((0,),)), "w", "when.on[0]"),
        (TriggerSpec(sources=(UpdateSource(ended="w"),), groups=((0,),)), "w", "when.on[0].ended"),
        (TriggerSpec(sources=(UpdateSource(event="a"),), groups=((1,),)), "w", "when.on"),
        (TriggerSpec(sources=(), groups=()), "w", "when.on"),
    ],
)
def test_a_trigger_that_cannot_work_is_refused_when_it_is_put(when, workflow, path):
    made = driver()

    made.send(inp.PutSchedule(BY, T, "s", workflow, ScheduleSpec(on=when)))

    assert made.answers[-1].code, "it was accepted"
    assert f"{path}:" in made.answers[-1].message
    assert made.state.tenants[T].schedules.get("s") is None


def test_the_end_of_a_workflow_starts_a_run_in_the_same_tick():
    made = driver()
    listen(made, UpdateSource(ended="other"), name="good")
    listen(made, UpdateSource(ended="other", state="failed"), name="bad")
    made.send(inp.Submit(BY, T, "r1", "other"))
    made.quiet()

    made.finish_all()

    (run,) = (run for run in made.records.values() if run.schedule)
    assert run.schedule == "good"
    (cause,) = unpack(run.inputs, what="inputs")["because"]
    assert (cause["kind"], cause["name"], cause["id"], cause["state"]) == ("run", "other", "r1", "completed")


def test_an_event_with_a_known_id_starts_nothing_for_a_day():
    made = driver()
    schedule = listen(made, ORDER)

    made.send(event(id="e1"), event(id="e1"), event(id="e2"))
    made.send(event(id="e1"))
    assert len(started(made)) == 2
    assert len(made.events(Duplicate)) == 2
    made.send(event(id="e1"), at=made.tick + made.settings.dedupe_window_ms + 1)

    assert len(started(made)) == 3
    assert [kept.id for kept in made.state.event_ids.values()] == ["e1"], "older ids are forgotten"
    assert fates(schedule) == {"ran": 3}


def test_a_large_payload_starts_the_run_with_the_inputs_that_came_as_a_fact():
    made = driver()
    listen(made, ORDER)
    listen(made, UpdateSource(event="order", where="event.total > 100"), name="filtered")
    payload, inputs = Ref("sha256:aa", 5_000), Ref("sha256:bb", 5_100)

    made.send(inp.Ingest(BY, T, "order", payload=payload, starts=(("s", 0, inputs),)))

    (run,) = made.state.runs.values()
    assert (run.schedule, run.inputs) == ("s", inputs)


def test_what_waits_is_cancelled_when_its_schedule_listens_to_something_else_or_goes():
    made = driver()
    schedule = listen(made, ORDER, PAID, together=True)
    made.send(event(), event())

    listen(made, ORDER, overlap="buffer_all")
    assert fates(schedule) == {"cancelled": 2}
    made.send(event(), event(), event())
    made.send(inp.RemoveSchedule(BY, T, "s"))

    settled = [(one.count, one.fate, one.cause) for one in made.events(UpdatesSettled)]
    assert settled == [(2, Fate.CANCELLED, "edited"), (1, Fate.CANCELLED, "removed"), (1, Fate.CANCELLED, "removed")]
    made.send(event())
    assert len(started(made)) == 1


def test_an_edit_of_other_things_keeps_what_was_heard():
    made = driver()
    schedule = listen(made, ORDER, PAID, together=True)
    made.send(event())

    listen(made, ORDER, PAID, together=True, priority=3)
    made.send(event("paid"))

    assert fates(schedule) == {"ran": 1, "coalesced": 1}


def test_times_and_updates_start_runs_of_one_schedule():
    made = driver()
    schedule = listen(made, ORDER, cron="* * * * *")

    made.advance(30_000)
    made.send(event())
    made.advance(60_000)

    ways = [one.way for one in started(made)]
    assert (sorted(ways), fates(schedule)) == (["due", "update"], {"ran": 2})


@pytest.mark.parametrize("seed", seeds(0, few=12, many=300))
def test_every_update_of_a_random_history_has_one_fate(seed):
    rng, made = random.Random(seed), Observed()
    sources = [ORDER, PAID, UpdateSource(event="order", where="event.n > 2"), UpdateSource(ended="other", state="any")]
    sources += [UpdateSource(asset="orders"), UpdateSource(asset="rates")]
    for step in range(150):
        requests: list[inp.Input] = []
        for _ in range(rng.randrange(4)):
            name, n = rng.choice(["order", "order", "paid"]), rng.randrange(5)
            requests.append(event(name, {"n": n}, id=rng.choice(["", f"id-{rng.randrange(200)}"])))
            if rng.random() < 0.5:
                requests.append(updated(rng.choice(["orders", "rates"]), rng.choice(["", "01", "02"])))
        chance = rng.random()
        if chance < 0.06:
            chosen = rng.sample(sources, rng.randint(1, 3))
            groups = tuple((index,) for index in range(len(chosen)))
            groups = (tuple(range(len(chosen))),) if rng.random() < 0.5 else groups
            on = TriggerSpec(sources=tuple(chosen), groups=groups, coalesce=rng.random() < 0.5)
            terms = SchedulePolicy(
                overlap=rng.choice(["allow", "forbid", "replace", "buffer_one", "buffer_all"]), buffer_max=3,
                automatic_backfill=rng.random() < 0.3, catch_up_cap=5, pause_after=rng.choice([0, 0, 2]),
            )  # fmt: skip
            cron = rng.choice([None, "* * * * *"])
            requests.append(inp.PutSchedule(BY, T, f"s{rng.randrange(3)}", "w", ScheduleSpec(on=on, cron=cron), terms))
        elif chance < 0.1:
            requests.append(inp.RemoveSchedule(BY, T, f"s{rng.randrange(3)}"))
        elif chance < 0.2:
            move = rng.choice([inp.Pause, inp.Resume])
            requests.append(move(BY, "schedule", T, f"s{rng.randrange(3)}"))
        elif chance < 0.4:
            requests.append(inp.Submit(BY, T, f"other-{step}", "other"))
        for number in sorted(made.running):
            if rng.random() < 0.5:
                attempt = made.running.pop(number).attempt
                failed = inp.Failed(number, attempt, "X", permanent=True)
                requests.append(failed if rng.random() < 0.2 else inp.Succeeded(number, attempt))
        made.send(*requests, at=made.tick + rng.choice([1, 1, 1, 20_000]))
        assert violations(made.state) == []
    folded, stored = Machine(settings=made.settings), made.restored()
    for tick, asked, events in made.rows:
        folded.fold(tick, asked, events)

    assert made.ledger.take_found() == [] and made.ledger.totals().even
    assert digest(folded.state) == digest(made.state) == digest(stored)
    assert all_found(made.settings, made.rows) == []


# ---- assets

ORDERS, RATES = UpdateSource(asset="orders"), UpdateSource(asset="rates")


def updated(asset: str, partition: str = "", id: str = "", **details: Any) -> inp.UpdateAsset:
    return inp.UpdateAsset(BY, T, asset, partition, pack(details) if details else None, id)


def test_both_assets_must_be_new_in_the_same_partition():
    made = driver()
    schedule = listen(made, ORDERS, RATES, together=True)

    made.send(updated("orders", "01"), updated("orders", "02", rows=2), updated("rates", "03"))
    assert not started(made)
    made.send(updated("rates", "02"))

    (run,) = made.state.runs.values()
    because = inputs_of(run)["because"]
    assert [(cause["name"], cause["partition"]) for cause in because] == [("orders", "02"), ("rates", "02")]
    assert because[0]["payload"] == {"rows": 2}
    assert schedule.updates is not None and [update.key for update in schedule.updates.heard] == ["01", "03"]
    made.send(updated("rates"))  # of all partitions: it completes what has waited longest
    assert [cause["partition"] for cause in inputs_of(list(made.state.runs.values())[1])["because"][:1]] == ["01"]


def test_twenty_updates_of_one_asset_while_a_run_goes_on_are_joined_by_partition():
    made = driver()
    schedule = listen(made, ORDERS, coalesce=True, overlap="buffer_all")
    made.send(updated("orders", "01"))
    made.quiet()

    made.send(*(updated("orders", "01") for _ in range(19)), updated("orders", "02"))
    made.quiet()
    made.finish_all()

    assert fates(schedule) == {"ran": 3, "coalesced": 18}


def test_the_result_of_a_task_updates_an_asset_in_its_tick_or_not_at_all():
    made = driver()
    listen(made, ORDERS)
    made.send(inp.Submit(BY, T, "r1", "other"))
    made.quiet()
    (attempt,) = made.running.values()
    commands = (inp.TaskCommand(updated("orders", "01")),)

    made.send(inp.Succeeded(attempt.task, attempt.attempt + 1, None, "", commands))
    assert "orders" not in made.state.tenants[T].assets, "a stale result makes nothing"
    made.send(inp.Succeeded(attempt.task, attempt.attempt, None, "", commands))

    asset = made.state.tenants[T].assets["orders"]
    assert [(update.source, update.partition) for update in asset.latest] == [("task b of r1", "01")]
    (run,) = (run for run in made.state.runs.values() if run.schedule)
    assert run.submitted == made.tick


def test_an_update_that_a_task_of_another_partition_made_is_counted_once():
    made = driver()
    listen(made, ORDERS)
    delivered = inp.Delivered(3, 1, updated("orders", "01"), "task load of far-away")

    made.send(delivered)
    made.send(delivered)

    assert len(started(made)) == 1
    (update,) = made.state.tenants[T].assets["orders"].latest
    assert update.source == "task load of far-away"


def test_an_update_of_an_asset_with_a_known_id_counts_once_and_a_bad_one_not_at_all():
    made = driver()

    made.send(updated("orders", id="u-1"), updated("orders", id="u-1"))
    made.send(updated("a b"), updated("orders", big="x" * 2_000), updated("orders", "p" * 300))

    assert made.state.tenants[T].assets["orders"].count == 1
    assert [answer.code for answer in made.answers[-3:]] == ["name_characters", "value_too_large", "key_too_long"]


def test_what_is_known_of_an_asset_has_an_end():
    made = driver()

    made.send(*(updated("orders", f"{number:04}") for number in range(500)))

    asset = made.state.tenants[T].assets["orders"]
    assert (asset.count, len(asset.latest), len(asset.partitions)) == (500, 20, 400)
    assert asset.partitions[-1][0] == "0499"
