"""A worker that does what it is told, through the application."""

import msgspec

from tickwork.protocol.worker_messages import (
    Call,
    Failed,
    Reply,
    Started,
    Succeeded,
    WorkerProfile,
    encoder,
    reply_decoder,
)

MSGPACK = {"content-type": "application/msgpack"}


def flow(name="greet", *nodes, **fields):
    return {"name": name, "nodes": list(nodes) or [task("hello")], **fields}


def task(name, handler="work", **fields):
    return {"kind": "task", "id": name, "handler": handler, **fields}


def log_line(at_ms, stream, text) -> bytes:
    return msgspec.json.encode({"at": at_ms, "stream": stream, "text": text}) + b"\n"


async def publish(http, *documents, schedules=None):
    answer = await http.put("/v1/workflows", json={"documents": list(documents), "schedules": schedules or {}})
    assert answer.status_code == 200, answer.text
    return answer.json()["workflows"]


async def submit(http, workflow="greet", **fields):
    answer = await http.post("/v1/runs", json={"workflow": workflow, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


class Worker:
    def __init__(self, http, name="w1", credit=10):
        self.http, self.name, self.credit = http, name, credit
        self.seq, self.session, self.specs = 0, f"session-{name}", {}

    async def call(self, *reports, wait_ms=0, **fields) -> Reply:
        self.seq += 1
        if self.seq == 1:
            fields = {"profile": WorkerProfile(queues=("default",), host="here", pid=7), "held": (), **fields}
        call = Call(self.name, self.session, self.seq, self.credit, wait_ms, reports, **fields)
        answer = await self.http.post(
            f"/v1/workers/{self.name}/exchange", content=encoder.encode(call), headers=MSGPACK, timeout=30
        )
        assert answer.status_code == 200, answer.text
        reply = reply_decoder.decode(answer.content)
        assert not reply.refused, reply.refused
        self.specs |= {spec.id: spec for spec in reply.specs}
        return reply

    async def work(self, count=1):
        """So many attempts, asked for until they are here."""
        found = []
        for _ in range(50):
            found += (await self.call(wait_ms=500)).work
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} attempts came")

    async def finish(self, *works, value=None):
        await self.call(*[Succeeded(work.task, work.attempt, msgspec.msgpack.encode(value)) for work in works])

    async def fail(self, *works, error="Boom", message="it broke", permanent=True):
        await self.call(*[Failed(work.task, work.attempt, error, message, permanent) for work in works])

    @property
    def sender(self):
        """Headers of its log lines."""
        return {
            "content-type": "application/x-ndjson",
            "x-tickwork-worker": self.name,
            "x-tickwork-session": self.session,
        }

    async def begin(self, work):
        await self.call(Started(work.task, work.attempt, 1))
