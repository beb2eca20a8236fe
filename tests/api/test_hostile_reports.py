"""Reports that no worker of ours sends, about attempts that their sender holds: none ends the server.

Durable functions, checkpoints, and what tasks ask of the engine with their results.
"""

import asyncio
import random

import msgspec
import pytest

from api.scripted_worker import MSGPACK, flow, publish, submit, task
from api.test_hostile import TEXTS, engine  # noqa: F401
from campaign import examples
from tickwork.protocol.worker_messages import WorkerProfile, reply_decoder

FUNCTION = flow("order", {"kind": "task", "id": "order", "handler": "order", "durable": True})
NUMBERS = [0, 1, 2, 5, -1, -2, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
ENDING = (1, 2, 9, 10)  # tags of reports that end an attempt
SMALL = [0, 0, 1, 2, 3, -1]


class HostileWorker:
    """It holds real attempts and says anything about them."""

    def __init__(self, http, seed: int) -> None:
        self.http, self.random = http, random.Random(seed)
        self.name, self.seq = f"hostile{seed}", 0

    async def call(self, *reports):
        self.seq += 1
        profile = msgspec.to_builtins(WorkerProfile(host="here", pid=7)) if self.seq == 1 else None
        held = [] if self.seq == 1 else None
        body = msgspec.msgpack.encode([self.name, f"s-{self.name}", self.seq, 6, 10, list(reports), held, profile])
        answer = await self.http.post(f"/v1/workers/{self.name}/exchange", content=body, headers=MSGPACK, timeout=20)
        if answer.status_code != 200:
            assert answer.status_code < 500, answer.text
            return ()
        return reply_decoder.decode(answer.content).work

    def number(self) -> int:
        return self.random.choice(NUMBERS if self.random.random() < 0.06 else SMALL)

    def text(self) -> str:
        found = self.random.choice(TEXTS) if self.random.random() < 0.1 else self.random.choice(["a", "order", "greet"])
        return found.encode("utf-8", "replace").decode()

    def value(self):
        pick = self.random.random()
        if pick < 0.4:
            return None
        if pick < 0.45:
            return self.random.randbytes(self.random.choice([0, 3, 2_000]))
        if pick < 0.5:
            return [self.text(), self.number(), None, self.random.choice(["artifact", "gather", "arguments"])]
        made = self.random.choice([{"n": 1}, [], "x" * 1_500, {"message": "m", "approvers": [self.text()]}, None])
        return msgspec.msgpack.encode(made)

    def numbers(self) -> list[int]:
        return [self.number() for _ in range(self.random.randrange(3))]

    def step(self) -> list:
        retry = self.random.choice([None, None, [1, 10, 1_000, 200], [self.number() for _ in range(4)]])
        words = [self.text(), self.text(), self.value(), self.random.choice(["", "", self.text()]), self.text()]
        return [self.number(), *words, self.number(), self.number(), self.number(), retry]

    def awaited(self) -> list:
        kind = self.random.choice(["sleep", "event", "call", "approval", "receive"] * 5 + [self.text()])
        times = [self.number(), self.number()] if self.random.random() < 0.1 else [10, 0]
        name = self.random.choice(["greet", "order", "a", self.text()])
        names = [self.random.choice(["a", self.text()]) for _ in range(self.random.randrange(3))]
        return [self.number(), kind, name, "d", *times, self.text(), self.value(), self.text(), names]

    def said(self) -> list:
        """Replies to updates, and published values."""
        pick = self.random
        replies = [[pick.choice(["k1", self.text()]), self.value(), pick.random() < 0.3, self.text()]]
        published = [[pick.choice(["v", self.text()]), self.text(), self.value()]]
        return [replies[: pick.randrange(2)], published[: pick.randrange(2)]]

    def report(self, number: int, attempt: int) -> list:
        pick = self.random
        head = [number, attempt]
        some = [self.step() for _ in range(pick.randrange(3))]
        versions = [[self.text(), self.number()] for _ in range(pick.randrange(2))]
        awaits = [self.awaited() for _ in range(pick.randrange(4))]
        match pick.randrange(9):
            case 0:
                return [1, *head, self.value(), self.number(), self.number(), self.commands()]
            case 1:
                bases = [self.text() for _ in range(pick.choice([0, 1, 100]))]
                flags = [pick.random() < 0.3, self.number(), self.number(), self.number(), self.number()]
                return [2, *head, self.text(), self.text(), *flags, bases, pick.random() < 0.2]
            case 2:
                return [3, *head, self.number()]
            case 3:
                return [4, *head, self.value() or b""]
            case 4:
                return [6, *head, self.number(), self.number(), self.text()]
            case 5:
                return [8, *head, some, versions, *self.said()]
            case 6 | 7:
                together = [self.numbers() for _ in range(pick.randrange(3))]
                return [9, *head, some, awaits, self.numbers(), together, versions, 0, 0, *self.said()]
        return [10, *head, self.value() or b"\xc0", 0, 0, self.numbers()]

    def commands(self):
        if self.random.random() < 0.5:
            return None
        start = {"workflow": self.text(), "id": self.text(), "key": self.text(), "delay": self.text()}
        start = {name: value for name, value in start.items() if self.random.random() < 0.6}
        give = {"event": self.text(), "key": self.text(), "payload": self.number()}
        made = [[1, {"workflow": "greet", **start}], [2, give]]
        return self.random.choice([msgspec.msgpack.encode(made[: self.random.randrange(3)]), self.value()])


async def written(engine) -> None:  # noqa: F811
    live = engine.context.live
    async with asyncio.timeout(30):
        while engine.context.partition.failed is None and live.writer.watermark < live.durable_seq:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("seed", range(examples(few=4, many=200)))
async def test_hostile_reports_about_held_attempts_do_not_end_the_server(http, engine, seed):  # noqa: F811
    await publish(http, FUNCTION, flow("greet", task("hello")))
    worker = HostileWorker(http, seed)
    await worker.call()
    held, begun = {}, []
    if seed % 2:  # events of this name are kept until a function takes them
        await http.put("/v1/mailboxes/a", json={"max": 3})
    for _ in range(60):
        if len(held) < 4:
            begun.append(await submit(http, worker.random.choice(["order", "order", "greet"])))
        for job in await worker.call():
            held[job.task] = job.attempt
        reports = [worker.report(*one) for one in worker.random.sample(sorted(held.items()), k=min(2, len(held)))]
        for tag, number, *_ in reports:
            if tag in ENDING:
                del held[number]
        for job in await worker.call(*reports):
            held[job.task] = job.attempt
        await http.post("/v1/events", json={"event": worker.random.choice(["a", "order"]), "payload": {}})
        update = {"payload": worker.number(), "key": worker.random.choice(["k1", "k2", ""]), "wait_ms": 0}
        await http.post(f"/v1/runs/{worker.random.choice(begun)}/updates/a", json=update)
        assert engine.context.partition.failed is None, reports
    runs = (await http.get("/v1/runs", params={"limit": 200})).json()["runs"]
    for run in runs:
        for part in ("", "/why", "/history", "/output"):
            answer = await http.get(f"/v1/runs/{run['id']}{part}")
            assert answer.status_code < 500, (part, answer.text)
        await http.post(f"/v1/runs/{run['id']}/cancel")
    await written(engine)

    assert engine.context.partition.failed is None
    assert not {"quarantined", "lookup_failed"} & set(engine.context.alarms.counts), engine.context.alarms.counts
