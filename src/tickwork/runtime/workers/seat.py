"""What a node remembers of a worker between two calls."""

import asyncio

from tickwork.core.state.inputs import Offer
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.protocol.worker_messages import AttemptJob, Call, NodeSpec, Reply, WorkerProfile
from tickwork.runtime.workers.session_attempts import Pair, SessionAttempts


class WorkerSession:
    """One worker, as this node knows it."""

    def __init__(self, worker: str, session: str, heard_ms: int) -> None:
        self.worker = worker
        self.session = session
        self.heard_ms = heard_ms
        self.closed_ms = 0  # when its connection broke; 0: it has not
        self.peer = ""
        self.calls: dict[str, int] = {}  # by connection: calls that are not answered yet
        self.seq = 0
        self.reply: asyncio.Future[Reply] | None = None  # to its latest call
        self.offer: Offer | None = None
        self.profile = WorkerProfile()
        self.mail: list[tuple[AttemptJob, NodeSpec]] = []
        self.stops: list[Pair] = []
        self.specs: dict[int, None] = {}  # that this session has been told
        self.woken: asyncio.Future[None] | None = None
        self.waiting: asyncio.Future[Reply] | None = None  # the reply to the call that waits for mail
        self.reporting = 0  # calls whose reports are not durable yet
        self.via = ""  # the node that stands for it
        self.deals = False  # its credit is dealt out to partitions, by that node or by itself
        self.start, self.introduced = "", 0  # which start of the worker it is, and how late that introduced itself
        self.known = SessionAttempts("")  # with the attempts that ended in it
        self.told_wanted = 0
        self.process = ""  # of a worker that has not been heard since this node took the partition up

    @property
    def credit(self) -> int:
        return self.offer.credit if self.offer is not None else 0

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


def offer_of(seat: WorkerSession, credit: int) -> Offer:
    profile = seat.profile
    return Offer(
        seat.worker,
        credit,
        profile.queues,
        profile.labels,
        profile.slots,
        profile.cpu_milli,
        profile.memory_mb,
        profile.gpu,
        "" if is_broker_worker(seat.worker) else seat.start,  # what is on a lane stays there, whoever keeps the lane
        profile.process,
    )


def introduced(call: Call) -> tuple[str, int]:
    """Which start of a worker it is, and how far that was when it introduced itself, here or to whoever deals its
    credit out: where it introduced itself last, it is."""
    start, _, more = call.session.partition("@")
    if not call.via and not call.share:
        return start, call.seq
    count = more.partition(".")[0]
    return start, int(count) if count.isascii() and count.isdigit() and len(count) < 18 else 0
