"""`why` reads the rows that concern a run, and answers as a fold of the whole journal would."""

import asyncio
from collections import Counter

import msgspec
import pytest

from driver import Driver
from histories import History
from tickwork.core.explain.run_history import why
from tickwork.core.state import inputs as inp
from tickwork.journal import export, stream
from tickwork.journal.record import GENESIS, Row, unseal
from tickwork.journal.replay import Recorder
from tickwork.ports.artifacts import digest_of
from tickwork.ports.store import RunFilter
from tickwork.ports.store_maintenance import JOURNAL, ArchiveObject
from tickwork.runtime.partition.write_behind import WriteBehind, attempts_decoder
from tickwork.runtime.storage.archive import ArchiveReader
from tickwork.runtime.storage.run_records import rest_of
from tickwork.runtime.views.run_history import HistoryReader, facts_of_ended, facts_of_live, ticks_of
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore


def at_once(work):
    """What a store in memory does takes no time."""
    with pytest.raises(StopIteration):
        work.send(None)


class Observed:
    """A driver whose rows go to a store, as an owner brings them there."""

    def __init__(self, driver: Driver, rng) -> None:
        self.driver, self.rng = driver, rng
        self.store, self.artifacts = MemoryStore(MemoryDisk()), MemoryArtifacts()
        self.write_behind = WriteBehind(driver.state)
        self.write_behind.epoch = 1
        self.recorder, self.rows = Recorder(), []
        apply = driver._apply
        at_once(self._begin())

        def observed(tick, asked):
            outcome = apply(tick, asked)
            at_once(self._observe(outcome.tick, list(asked)[: outcome.taken], outcome.events))
            return outcome

        driver._apply = observed

    async def _begin(self) -> None:
        await self.store.open()
        await self.store.claim(0, owner="n1", settings=b"")

    async def _observe(self, tick, inputs, events) -> None:
        sealed = self.recorder.row(tick, inputs, events)
        self.rows.append(sealed)
        await self.store.commit(0, sealed, [], epoch=1)
        self.write_behind.observe(inputs, events)
        draw = self.rng.random()
        if draw < 0.1:
            await self._write(self.write_behind.rows())
        elif draw < 0.2 and not self.write_behind.window.reopened:
            rows = self.write_behind.ended_rows()
            watermark = (await self.store.read_head(0)).watermark
            await self.store.write_rows(0, rows, epoch=1, through=watermark, head=b"")
            self.write_behind.written()

    async def _write(self, rows) -> None:
        await self.store.write_rows(0, rows, epoch=1, through=self.rows[-1].seq, head=self.rows[-1].hash)
        self.write_behind.written()

    async def archive(self, *, through: int) -> None:
        """The journal up to a row leaves the store, in pieces."""
        cut = await self.store.journal_cut(0)
        while cut < through:
            rows = self.rows[cut : min(cut + self.rng.randint(1, 20), through)]
            before = self.rows[cut - 1].hash if cut else GENESIS
            head = export.ExportHead(self.driver.settings, cut, before, rows[-1].seq, rows[-1].hash)
            data = b"".join([export.write_head(head), *stream.write(rows)])
            await self.artifacts.put(data)
            piece = ArchiveObject(
                digest_of(data), JOURNAL, 0, rows[0].seq, rows[-1].seq, len(rows), len(data), before, rows[-1].hash,
                rows[-1].tick, 0, 0, 0,
            )  # fmt: skip
            await self.store.drop_journal(0, piece, epoch=1)
            cut = rows[-1].seq

    async def why(self, tenant: str, run_id: str):
        state, write_behind, clock = self.driver.state, self.write_behind, self.driver.settings.clock
        archives = ArchiveReader(self.store, self.artifacts)
        run = state.tenants[tenant].runs.get(run_id)
        if run is not None:
            facts, of_run, attempts = (
                facts_of_live(run),
                (run.submitted, run.started),
                write_behind.attempts_of(run.number),
            )
        else:
            row = write_behind.find_left(tenant, run_id)
            if row is None:
                [row] = await self.store.find_runs(tenant, ids=[run_id])
            facts, rest = facts_of_ended(row, state), rest_of(row)
            of_run = (rest.submitted, rest.started, clock.tick_at(row.ended_ms))
            attempts = attempts_decoder.decode(row.attempts) if row.attempts else []
        for data in await self.store.read_attempts(facts.number):
            attempts += attempts_decoder.decode(data)
        last = self.rows[-1]
        reader = HistoryReader(state, write_behind, self.store, archives, partition=0, through=last.seq, tick=last.tick)
        self.reader = reader
        return await reader.read(facts, ticks_of(clock, run=of_run, attempts=attempts), [one.task for one in attempts])

    def journal(self) -> list[Row]:
        head, rows = GENESIS, []
        for sealed in self.rows:
            rows.append(unseal(sealed, head))
            head = sealed.hash
        return rows


def plain(story):
    return msgspec.to_builtins(story)


async def compare(observed: Observed, journal: list[Row], seed) -> Counter[str]:
    """What the histories are made of, once both ways give the same."""
    count: Counter[str] = Counter()
    for tenant, run_id in await known_runs(observed):
        expected = why(journal, tenant, run_id, settings=observed.driver.settings)
        found = await observed.why(tenant, run_id)
        assert found is not None, f"seed {seed}, run {run_id} of {tenant}"
        for name in found.__struct_fields__:
            assert getattr(found, name) == getattr(expected, name), f"seed {seed}, run {run_id} of {tenant}: {name}"
        count.update(entry.what for entry in found.entries)
        count.update(
            {"runs": 1, "visits": len(found.visits), "after": sum(e.tick > found.ended > 0 for e in found.entries)}
        )
    return count


async def known_runs(observed: Observed) -> list[tuple[str, str]]:
    tenants = observed.driver.state.tenants
    live = [(tenant.id, run.id) for tenant in tenants.values() for run in tenant.runs.values()]
    stored = [
        row for tenant in tenants for row in (await observed.store.list_runs(RunFilter(tenant, limit=10_000))).rows
    ]
    return [*live, *{(row.tenant, row.id): None for row in (*observed.write_behind.recently_left(), *stored)}]


class Lived(History):
    """Whoever submits an id again that an ended run has gets the fact beside it, as the shell looks it up."""

    def submit(self):
        [request] = super().submit()
        if len(request.run_id) < 3:  # an id that comes again; the driver's records know no tenants
            request = msgspec.structs.replace(request, run_id=f"{request.tenant}-{request.run_id}")
        record = self.driver.records.get(request.run_id)
        if record is not None:
            terms = request.terms or inp.SubmitOptions(body="other")
            known = inp.KnownRun(record.run_id, record.body, record.submitted)
            request = msgspec.structs.replace(request, terms=msgspec.structs.replace(terms, known=known))
        return [request]

    def bring_back(self):
        """Not what lives: the shell would find no record of it."""
        live = {run.id for run in self.driver.state.runs.values()}
        requests = super().bring_back()
        records = [getattr(one, "record", None) for one in requests] + [
            record for one in requests for record in getattr(one, "records", ())
        ]
        return [] if any(record is not None and record.run_id in live for record in records) else requests


@pytest.mark.parametrize("seed", range(12))
def test_the_rows_of_a_run_tell_what_the_whole_journal_tells(seed):
    history = Lived(seed)
    history.check = False
    observed = Observed(history.driver, history.rng)
    history.run(120)
    journal = observed.journal()

    async def check():
        watermark = (await observed.store.read_head(0)).watermark
        await observed.archive(through=max(0, watermark - 5))
        return await compare(observed, journal, seed)

    count = asyncio.run(check())
    print(sorted(count.items()))
    assert count["runs"] > 20
