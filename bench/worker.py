"""What a worker costs: agent and children, per no-op task.

Run `bench/worker.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate.

The real agent and the real process executor with time limits, logs and sweeps on; only the server is missing:
its place takes a link that gives out work as far as credit goes and acknowledges results at once, without a
socket. What HTTP costs is not in these figures. CPU times as the kernel counts them for each process, in slices of
some thousand tasks; the speed of a shared machine changes within milliseconds, so the figure is the least of all
slices and the median is printed beside.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

SOURCE = str(Path(__file__).resolve().parents[1] / "src")
sys.path[:0] = [SOURCE]
os.environ["PYTHONPATH"] = (
    f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}"  # of children too: this tree, whatever is installed
)

import uvloop

from tickwork.executors.process import ProcessExecutor
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    Catalog,
    LogPiece,
    NodeSpec,
    Reading,
    ReadRequest,
    Reply,
    call_decoder,
    encoder,
    reply_decoder,
)
from tickwork.worker.agent import Agent

GATES = {"agent_us": 8.0, "child_us": 8.0}
WORDS = {
    "agent_us": "CPU of the agent per no-op task, µs",
    "agent_median_us": "the same, median of slices",
    "child_us": "CPU of the children per no-op task, µs",
    "child_median_us": "the same, median of slices",
    "tasks_per_s": "tasks per second, best slice",
}
SPEC = NodeSpec(1, "task", "flow", "node", "sha256:0", "noop", attempts_max=3, running_ms=60_000)
APP = "from tickwork.sdk.authoring.tasks import task\n\n\n@task(name='noop')\ndef noop() -> None:\n    pass\n"


class Here:
    """A server in the same process: an endless supply of work."""

    def __init__(self) -> None:
        self.task = self.ended = self.held = 0
        self.told = False
        self.cost_s = 0.0  # CPU spent here and in making messages, which is not the agent's
        self.most = 0

    async def call(self, call: Call) -> Reply:
        await asyncio.sleep(0)
        began = time.thread_time()
        call = call_decoder.decode(encoder.encode(call))
        self.ended += len(call.reports)
        self.held -= len(call.reports)
        room = max(0, call.credit - self.held)
        self.most = max(self.most, call.credit)
        works = tuple(
            AttemptJob(self.task + one, 1, 1, "acme", f"018f2c4e-7a1b-7000-8000-{self.task + one:012x}", b"\x80")
            for one in range(room)
        )
        self.task += room
        self.held += room
        data = encoder.encode(Reply(call.seq, works, () if self.told else (SPEC,)))
        self.told = True
        self.cost_s += time.thread_time() - began
        return reply_decoder.decode(data)  # reading it is the agent's work

    async def fetch(self, digest: str) -> bytes:
        raise AssertionError(digest)

    async def store(self, data: bytes) -> str:
        raise AssertionError(data)

    async def log(self, piece: LogPiece) -> None: ...

    async def read(self, request: ReadRequest) -> Reading:
        raise AssertionError(request)

    async def publish(self, catalog: Catalog) -> str:  # noqa: ARG002 - as a link has it
        return ""


class Clock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class Ids:
    def new(self) -> str:
        return "bench"

    def token(self) -> str:
        return "bench"


def cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def measure(slices: int, per_slice: int, processes: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder, "bench_app.py")
        app.write_text(APP)
        server, executor = Here(), ProcessExecutor(str(app), processes=processes)
        agent = Agent(server, [executor], clock=Clock(), ids=Ids(), name="w1")
        running = asyncio.create_task(agent.run())
        while server.ended < 20_000:
            await asyncio.sleep(0.05)
        pids = [child.pid for child in executor._pools["process"].children]
        agents, children, speeds = [], [], []
        for _ in range(slices):
            began, own, others = time.monotonic(), time.process_time() - server.cost_s, sum(map(cpu_s, pids))
            first = server.ended
            while server.ended < first + per_slice:
                await asyncio.sleep(0.02)
            tasks = server.ended - first
            agents.append((time.process_time() - server.cost_s - own) / tasks * 1e6)
            children.append((sum(map(cpu_s, pids)) - others) / tasks * 1e6)
            speeds.append(tasks / (time.monotonic() - began))
        running.cancel()
        await asyncio.wait([running])
    return {
        "agent_us": min(agents),
        "agent_median_us": statistics.median(agents),
        "child_us": min(children),
        "child_median_us": statistics.median(children),
        "tasks_per_s": max(speeds),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer slices")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 where a gate is missed")
    parser.add_argument("--processes", type=int, default=max(2, os.cpu_count() or 2))
    options = parser.parse_args()
    figures = uvloop.run(measure(10 if options.quick else 60, 5_000, options.processes))
    missed = [name for name, most in GATES.items() if figures[name] > most]
    if options.json:
        print(json.dumps({name: round(value, 2) for name, value in figures.items()} | {"missed": missed}))
    else:
        for name, value in figures.items():
            gate = f"   <= {GATES[name]:g}" + ("  MISSED" if name in missed else "") if name in GATES else ""
            print(f"{WORDS[name]:45} {value:12,.1f}{gate}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
