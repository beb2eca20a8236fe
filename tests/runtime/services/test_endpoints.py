"""Endpoints: called when the Governor says so, with what came back kept and explained."""

import asyncio
from itertools import pairwise

import pytest

from runtime.services.endpoint_fixture import MINUTE, SECOND, calling
from tickwork.core.base.errors import InvalidDefinition, Refused
from tickwork.core.calendar.durations import instant_ms, instant_text
from tickwork.ports.store import Fenced
from tickwork.protocol import http_models as wire

ALL_SOURCES = {
    "baseline-cron", "baseline-interval", "ai-interval", "ai-oneshot", "clamped-min", "clamped-max", "paused",
}  # fmt: skip


# ---- one call


@pytest.mark.proves("S003-03", "S003-04", "S003-14", "S003-15", "S003-17", "S003-18", "S003-25", "S003-53", "S003-54")
async def test_a_call_is_made_when_due_and_everything_about_it_is_kept():
    async with calling() as house:
        told = await house.put(every="5m", description="how long the queue is")
        began_ms = house.clock.wall_ms()
        house.pass_ms(4 * MINUTE)
        await asyncio.sleep(0.02)
        assert house.server.asked_ms == []  # it is not due yet
        await house.due()

        [call] = await house.runs()
        assert (call.state, call.source, call.attempt, call.status) == ("completed", "baseline-interval", 1, 200)
        assert call.body == {"queue_depth": 7} and call.duration_ms >= 0 and not call.cut and not call.error
        assert call.scheduled_at == told.next_at
        assert 0 <= house.server.asked_ms[0] - (began_ms + 5 * MINUTE) < 2 * SECOND
        found = await house.engine.endpoints.get("shop")
        assert found.last_fired_at == call.scheduled_at and found.last.id == call.id and found.last.body is None
        assert 0 <= instant_ms(found.last.started_at, path="") - instant_ms(call.scheduled_at, path="") < 2 * SECOND
        assert instant_ms(found.next_at, path="") == instant_ms(found.last.started_at, path="") + 5 * MINUTE


@pytest.mark.proves("S003-14")
async def test_a_call_in_progress_is_on_record_as_running_with_its_attempt():
    async with calling() as house:
        await house.put(every="1m")
        house.server.open.clear()
        house.pass_ms(MINUTE)
        await house.until_true(lambda: house.server.at_once == 1)

        [call] = await house.runs()
        assert (call.state, call.attempt, call.status, call.ended_at) == ("active", 1, None, None)
        assert (await house.engine.endpoints.get("shop")).running
        house.server.open.set()
        await house.rest()


@pytest.mark.proves("S003-17", "S003-20", "S003-24")
async def test_a_failed_call_keeps_status_body_and_message():
    async with calling() as house:
        await house.put()
        house.server.fail()
        await house.due()

        [call] = await house.runs()
        assert (call.state, call.status, call.error, call.body) == ("failed", 503, "HttpStatus", {"load": 0.99})
        assert "answered 503" in call.message and call.duration_ms is not None
        assert (await house.engine.endpoints.get("shop")).last.status == 503


@pytest.mark.proves("S003-25")
@pytest.mark.parametrize("status", ["200 OK", "500 No"])
@pytest.mark.parametrize("body", [b"[" * 1_900, b'{"n": 1234567890123456789012345}', b"a\0b"])
async def test_no_answer_makes_the_history_unreadable(status, body):
    async with calling() as house:
        await house.put()
        house.server.status, house.server.body = status, body
        await house.due()

        [call] = await house.runs()
        assert (call.status, call.body) == (int(status[:3]), body.decode().replace("\0", "\ufffd"))
        assert (await house.engine.endpoints.get("shop")).last.status == int(status[:3])


@pytest.mark.proves("S003-16")
async def test_an_answer_that_takes_too_long_is_a_failure():
    async with calling() as house:
        await house.put(timeout="40ms")
        house.server.open.clear()
        await house.due()

        [call] = await house.runs()
        assert (call.state, call.status) == ("failed", None)
        assert call.error in ("Timeout", "TimeoutError")  # whoever saw it first, the engine or the worker
        assert house.one().failures == 1


async def test_a_try_that_failed_is_made_again_within_the_run():
    async with calling() as house:
        await house.put(retries=2, retry_delay="10ms")
        house.server.fail()
        house.pass_ms(5 * MINUTE)
        await house.until_true(lambda: len(house.server.asked_ms) == 1)
        house.server.work()
        house.pass_ms(20)
        await house.rest()

        [call] = await house.runs()
        assert (call.state, call.attempt, call.status, house.one().failures) == ("completed", 2, 200, 0)


async def test_success_is_what_the_endpoint_says():
    async with calling() as house:
        await house.put(success="status == 200 && body.queue_depth < 5")
        await house.due()

        [call] = await house.runs()
        assert (call.state, call.status, call.body) == ("failed", 200, {"queue_depth": 7})


@pytest.mark.proves("S003-18", "S003-23")
async def test_a_long_answer_is_kept_up_to_the_limit_also_beyond_what_a_run_shows():
    async with calling() as house:
        await house.put(body_limit=90_000)
        house.server.body = b'"' + 200_000 * b"x" + b'"'
        await house.due()

        [call] = await house.runs()
        assert call.cut and len(call.body) == 90_000


@pytest.mark.proves("S003-01")
async def test_what_an_answer_says_moves_nothing_by_itself():
    async with calling() as house:
        await house.put(every="1m")
        for body in (b'{"queue_depth": 0}', b'{"queue_depth": 999999, "next_run": "now"}', b"not json"):
            house.server.body = body
            await house.due()

            assert (house.after_start_ms(), house.one().advice) == (MINUTE, None)


# ---- failures


@pytest.mark.proves("S003-55", "S003-66", "S003-67", "S003-32")
async def test_failures_lengthen_the_interval_up_to_32_times_and_a_success_resets_it():
    async with calling() as house:
        await house.put(every="1m")
        house.server.fail()
        seen = [house.next_in_ms() // MINUTE]
        for _ in range(7):
            await house.due()
            seen.append(house.after_start_ms() // MINUTE)

        assert seen == [1, 2, 4, 8, 16, 32, 32, 32]
        assert house.one().failures == 7
        house.server.work()
        await house.due()
        assert (house.one().failures, house.after_start_ms()) == (0, MINUTE)


async def test_failures_can_be_forgotten_and_the_governor_is_asked_at_once():
    async with calling() as house:
        await house.put(every="1m")
        house.server.fail()
        await house.due()
        assert house.after_start_ms() == 2 * MINUTE
        await house.engine.schedules.steer("shop", "reset_failures", by="alice")

        assert (house.one().failures, house.next_in_ms()) == (0, MINUTE)


async def test_after_so_many_failures_it_pauses_itself():
    async with calling() as house:
        await house.put(every="1m", pause_after=2)
        house.server.fail()
        await house.due()
        house.pass_ms(house.one().next_ms - house.clock.wall_ms())
        await house.until_true(lambda: house.one().paused)

        found = await house.engine.endpoints.get("shop")
        assert found.paused and "2 runs in a row" in found.pause_reason and found.next_at is None


# ---- hints


@pytest.mark.proves("S003-56", "S003-41", "S003-72")
async def test_a_one_shot_hint_brings_one_call_and_is_used_up():
    async with calling() as house:
        await house.put(every="1h")
        await house.hint(at=_in(house, 10 * SECOND), reason="a sale begins")
        await house.due()
        house.pass_ms(20 * MINUTE)  # a hint that looped would have come again and again
        await asyncio.sleep(0.05)

        [call] = await house.runs()
        assert call.source == "ai-oneshot"
        assert len(house.server.asked_ms) == 1 and (await house.engine.endpoints.get("shop")).hints is None


@pytest.mark.proves("S003-57", "S003-40")
async def test_hints_are_gone_once_they_expired():
    async with calling() as house:
        await house.put(every="10m")
        await house.hint(interval="1m", ttl="150s", cost=3)
        found = (await house.engine.endpoints.get("shop")).hints
        assert (found.interval, found.by, found.cost) == ("1m", "planner", 3)
        for _ in range(3):
            await house.due()

        assert [call.source for call in await house.runs()] == ["ai-interval"] * 3
        assert (await house.engine.endpoints.get("shop")).hints is None
        assert house.after_start_ms() == 10 * MINUTE


async def test_a_hint_for_a_time_counts_until_that_time_has_come():
    async with calling() as house:
        await house.put(every="1h")
        await house.hint(at=_in(house, 150 * MINUTE), reason="the sale ends")
        for _ in range(3):
            await house.due()

        assert [call.source for call in await house.runs()] == ["ai-oneshot", "baseline-interval", "baseline-interval"]


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"interval": "1ms"}, "invalid_interval", "interval"),
        ({"interval": "1m", "ttl": "0s"}, "bad_ttl", "ttl"),
        ({"interval": "1m", "ttl": "400d"}, "bad_ttl", "ttl"),
        ({"interval": "1m", "cost": -1}, "bad_cost", "cost"),
        ({"interval": "soon"}, "duration_syntax", "interval"),
        ({"at": "soon"}, "instant_syntax", "at"),
        ({}, "empty_hint", "interval"),
        ({"interval": "1m", "reason": "x" * 1_001}, "too_long", "reason"),
    ],
)
async def test_a_hint_that_could_never_count_is_refused_in_the_words_of_the_request(fields, code, path):
    async with calling() as house:
        await house.put()
        with pytest.raises(Refused) as refused:
            await house.hint(**fields)

        assert (refused.value.code, refused.value.path) == (code, path)
        assert (await house.engine.endpoints.get("shop")).hints is None


async def test_a_hint_that_would_expire_before_its_time_is_refused():
    async with calling() as house:
        await house.put()
        with pytest.raises(Refused, match="expire before its time") as refused:
            await house.hint(at=_in(house, 2 * MINUTE), ttl="1m")
        house.clock.pass_ms(60 * MINUTE)  # nothing has happened since, not even a tick
        await house.hint(at=_in(house, 2 * MINUTE), ttl="3m")

        assert (refused.value.code, refused.value.path) == ("hint_expires_first", "ttl")


@pytest.mark.proves("S003-77", "S003-78")
async def test_a_hint_that_comes_during_a_run_counts_from_its_start():
    async with calling() as house:
        await house.put(every="10m", timeout="5m")
        house.server.open.clear()
        house.pass_ms(10 * MINUTE)
        await house.until_true(lambda: house.server.at_once == 1)
        await house.hint(interval="30s")
        house.server.open.set()
        await house.rest()

        assert (house.after_start_ms(), str(house.one().decision.source)) == (30 * SECOND, "ai-interval")


@pytest.mark.proves("S003-68", "S003-76")
async def test_why_tells_who_chose_the_time_and_what_it_would_have_been():
    async with calling() as house:
        await house.put(every="1h", min_interval="2m")
        baseline = (await house.engine.endpoints.get("shop")).next_at
        await house.hint(interval="10s", reason="the queue grows")
        await house.due()

        [call] = await house.runs()
        story = await house.engine.queries.why(call.id)
        [said] = [one.detail for one in story.entries if one.what == "scheduled"]
        assert call.source == "clamped-min"
        assert "interval hint by planner was chosen at" in said and ": the queue grows" in said and "ai-" not in said
        assert f"the baseline would have been {baseline[:16]}" in said and "clamped-min moved it from" in said


@pytest.mark.proves("S003-68", "S003-76")
async def test_the_source_of_a_run_is_kept_however_it_was_chosen():
    async with calling() as house:
        await house.put(cron="*/5 * * * *")
        await house.due()
        await house.hint(interval="1m", ttl="70s")
        await house.due()
        await house.engine.schedules.clear_hints("shop", by="planner")
        await house.put(every="10m", max_interval="5m")
        await house.due()
        await house.put(every="1m", min_interval="2m")
        await house.due()
        await house.put(every="3m")
        await house.due()
        await house.hint(at=_in(house, SECOND))
        await house.due()
        await house.engine.admin.pause("schedule", "shop", by="alice", until=_in(house, 7 * MINUTE))
        await house.due()

        found = [call.source for call in await house.runs()]
        assert set(found) == ALL_SOURCES
        rows = [(await house.engine.queries.run(call.id)).decided for call in await house.runs()]
        assert rows == found


def _in(house, ms: int) -> str:
    return instant_text(house.clock.wall_ms() + ms)


# ---- pause


@pytest.mark.proves("S003-51", "S003-52", "S003-75")
async def test_a_pause_is_over_hints_and_limits_and_ends_by_itself():
    async with calling() as house:
        await house.put(every="1m", max_interval="2m")
        await house.hint(interval="10s")
        until = _in(house, 30 * MINUTE)
        await house.engine.admin.pause("schedule", "shop", by="alice", until=until, reason="repairs")
        found = await house.engine.endpoints.get("shop")
        assert (found.next_at, found.source, found.paused) == (until, "paused", True)
        house.pass_ms(29 * MINUTE)
        await asyncio.sleep(0.03)
        assert house.server.asked_ms == []
        await house.due()

        [call] = await house.runs()
        assert (call.source, call.scheduled_at) == ("paused", until)
        assert not (await house.engine.endpoints.get("shop")).paused


@pytest.mark.proves("S003-52")
async def test_a_pause_with_an_end_can_be_made_one_without():
    async with calling() as house:
        await house.put(every="1m")
        await house.engine.admin.pause("schedule", "shop", by="alice", until=_in(house, 2 * MINUTE))
        await house.engine.admin.pause("schedule", "shop", by="alice", reason="it is worse than that")
        house.pass_ms(10 * MINUTE)
        await asyncio.sleep(0.03)

        found = await house.engine.endpoints.get("shop")
        assert (found.paused, found.paused_until, found.next_at, found.source) == (True, None, None, "paused")
        assert house.server.asked_ms == [] and found.candidates == ()
        with pytest.raises(Refused, match="is paused"):
            await house.engine.admin.pause("schedule", "shop", by="alice")


async def test_a_pause_that_ends_in_the_past_is_refused_in_the_words_of_the_request():
    async with calling() as house:
        await house.put()
        with pytest.raises(Refused, match="must end in the future") as refused:
            await house.engine.admin.pause("schedule", "shop", by="alice", until=_in(house, -SECOND))

        assert (refused.value.code, refused.value.path) == ("bad_time", "until")


async def test_a_group_is_paused_as_a_whole():
    async with calling() as house:
        for name in ("a", "b", "c"):
            await house.put(name, every="1m", group="" if name == "c" else "shops")
        await house.engine.admin.pause("group", "shops", by="alice", reason="stocktaking")
        await house.due("c")

        found = {one.name: one for one in (await house.engine.endpoints.page()).endpoints}
        assert [found[name].paused for name in "abc"] == [True, True, False] and len(house.server.asked_ms) == 1
        assert "stocktaking" in found["a"].pause_reason and (found["a"].source, found["a"].next_at) == ("paused", None)
        assert [one.name for one in (await house.engine.endpoints.page(group="shops")).endpoints] == ["a", "b"]
        await house.engine.admin.resume("group", "shops", by="alice")
        await house.rest("a")
        await house.due("a")
        assert (await house.runs("a"))[0].state == "completed"


# ---- by hand


async def test_a_call_by_hand_is_beside_the_times():
    async with calling() as house:
        await house.put(every="1h")
        before = house.one().next_ms
        run = await house.engine.schedules.trigger("shop", by="bob")
        await house.until(run, "completed")
        await house.rest()

        [call] = await house.runs()
        assert (call.source, call.by, house.one().next_ms) == ("trigger", "bob", before)


async def test_a_test_touches_nothing_not_even_by_failing():
    async with calling() as house:
        await house.put(every="1h")
        house.server.fail()
        before = (house.one().next_ms, house.one().failures, house.one().last_fired_ms, house.one().fates)
        run = await house.engine.schedules.trigger("shop", by="bob", test=True)
        await house.until(run, "failed")

        assert before == (house.one().next_ms, house.one().failures, house.one().last_fired_ms, house.one().fates)
        assert [call.source for call in await house.runs()] == ["test"]
        assert (await house.engine.endpoints.get("shop")).last is None


# ---- the bugs that such systems are known for


@pytest.mark.proves("S003-65", "S003-64", "S003-47")
async def test_a_run_longer_than_its_interval_and_than_30_s_is_neither_repeated_nor_followed_at_once():
    async with calling() as house:
        await house.put(every="1s", timeout="20m")
        house.server.open.clear()
        house.pass_ms(SECOND)
        await house.until_true(lambda: house.server.at_once == 1)
        for _ in range(10):  # ten minutes: a lock of 30 s would have run out many times
            house.pass_ms(MINUTE)
            await asyncio.sleep(0.005)
        assert len(house.server.asked_ms) == 1
        house.server.open.set()
        await house.rest()

        assert house.next_in_ms() == SECOND and house.one().next_ms > house.clock.wall_ms() - SECOND
        for _ in range(3):
            await house.due()
        assert house.server.at_once_max == 1
        assert all(gap >= SECOND for gap in gaps(await house.runs()))


@pytest.mark.proves("S003-04")
async def test_short_intervals_are_never_called_early_nor_too_often():
    async with calling() as house:
        await house.put(every="1s")
        began_ms = house.clock.wall_ms()
        for _ in range(200):  # 10 s in steps of 50 ms: a look ahead of 5 s would run it several times
            house.pass_ms(50)
            await asyncio.sleep(0.001)
        await house.rest()

        calls = await house.runs(limit=100)
        lasted_ms = house.clock.wall_ms() - began_ms
        assert 5 <= len(calls) <= lasted_ms // SECOND
        assert all(gap >= SECOND for gap in gaps(calls))


def gaps(calls):
    """Between the starts of two runs."""
    starts = sorted(instant_ms(call.started_at, path="") for call in calls)
    return [late - early for early, late in pairwise(starts)]


async def test_a_late_start_does_not_shorten_the_next_interval():
    async with calling() as house:
        await house.put(every="10m")
        house.pass_ms(19 * MINUTE)  # nine minutes late
        await house.until_true(lambda: house.one().fired == 1)
        await house.rest()

        [call] = await house.runs()
        assert house.after_start_ms() == 10 * MINUTE
        assert house.one().decision.decided_ms - instant_ms(call.scheduled_at, path="") >= 9 * MINUTE


# ---- recovery


@pytest.mark.proves("S003-58")
async def test_of_two_servers_that_both_see_it_due_only_one_calls_it():
    async with calling() as house:
        await house.put(every="1m")
        old = house.engine
        await house.open()
        house.pass_ms(MINUTE)
        old.context.live.refresh()
        await house.until_true(lambda: house.one().fired == 1 and old.context.live.failed is not None)
        new, house.engine = house.engine, old
        await house.crash()  # the worker waited for its word
        house.engine = new
        await house.rest()

        assert isinstance(old.context.live.failed, Fenced)
        assert len(house.server.asked_ms) == 1 and len(await house.runs()) == 1


@pytest.mark.proves("S003-10")
async def test_a_server_that_restarts_in_the_middle_of_a_call_loses_nothing_and_calls_nothing_twice():
    async with calling() as house:
        await house.put(every="1m", timeout="10m")
        await house.hint(interval="2m", reason="quiet hours")
        await house.due()
        house.server.open.clear()
        house.pass_ms(house.one().next_ms - house.clock.wall_ms())
        await house.until_true(lambda: house.server.at_once == 1)
        await house.crash()
        await house.open()
        house.server.open.set()
        await house.rest()

        calls = await house.runs()
        assert [call.state for call in calls] == ["completed", "completed"] and len(house.server.asked_ms) == 2
        assert [(call.attempt, call.source) for call in calls] == [(1, "ai-interval"), (1, "baseline-interval")]
        found = await house.engine.endpoints.get("shop")
        assert (found.hints.reason, found.fates.ran, house.after_start_ms()) == ("quiet hours", 2, 2 * MINUTE)


async def test_what_fell_due_while_the_server_was_down_is_called_once_and_at_once():
    async with calling() as house:
        await house.put(every="1m")
        await house.crash()
        house.clock.pass_ms(60 * MINUTE)
        await house.open()
        await house.until_true(lambda: house.one().fired == 1)
        await house.rest()

        assert len(house.server.asked_ms) == 1 and house.after_start_ms() == MINUTE


@pytest.mark.proves("S003-60", "S003-63", "S003-10")
async def test_a_killed_worker_loses_its_call_to_another_one():
    async with calling(lost_after_ms=300) as house:
        await house.put(every="1h", timeout="10m")
        house.server.open.clear()
        await house.engine.schedules.trigger("shop", by="bob")
        await house.until_true(lambda: house.server.at_once == 1)
        await house.kill()
        house.server.open.set()
        await house.hire("w2")
        await house.rest()

        [call] = await house.runs()
        assert (call.state, call.attempt) == ("completed", 2)


@pytest.mark.proves("S003-60", "S003-61", "S003-62", "S003-63")
async def test_a_run_that_nobody_ends_is_ended_after_five_minutes_and_the_governor_is_asked():
    async with calling(worker=False) as house:
        await house.put(every="1m")
        house.pass_ms(MINUTE)
        await house.begun()
        house.pass_ms(4 * MINUTE + 50 * SECOND)
        await asyncio.sleep(0.02)
        assert house.one().active
        house.pass_ms(11 * SECOND)
        await house.rest()

        [call] = await house.runs()
        assert call.state == "failed" and call.message == "the run took too long"
        assert (house.one().failures, house.next_in_ms()) == (1, 2 * MINUTE)


@pytest.mark.proves("S003-60", "S003-62", "S003-63")
async def test_a_run_whose_worker_is_gone_ends_with_its_own_time_and_the_governor_is_asked():
    async with calling() as house:
        await house.put(every="1m", timeout="45s")
        house.server.open.clear()
        house.pass_ms(MINUTE)
        await house.until_true(lambda: house.server.at_once == 1)
        await house.kill()
        house.pass_ms(46 * SECOND)
        await house.rest()

        [call] = await house.runs()
        assert (call.state, house.one().failures, house.after_start_ms()) == ("failed", 1, 2 * MINUTE)
        assert call.message or call.error


@pytest.mark.parametrize(
    ("fields", "longest"),
    [
        ({}, "5m"),
        ({"timeout": "20m"}, "21m"),
        ({"timeout": "1m", "retries": 9, "retry_delay": "1s"}, "20m22s100ms"),
        ({"max_duration": "45s"}, "45s"),
    ],
)
async def test_the_longest_time_of_a_run_fits_its_tries(fields, longest):
    async with calling() as house:
        await house.put(**fields)

        assert (await house.engine.endpoints.get("shop")).max_duration == longest


# ---- what is put


@pytest.mark.proves("S003-13", "S003-77", "S003-78")
async def test_an_edit_counts_from_the_next_call_and_moves_nothing_it_does_not_name():
    async with calling() as house:
        await house.put(every="10m")
        before = house.one().next_ms
        await house.put(every="10m", url=f"{house.url}/other", method="POST", body={"a": 1})
        assert house.one().next_ms == before
        await house.put(every="2m", url=f"{house.url}/other", method="POST", body={"a": 1})

        assert house.next_in_ms() == 2 * MINUTE
        await house.due()
        assert (await house.engine.endpoints.get("shop")).url.endswith("/other")
        assert (await house.runs())[0].status == 200


@pytest.mark.proves("S003-77", "S003-78")
async def test_an_edit_during_a_call_counts_when_that_has_ended():
    async with calling() as house:
        await house.put(every="10m", timeout="5m")
        house.server.open.clear()
        house.pass_ms(10 * MINUTE)
        await house.until_true(lambda: house.server.at_once == 1)
        await house.put(every="2m", timeout="5m", url=f"{house.url}/other")
        assert len(house.server.asked_ms) == 1
        house.server.open.set()
        await house.rest()

        assert house.after_start_ms() == 2 * MINUTE and house.one().fates[0] == 1


async def test_what_is_put_again_just_so_is_left_alone():
    async with calling() as house:
        await house.put(every="10m")
        before, seq = house.one().next_ms, house.engine.context.live.decided_seq
        await house.put(every="10m")

        assert (house.one().next_ms, house.engine.context.live.decided_seq) == (before, seq)


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"min_interval": "10m", "max_interval": "1m"}, "min_above_max", "min_interval"),
        ({"every": ""}, "bad_schedule", "cron"),
        ({"cron": "* * * * *", "every": "5m"}, "bad_schedule", "cron"),
        ({"timeout": "31m"}, "duration_too_long", "timeout"),
        ({"timeout": "2m", "max_duration": "1m"}, "bad_max_duration", "max_duration"),
        ({"url": "ftp://there"}, "url", "url"),
        ({"method": "FETCH"}, "wrong_value", "method"),
        ({"success": "status ="}, "condition", "success"),
        ({"queue": "nowhere"}, "unknown_queue", "queue"),
        ({"retries": 101}, "bad_retries", "retries"),
        ({"timezone": "Mars/Base"}, "unknown_zone", "timezone"),
        ({"every": "", "cron": "61 * * * *"}, "invalid_cron", "cron"),
        ({"every": "0s"}, "invalid_interval", "every"),
        ({"min_interval": "soon"}, "duration_syntax", "min_interval"),
        ({"max_interval": "0s"}, "invalid_interval", "max_interval"),
        ({"success": "status"}, "condition", "success"),
        ({"success": "inputs.a == 1"}, "condition", "success"),
        ({"headers": {"X-A": "grün"}}, "header", "headers.X-A"),
        ({"headers": {"X-A": " b"}}, "header", "headers.X-A"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "header", "headers.x-a"),
        ({"headers": {"Content-Length": "7"}}, "header", "headers.Content-Length"),
        ({"headers": {"transfer-encoding": "chunked"}}, "header", "headers.transfer-encoding"),
    ],
)
async def test_what_cannot_be_kept_is_refused_in_the_words_of_the_request(fields, code, path):
    async with calling() as house:
        with pytest.raises(Refused) as refused:
            await house.put(**fields)

        assert (refused.value.code, refused.value.path) == (code, path)
        assert house.engine.context.state.tenants["default"].plans == {}


async def test_a_set_is_put_as_a_whole_or_not_at_all():
    async with calling() as house:
        good = wire.EndpointRequest(url=f"{house.url}/a", every="1m")
        bad = wire.EndpointRequest(url="nonsense", every="1m")
        with pytest.raises(InvalidDefinition) as refused:
            await house.engine.endpoints.put_set({"a": good, "b": bad}, by="alice")
        assert refused.value.path == "endpoints.b.url"
        assert (await house.engine.endpoints.page()).endpoints == ()
        told = await house.engine.endpoints.put_set({"a": good, "b": good}, by="alice")

        assert sorted(told) == ["a", "b"] and told["a"].next_at is not None
        assert [one.name for one in (await house.engine.endpoints.page()).endpoints] == ["a", "b"]


async def test_names_of_others_are_not_taken():
    async with calling() as house:
        await house.define("report", {"kind": "task", "id": "a", "handler": "a"})
        schedule = wire.ScheduleRequest(workflow="report", every="1h")
        await house.engine.schedules.put("nightly", schedule, by="alice")
        with pytest.raises(Refused, match="choose another name"):
            await house.put("nightly")
        with pytest.raises(Refused, match="reserved for endpoints"):
            await house.define("endpoint.x", {"kind": "task", "id": "a", "handler": "a"})
        with pytest.raises(Refused, match="there is no endpoint"):
            await house.engine.endpoints.get("nightly")
        with pytest.raises(Refused, match="119 characters"):
            await house.put("x" * 120)


async def test_an_endpoint_is_neither_deleted_nor_replaced_as_a_schedule():
    async with calling() as house:
        await house.put(every="1m")
        plain = wire.ScheduleRequest(workflow="endpoint.shop", every="1h")
        with pytest.raises(Refused, match="archived and not deleted"):
            await house.engine.schedules.remove("shop", by="bob")
        with pytest.raises(Refused, match="is an endpoint"):
            await house.engine.schedules.put("shop", plain, by="bob")
        with pytest.raises(Refused, match="is an endpoint") as refused:
            await house.engine.schedules.apply(wire.ScheduleSet(owner="me", schedules={"shop": plain}), by="bob")
        assert refused.value.path == "schedules.shop"
        await house.due()

        assert (await house.runs())[0].state == "completed"


async def test_an_archived_endpoint_rests_keeps_its_history_and_comes_back_when_put():
    async with calling() as house:
        await house.put(every="1m")
        await house.due()
        await house.engine.endpoints.archive("shop", by="alice")
        await house.engine.endpoints.archive("shop", by="alice")  # as good as once
        house.pass_ms(60 * MINUTE)
        await asyncio.sleep(0.03)

        assert len(house.server.asked_ms) == 1 and len(await house.runs()) == 1
        for test in (False, True):
            with pytest.raises(Refused, match="restore it first"):
                await house.engine.schedules.trigger("shop", by="bob", test=test)
        assert (await house.engine.endpoints.page()).endpoints == ()
        assert [one.name for one in (await house.engine.endpoints.page(archived=True)).endpoints] == ["shop"]
        await house.put(every="1m")
        await house.rest()
        await house.due()
        assert len(await house.runs()) == 2


async def test_looking_like_a_mistake_is_warned_of():
    async with calling() as house:
        told = await house.put(
            every="10s", min_interval="1m", body="x", headers={"Authorization": "Bearer abc", "X-A": "b"}
        )

        assert [one.code for one in told.warnings] == ["body_not_sent", "below_min", "plain_secret"]
        assert told.source == "clamped-min" and len(told.next) == 10


@pytest.mark.proves("S003-25")
async def test_history_is_read_in_pages_and_by_state():
    async with calling() as house:
        await house.put(every="1m")
        for number in range(7):
            house.server.work() if number % 3 else house.server.fail()
            await house.due()
        seen, before = [], 0
        while True:
            page, before = await house.engine.endpoints.runs("shop", before=before, limit=3)
            seen += page
            if not before:
                break

        assert [call.state for call in reversed(seen)] == ["failed", "completed", "completed"] * 2 + ["failed"]
        assert len({call.id for call in seen}) == 7
        assert len(await house.runs(states=("failed",))) == 3


async def test_a_page_ends_early_where_bodies_are_large():
    async with calling() as house:
        await house.put(every="1m", body_limit=1_000_000)
        house.server.body = b'"' + 950_000 * b"x" + b'"'
        for _ in range(6):
            await house.due()
        page, before = await house.engine.endpoints.runs("shop")
        rest, last = await house.engine.endpoints.runs("shop", before=before)

        assert (len(page), len(rest), last) == (4, 2, 0)
