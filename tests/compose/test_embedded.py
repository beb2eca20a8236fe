"""The engine inside a user's process."""

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import tickwork as tw
from tickwork.compose.embedded_owner import OwnerRecord
from tickwork.ports.store import StoreInUse
from tickwork.stores.sqlite.file_lock import FileLock

EXAMPLES = Path(__file__).parents[2] / "examples"


@tw.task
def double(n: int) -> int:
    print(f"doubling {n}")
    return 2 * n


@tw.task
async def gently(n: int) -> int:
    await asyncio.sleep(0.01)
    return n + 1


@tw.workflow
def sums(n: int) -> int:
    return gently(double(n))


@tw.task
def large() -> str:
    return "x" * 200_000


@tw.task
def length(text: str) -> int:
    return len(text)


@tw.workflow
def sizes() -> int:
    return length(large())


@tw.task
def numbers(n: int) -> list[int]:
    return list(range(n))


@tw.task
def same(n: int) -> int:
    return n


@tw.task
def count(found: list[int]) -> int:
    return len(found)


@tw.workflow
def wide(n: int) -> int:
    return count(same.map(numbers(n)))


@tw.task(timeout="2s", retries=1, retry_delay="10ms")
def lingers(ctx: tw.Context, notes: str) -> None:
    try:
        with open(notes, "a") as file:
            file.write("begins\n")
        for _ in range(3_000):
            time.sleep(0.01)
    finally:
        time.sleep(0.3)  # longer than the next attempt would wait
        with open(notes, "a") as file:
            file.write(f"ends, cancelled={ctx.cancelled}\n")


@tw.workflow
def too_long(notes: str) -> None:
    lingers(notes)


def here(folder):
    """Only what this module declares: others are loaded into the same process."""
    return tw.embedded(workflows=[sums, sizes], data=folder)


def lines(client, run, count):
    """Logs travel on their own call, a moment behind the result."""
    deadline = time.monotonic() + 5
    while len(found := [line.text for line in client.logs(run)]) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_a_script_runs_its_workflow(tmp_path):
    with here(tmp_path) as client:
        run = client.submit(sums, n=20)

        assert client.result(run) == 41
        assert lines(client, run, 1) == ["doubling 20"]


def test_a_time_limit_stops_a_task_that_cleans_up_before_its_next_attempt_begins(tmp_path):
    notes = tmp_path / "notes"
    with tw.embedded(workflows=[too_long], data=tmp_path / "data") as client:
        run = client.submit(too_long, notes=str(notes))
        with pytest.raises(tw.RunFailed):
            client.result(run, timeout=20)
        deadline = time.monotonic() + 10
        while notes.read_text().count("ends") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)

    assert notes.read_text().splitlines() == ["begins", "ends, cancelled=True"] * 2


async def test_an_application_runs_its_workflow_on_its_own_loop(tmp_path):
    async with here(tmp_path) as client:
        run = await client.submit(sums, n=1)

        assert await client.result(run) == 3


@pytest.mark.proves("S001-28", "S001-77")
def test_values_larger_than_any_message_pass_from_task_to_task(tmp_path):
    with here(tmp_path) as client:
        assert client.result(client.submit(sizes)) == 200_000


def test_what_was_submitted_outlives_the_script(tmp_path):
    with here(tmp_path) as client:
        first = client.submit(sums, n=1, key="once")
        client.result(first)

    with here(tmp_path) as client:
        assert client.submit(sums, n=1, key="once").id == first.id


def test_a_folder_that_another_program_uses_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tickwork.compose.embedded_owner.UNKNOWN_S", 0.3)
    with here(tmp_path):
        pass
    left = OwnerRecord("http://127.0.0.1:9", 1, "of an earlier owner")
    (tmp_path / "owner").write_bytes(msgspec.json.encode(left))
    lock = FileLock.take(tmp_path / "tickwork.db.lock")
    try:
        with pytest.raises(StoreInUse, match="is in use"), here(tmp_path):
            pass
    finally:
        lock.release()


def test_a_second_engine_on_the_same_folder_uses_it_through_the_first(tmp_path):
    with here(tmp_path) as first:
        with here(tmp_path) as second:
            run = second.submit(sums, n=20)

            assert second.address == first.address
            assert first.result(run) == second.result(run) == 41
        assert first.result(first.submit(sums, n=1)) == 3


def test_the_second_goes_on_alone_when_the_first_ends(tmp_path):
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        url = first.enter_context(here(tmp_path)).address.url
        client = stack.enter_context(here(tmp_path))
        run = client.submit(sums, n=1)
        first.close()

        assert client.result(run) == 3
        assert client.result(client.submit(sums, n=20)) == 41
        assert client.address.url == url, "it answers where the first did"


@pytest.mark.slow
def test_the_script_of_the_examples(tmp_path):
    answer = subprocess.run(
        [sys.executable, str(EXAMPLES / "embedded_script.py")], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert (answer.returncode, answer.stdout) == (0, "1² + 2² + … + 10² = 385\n"), answer.stderr


async def test_the_application_of_the_examples(tmp_path, monkeypatch):
    import httpx2

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from embedded_asgi import app

    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as http:
            answer = await http.get("/greet", params={"name": "Ada"})

    assert answer.json()["answer"] == "Hello, Ada!"


@pytest.mark.slow
def test_runs_beside_a_wide_map_end_long_before_it(tmp_path):
    with tw.embedded(workflows=[wide, sums], data=tmp_path) as client:
        broad, began, waits = client.submit(wide, n=60_000), time.monotonic(), []
        while client.get(broad).state != "completed" and len(waits) < 10:
            submitted = time.monotonic()
            assert client.result(client.submit(sums, n=len(waits))) == 2 * len(waits) + 1
            waits.append(time.monotonic() - submitted)
            time.sleep(0.05)
        assert client.result(broad) == 60_000
        map_s = time.monotonic() - began

    assert len(waits) >= 3, f"the map took only {map_s:.2f} s, so nothing was measured"
    assert sorted(waits)[len(waits) // 2] < max(1.0, map_s / 10), (waits, map_s)
