"""Which runs a list or a selection has: the filter, and the page that answers it.

A filter holds for a run or it does not, whatever a store keeps to find candidates: `fits` decides in the end, so an
index may be too wide and never too narrow. Words of an error are compared whole, without regard to case; a name in
camel case is also found by its parts.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from tickwork.ports.store import RunRow

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class TimeRange(NamedTuple):
    """From `from_ms` to before `to_ms`, in milliseconds since 1970. Both 0: any time."""

    from_ms: int = 0
    to_ms: int = 0

    @property
    def given(self) -> bool:
        return self.to_ms > 0

    def holds(self, at_ms: int) -> bool:
        """Whether this time is inside. Something that has not happened (0) is in no given range."""
        return not self.to_ms or (at_ms > 0 and self.from_ms <= at_ms < self.to_ms)


ANY_TIME = TimeRange()


class RunFilter(msgspec.Struct, frozen=True):
    tenant: str
    workflow: str = ""
    states: tuple[int, ...] = ()
    schedule: str = ""
    before: int = 0  # number; 0: from the newest
    limit: int = 50
    after: int = 0  # number; only runs above it
    tags: tuple[str, ...] = ()  # all of them
    fields: tuple[tuple[str, str], ...] = ()  # all of them, as `core.definition.run_labels` writes values
    version: str = ""  # of an application, as `version` or `application@version`
    error: str = ""  # words that are all in the error
    submitted: TimeRange = ANY_TIME
    started: TimeRange = ANY_TIME
    ended: TimeRange = ANY_TIME

    def fits(self, row: "RunRow") -> bool:
        wants = self.wants(row.tenant, row.workflow, row.state, row.schedule)
        return wants and self.covers(row.number) and (not self.narrow or self._fits_more(row))

    def covers(self, number: int) -> bool:
        return number > self.after and not (self.before and number >= self.before)

    def wants(self, tenant: str, workflow: str, state: int, schedule: str) -> bool:
        """Whether a run matches, whatever its number."""
        return (
            self.tenant == tenant
            and (not self.workflow or self.workflow == workflow)
            and (not self.states or state in self.states)
            and (not self.schedule or self.schedule == schedule)
        )

    @property
    def narrow(self) -> bool:
        """Whether the filter has more than what `wants` compares."""
        return bool(
            self.tags
            or self.fields
            or self.version
            or self.error
            or self.submitted.to_ms
            or self.started.to_ms
            or self.ended.to_ms
        )

    def in_time(self, submitted_ms: int, started_ms: int, ended_ms: int) -> bool:
        return self.submitted.holds(submitted_ms) and self.started.holds(started_ms) and self.ended.holds(ended_ms)

    def labelled(self, tags: tuple[str, ...], version: str) -> bool:
        """Whether a run with these tags, pinned to this version, matches."""
        return (not self.tags or all(tag in tags for tag in self.tags)) and (
            not self.version or self.version in versions_of(version)
        )

    def _fits_more(self, row: "RunRow") -> bool:
        return (
            self.in_time(row.submitted_ms, row.started_ms, row.ended_ms)
            and self.labelled(row.tags, row.version)
            and all(field in row.fields for field in self.fields)
            and (not self.error or query_words(self.error) <= words_of(row.error))
        )


class RunPage(NamedTuple):
    """Some runs, newest first. `before`: the next page has runs below this number; 0: there are none."""

    rows: "list[RunRow]"
    before: int = 0


def versions_of(pin: str) -> tuple[str, ...]:
    """Under which names a run pinned to `application@version` is found."""
    return (pin, pin.rpartition("@")[2]) if pin else ()


def query_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def words_of(text: str) -> frozenset[str]:
    """The words of an error, and the parts of names among them."""
    parts = [part.casefold() for part in _PART.findall(text)]
    return frozenset((*_WORD.findall(text.casefold()), *parts))
