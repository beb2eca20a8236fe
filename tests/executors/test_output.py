"""What user code prints becomes lines of its attempt, in bounded memory."""

import asyncio
import resource
import time

import pytest

from executors.executor_fixture import playing
from tickwork.protocol.log_lines import CUT, LINE_BYTES_MAX, ByteRateLimit, LineSplitter
from tickwork.protocol.worker_messages import Failed, Succeeded


async def test_prints_and_log_records_are_lines_of_the_attempt():
    async with playing() as stage:
        first, second = stage.start("says", args={"word": "one"}), stage.start("says", args={"word": "two"})
        await stage.end(first)
        await stage.end(second)

        assert stage.texts(first) == ["one", "no end of line"] and stage.texts(second) == ["two", "no end of line"]
        assert stage.texts(first, "stderr") == ["to stderr"] and stage.texts(first, "log") == ["INFO mine: logged one"]


async def test_text_that_is_no_unicode_is_written_out_and_fails_nobody():
    async with playing() as stage:
        printed = stage.start("half_a_pair", args={"how": "printed"})
        raised = stage.start("half_a_pair", args={"how": "raised"})
        told = stage.start("half_a_pair", args={"how": "told"})

        assert isinstance(await stage.end(printed), Succeeded) and stage.texts(printed) == ["gr\\udcfcn.txt"]
        broke = await stage.end(raised)
        assert isinstance(broke, Failed) and (broke.error, broke.message[:12]) == ("ValueError", "gr\\udcfcn.tx")
        assert isinstance(await stage.end(told), Succeeded)
        assert stage.progresses()[0].message == "gr\\udcfcn.txt"


async def test_a_log_record_whose_arguments_do_not_fit_is_told_and_fails_nobody():
    async with playing() as stage:
        key = stage.start("logs_badly")

        assert isinstance(await stage.end(key), Succeeded)
        assert any("TypeError" in text for text in stage.texts(key, "stderr"))


async def test_an_exit_code_that_no_program_can_have_is_left_out():
    async with playing() as stage:
        broke = await stage.end(stage.start("exits_wildly"))

        assert isinstance(broke, Failed) and (broke.error, broke.exit_code) == ("SystemExit", None)


async def test_what_is_printed_past_python_is_a_line_too():
    async with playing(processes=1) as stage:
        key = stage.start("says_in_c", args={"word": "said"})
        await stage.end(key)
        await stage.until(lambda: len(stage.texts(key)) == 2)

        assert stage.texts(key) == ["said by the kernel", "said by a program"]


async def test_what_is_printed_past_python_is_never_taken_for_another_attempts():
    async with playing(processes=1) as stage:
        keys = [stage.start("last_words", args={"word": f"w{number}"}) for number in range(30)]
        for key in keys:
            await stage.end(key)

        for number, key in enumerate(keys):
            assert stage.texts(key) == [f"w{number} {line}" for line in range(2_000)] + [f"w{number} at last"]


async def test_bytes_that_are_written_are_lines_of_the_attempt_too():
    async with playing(processes=1) as stage:
        keys = [stage.start("writes_bytes", args={"word": f"w{number}"}) for number in range(20)]
        for key in keys:
            await stage.end(key)

        assert [stage.texts(key) for key in keys] == [[f"w{number}"] for number in range(20)]


async def test_a_line_is_seen_while_its_task_still_runs():
    async with playing() as stage:
        key = stage.start("says_and_waits", args={"word": "soon"})
        began = time.monotonic()
        await stage.until(lambda: stage.texts(key) == ["soon"])

        assert time.monotonic() - began < 20 and key not in stage.ends


@pytest.mark.proves("F30")
async def test_a_flood_is_cut_and_says_so_and_others_go_on():
    async with playing() as stage:
        flood = stage.start("flood", args={"lines": 300_000})
        while flood not in stage.ends:
            began = time.monotonic()
            assert await stage.value("add", a=1, b=1) == 2
            assert time.monotonic() - began < 10
        await asyncio.sleep(0.05)

        texts = [text for _, text in stage.lines[flood]]
        assert len(texts) < 100_000 and any("lines dropped" in text for text in texts)
        assert texts[0].startswith("line 0 ")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.proves("F30")
async def test_a_line_of_a_gibibyte_is_cut_in_bounded_memory(raw):
    async with playing() as stage:
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        key = stage.start("long_line", args={"megabytes": 1024, "raw": raw})
        await stage.end(key, seconds=60)
        await stage.until(lambda: len(stage.texts(key)) == 2)

        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 50_000
        assert stage.texts(key) == ["x" * LINE_BYTES_MAX + CUT, "after"]


def test_a_cutter_holds_at_most_one_line():
    cutter = LineSplitter("stdout")

    assert cutter.feed(b"one\ntw") == ["one"]
    assert cutter.feed(b"o\r\n\nthree") == ["two", ""]
    assert cutter.rest() == ["three"] and cutter.rest() == []
    assert cutter.feed(b"y" * (LINE_BYTES_MAX + 1)) == ["y" * LINE_BYTES_MAX + CUT]
    assert cutter.feed(b"y" * 1_000_000) == [] and cutter.feed(b"yy\nnext\n") == ["next"]


def test_a_flow_lets_bursts_pass_and_counts_what_it_drops():
    flow = ByteRateLimit()
    passed = sum(flow.admit(1_000, now_ms=1_000) for _ in range(10_000))

    assert 1_900 < passed < 2_000 and flow.dropped == 10_000 - passed
    assert str(10_000 - passed) in flow.note() and flow.note() == ""
    assert flow.admit(1_000, now_ms=2_000)
