"""Random runs, live, on their way to the store and in it: a search gives what a naive scan gives."""

import random

import msgspec
import pytest

from tickwork.core.calendar.durations import instant_ms
from tickwork.core.state import inputs as inp
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.runtime.services.bulk import checked_search
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import SystemClock, SystemIds

DOCUMENT = {
    "name": "order",
    "inputs": {"customer": {"type": "string"}},
    "search": ["customer"],
    "tags": ["orders"],
    "nodes": [{"kind": "task", "id": "a", "handler": "h"}],
}
TAGS, CUSTOMERS, ERRORS = ("a", "b", "c"), ("ed", "ann", "bo"), ("TimeoutError", "ValueError")


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request, tmp_path):
    store = (
        MemoryStore(MemoryDisk()) if request.param == "memory" else SqliteStore(tmp_path / "s.db", synchronous="OFF")
    )
    engine = Engine(store=store, artifacts=MemoryArtifacts(), clock=SystemClock(), ids=SystemIds(), owner="n")
    await engine.start()
    await engine.workflows.publish(wire.Publication(documents=(DOCUMENT,)), by="ann")
    yield engine
    await engine.stop()


async def every(engine, search, limit):
    """All pages of a search, whatever their size."""
    runs, before = [], 0
    while True:
        page, before = await engine.queries.runs(engine.queries.filter(search=search, limit=limit, before=before))
        runs += page
        if not before:
            return runs


def ms(text):
    return instant_ms(text, path="at")


def fits(run, customer, search):
    words = set(search.error.lower().split())
    return (
        (not search.state or run.state in search.state)
        and all(tag in run.tags for tag in search.tag)
        and all(customer == value for value in search.where.values())
        and all(word in run.error.lower() for word in words)
        and (not words or run.state == "failed")
        and (not search.submitted_from or ms(run.submitted_at) >= ms(search.submitted_from))
        and (not search.ended_to or (run.ended_at is not None and ms(run.ended_at) < ms(search.ended_to)))
    )


@pytest.mark.proves("S001-33")
@pytest.mark.parametrize("seed", range(3))
async def test_a_search_gives_what_a_naive_scan_gives(engine, seed, monkeypatch):
    chance = random.Random(seed)
    monkeypatch.setattr("tickwork.runtime.views.runs.LIVE_MAX", chance.choice([4, 20_000]))
    context = engine.context
    await context.command(inp.Offer("w", 1_000))
    customers: dict[str, str] = {}
    for _ in range(25):
        batch = [
            wire.Submission(
                workflow="order",
                inputs={"customer": chance.choice(CUSTOMERS) + "x" * chance.choice([0, 0, 2_000])},
                tags=tuple(tag for tag in TAGS if chance.random() < 0.3),
            )
            for _ in range(chance.randrange(1, 6))
        ]
        for made, submission in zip(await engine.runs.submit(batch, by="ann"), batch, strict=True):
            customers[made.id] = submission.inputs["customer"][:256]
        for task in list(context.state.tasks.values()):
            if chance.random() < 0.5 and task.worker is not None:
                error = chance.choice([*ERRORS, "", "", ""])
                report = (
                    inp.Failed(task.number, task.attempt, error, f"order {task.number}", permanent=True)
                    if error
                    else inp.Succeeded(task.number, task.attempt)
                )
                await context.command(report)
        search = wire.RunSearch(
            state=chance.choice([(), (), ("failed",), ("active", "completed")]),
            tag=tuple(tag for tag in ("orders", *TAGS) if chance.random() < 0.25),
            where=chance.choice([{}, {}, {"customer": chance.choice(CUSTOMERS)}, {"customer": "ed" + "x" * 254}]),
            error=chance.choice(["", "", "", "timeouterror", "order"]),
        )
        everything = await every(engine, wire.RunSearch(), 500)
        assert len(everything) == len(customers)
        some = chance.choice(everything)
        if chance.random() < 0.3:
            search = msgspec.structs.replace(search, submitted_from=some.submitted_at)
        if chance.random() < 0.3 and some.ended_at is not None:
            search = msgspec.structs.replace(search, ended_to=some.ended_at)
        found = [run.id for run in await every(engine, search, chance.choice([1, 3, 50]))]
        assert found == [run.id for run in everything if fits(run, customers[run.id], search)], search


async def test_a_selection_has_the_states_that_its_action_makes_sense_for():
    assert checked_search("cancel", wire.RunSearch(workflow="order")).state == (
        "pending",
        "active",
        "waiting",
        "paused",
    )
    assert checked_search("retry", wire.RunSearch(state=("failed", "completed"))).state == ("failed",)
