"""Attempts that wait for a free thread, in fair order: runs take turns, and each run gives its attempts as they came.

A worker requests attempts in advance, and a wide map may have hundreds of them here. A run that has one waits for one
attempt of each other run, however many those have.
"""

from collections import deque
from collections.abc import Container, Iterator

from tickwork.protocol.worker_messages import AttemptJob, NodeSpec

Entry = tuple[AttemptJob, NodeSpec]


class AttemptLine:
    def __init__(self) -> None:
        self._by_run: dict[str, deque[Entry]] = {}  # the run whose turn is next comes first

    def __bool__(self) -> bool:
        return bool(self._by_run)

    def __iter__(self) -> Iterator[AttemptJob]:
        return (work for entries in self._by_run.values() for work, _ in entries)

    def add(self, work: AttemptJob, spec: NodeSpec) -> None:
        self._by_run.setdefault(work.run_id, deque()).append((work, spec))

    def take(self, *, without: Container[int]) -> Entry | None:
        """The next attempt, but none of these tasks. Its run comes last from now on."""
        for run, entries in self._by_run.items():
            index = next((at for at, (work, _) in enumerate(entries) if work.task not in without), None)
            if index is None:
                continue
            entry = entries[index]
            del entries[index]
            del self._by_run[run]
            if entries:
                self._by_run[run] = entries
            return entry
        return None

    def remove(self, task: int, attempt: int) -> bool:
        """False: it does not wait here."""
        for run, entries in self._by_run.items():
            for entry in entries:
                if (entry[0].task, entry[0].attempt) == (task, attempt):
                    entries.remove(entry)
                    if not entries:
                        del self._by_run[run]
                    return True
        return False

    def clear(self) -> None:
        self._by_run.clear()
