"""Lines that workers send of their attempts: accepted from the session that holds the attempt, and stored."""

from typing import TYPE_CHECKING

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import LogPiece
from tickwork.runtime.context import EngineContext

if TYPE_CHECKING:
    from tickwork.runtime.services.queries import QueryService
    from tickwork.runtime.workers.sessions import WorkerSessions


class LogService:
    """Decides who may append lines to the log of an attempt. Reading needs no permission: see `context.logs`."""

    def __init__(self, context: EngineContext, workers: "WorkerSessions", queries: "QueryService") -> None:
        self._context, self._workers, self._queries = context, workers, queries

    async def append(self, piece: LogPiece) -> None:
        """Lines of an attempt, from the session that holds it or held it until it ended."""
        if piece.store and self._context.store_id and piece.store != self._context.store_id:
            raise Refused("other_store", "these lines belong to a task of another store")
        self._queries.check_number(piece.task)
        if not piece.worker or not piece.session:
            raise Refused("not_holder", "log lines must name the worker that sends them, and its session")
        if not self._workers.holds(piece) and not await self._held_before(piece):
            message = f"worker {piece.worker[:128]!r} does not hold attempt {piece.attempt} of task {piece.task}"
            raise Refused("not_holder", f"{message}; its holder sends the lines")
        self._workers.check_session(piece)
        logs = self._context.logs
        await logs.append(piece.task, piece.attempt, chunk=piece.chunk, first=piece.first, data=piece.lines)

    async def _held_before(self, piece: LogPiece) -> bool:
        """As the record of its run says: the server was restarted since, or much has ended since."""
        since_ms = self._workers.session_since_ms(piece.worker)
        attempts = await self._queries.attempts(piece.task, piece.run)

        return any(
            attempt.attempt == piece.attempt and attempt.worker == piece.worker and attempt.dispatched_ms >= since_ms
            for attempt in attempts
        )
