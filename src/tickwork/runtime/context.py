"""What the services of an engine share.

A command returns when its tick is durable. A view waits in `until_durable` until the tick that it shows is durable.
"""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tickwork.core.base.errors import Refused, Unavailable
from tickwork.core.base.names import is_run_id
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.zones import Zones
from tickwork.core.definition.plan import Plan
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CommandResult
from tickwork.core.state.state import QueuedCommand, State, Tenant
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.ids import Ids
from tickwork.ports.store import Payload, RunRow, Store, StoreFull
from tickwork.ports.system import Clock
from tickwork.protocol.partition_messages import CommandOutcome
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.metrics import EngineMetrics
from tickwork.runtime.partition.clock_monitor import ClockMonitor
from tickwork.runtime.partition.input_queue import InputBatch
from tickwork.runtime.storage.archive import ArchiveReader
from tickwork.runtime.storage.logs import LogStore
from tickwork.runtime.storage.payloads import PayloadStore
from tickwork.runtime.storage.request_checks import check_writable

if TYPE_CHECKING:
    from tickwork.runtime.partition.partition import Partition

PARTITION = 0  # the only one where there is no cluster
BACKLOG_MAX = 200_000  # inputs that wait for their tick; more are refused before they are accepted
LEFT_MAX = 200_000  # ended runs that wait to be written, about 120 MB; then nothing new is accepted
_PATH = re.compile(r"[a-z_]+([.\[][^\s:]*)?")


class Neighbours(Protocol):
    """The other partitions of a cluster, as one of them sees them."""

    def partitions_of(self, tenant: str) -> tuple[int, ...]:
        """Those over which the tenant is spread, its home first."""

    async def deliver(self, partition: int, sender: int, commands: Sequence[QueuedCommand]) -> list[CommandOutcome]:
        """What that partition decided about each of them. Raises `Unavailable` where that is not known."""


class EngineContext:
    """What the services of one engine share: store, clock, ids, alarms, and the live partition.

    `command` and `post` hand inputs to the partition, and refuse them while the engine starts, drains or has no space.
    """

    def __init__(
        self, *, store: Store, artifacts: Artifacts, clock: Clock, ids: Ids, zones: Zones, number: int, shared: bool
    ) -> None:
        self.number = number  # of the partition
        self.store_id = ""  # identity of the store, known once it is open; where nodes share it, the node says it
        self.shared = shared  # the store is shared: the creator of this engine opens and closes it
        self.store = store
        self.clock = clock
        self.ids = ids
        self.zones = zones
        self.alarms = Alarms(clock)
        self.partition: Partition | None = None  # from the start on
        self.clock_monitor: ClockMonitor | None = None
        self.neighbours: Neighbours | None = None  # None: this partition is the only one
        self.draining = False
        self.artifacts = artifacts
        self.archives = ArchiveReader(store, artifacts)
        self.payloads = PayloadStore(store, artifacts, children=self.archives.read_children)
        self.logs = LogStore(store, artifacts, clock, self.archives)
        self.metrics = EngineMetrics()
        self.editing = asyncio.Lock()  # requests that edit schedules, endpoints, holidays or mailboxes
        self._jobs: set[asyncio.Task[None]] = set()

    @property
    def live(self) -> "Partition":
        assert self.partition is not None, "the engine is started"
        return self.partition

    @property
    def state(self) -> State:
        return self.live.machine.state

    @property
    def accepting(self) -> bool:
        live = self.partition
        return live is not None and not self.draining and live.failed is None and not live.writer.full

    @property
    def idle(self) -> bool:
        """Nothing is under way here: only an input, a worker or the next timer brings something to do."""
        return not self._jobs and self.live.idle

    @property
    def why_not_accepting(self) -> str:
        """The reason, for people, why no new work is accepted; "": it is accepted."""
        live = self.partition
        if live is None:
            return "the engine has not started yet"
        if self.draining:
            return "the engine is shutting down"
        if live.failed is not None:
            return f"the partition has stopped: {live.failed}"
        return "the store has no space left" if live.writer.full else ""

    def now_ms(self) -> int:
        """Real time, without clock steps that are held back."""
        return self.clock.wall_ms() if self.partition is None else self.partition.keeper.real.peek()

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def end_jobs(self) -> None:
        """Cancel the jobs started by `spawn`."""
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def command(
        self, request: inp.Input, payloads: list[Payload] | None = None, *, facts: bool = False
    ) -> CommandResult:
        check_writable(request)
        batch = self.post([request], payloads or [], facts=facts)
        await batch.done
        answer = batch.answers.get(0) or CommandResult(0)
        if answer.code:
            raise refusal_of(answer)
        return answer

    async def command_all(self, requests: list[inp.Input]) -> None:
        """Queue the inputs and return once their tick is durable. Raises the first refusal.

        Without inputs, wait as well: what made them unnecessary may not be durable yet.
        """
        for request in requests:
            check_writable(request)
        if requests:
            batch = self.post(requests, [], facts=False)
            await batch.done
            refused = next((answer for _, answer in sorted(batch.answers.items()) if answer.code), None)
            if refused is not None:
                raise Refused(refused.code, refused.message)
        await self.until_durable()

    def post(self, requests: list[inp.Input], payloads: list[Payload], *, facts: bool) -> InputBatch:
        live = self.live
        if self.draining:
            raise Unavailable(
                "the server is shutting down; try another node, or try again in a moment", retry_after_ms=1_000
            )
        if live.writer.full:
            raise StoreFull("the store has no space left; free some space and try again", retry_after_ms=5_000)
        if live.backlog > BACKLOG_MAX:
            raise Unavailable("too many requests wait already; try again in a moment", retry_after_ms=1_000)
        if live.write_behind.left_count > LEFT_MAX:
            raise Unavailable(
                "the store cannot keep up: too many ended runs wait to be written; try again in a moment",
                retry_after_ms=1_000,
            )
        return live.submit_inputs(requests, payloads, facts=facts)

    async def until_durable(self) -> None:
        """Until everything that a view was built from is durable."""
        live, seq = self.live, self.live.decided_seq
        while live.durable_seq < seq and live.failed is None:
            await live.next_commit()
        if live.durable_seq < seq:
            raise Unavailable(f"this partition has stopped: {live.failed}; try again", retry_after_ms=1_000)

    def is_home(self, tenant: str) -> bool:
        """Whether this partition is the tenant's home. Deletions go there last, and are repeated in the others."""
        return self.neighbours is None or self.neighbours.partitions_of(tenant)[0] == self.number

    def tenant(self, tenant: str) -> Tenant:
        owner = self.state.tenants.get(tenant)
        if owner is None:
            raise Refused("unknown_tenant", f"there is no tenant {shortened(tenant, 128)!r}", path="tenant")
        return owner

    def plan(self, tenant: str, workflow: str, definition: str = "") -> Plan:
        owner = self.tenant(tenant)
        plan = owner.versions.get(definition) if definition else owner.plans.get(workflow)
        if plan is None or plan.name != workflow:
            which = f" with the definition {definition}" if definition else ""
            raise Refused(
                "unknown_workflow", f"there is no workflow {shortened(workflow, 128)!r}{which}", path="workflow"
            )
        return plan

    async def ended_row(self, tenant: str, run_id: str) -> RunRow | None:
        left = self.live.write_behind.find_left(tenant, run_id)
        if left is not None:
            return left
        if not is_run_id(run_id):
            return None
        rows = await self.archives.find_runs(tenant, ids=[run_id])
        return rows[0] if rows else None


def refusal_of(answer: CommandResult) -> Refused:
    """Convert a refusal of the machine. The journal stores path and message as one text; callers get them apart."""
    path, _, message = answer.message.partition(": ")
    if not message or not _PATH.fullmatch(path):
        return Refused(answer.code, answer.message)
    return Refused(answer.code, message, path=path)
