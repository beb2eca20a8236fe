"""The filters of `tickwork runs`, and of commands that act on all runs that fit."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit

State = Literal["pending", "active", "waiting", "paused", "completed", "failed", "cancelled"]
_TIMES = {
    "since": "submitted_from", "until": "submitted_to", "started_since": "started_from",
    "started_until": "started_to", "ended_since": "ended_from", "ended_until": "ended_to",
}  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """Which runs: those that fit all of these."""

    workflow: str = ""
    "Only runs of this workflow."
    state: Annotated[tuple[State, ...], Parameter(negative="")] = ()
    "Only runs in this state; repeat for several states."
    schedule: str = ""
    "Only runs that this schedule started."
    tag: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Only runs with this tag; repeat for runs that have all of several tags."
    where: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "Only runs with this value of an input that their workflow declares searchable: customer=ed; repeat for several."
    app_version: str = ""
    "Only runs pinned to this version, as version or application@version."
    error: str = ""
    "Only failed runs whose error has all of these words."
    since: str = ""
    "Only runs submitted at or after this time: 2026-01-31T06:00:00Z, or how long ago: 24h."
    until: str = ""
    "Only runs submitted before this time."
    started_since: str = ""
    "Only runs started at or after this time."
    started_until: str = ""
    "Only runs started before this time."
    ended_since: str = ""
    "Only runs ended at or after this time."
    ended_until: str = ""
    "Only runs ended before this time."

    @property
    def given(self) -> bool:
        return any(vars(self).values())

    def filters(self) -> dict[str, Any]:
        """The filters of `client.list`, without the workflow."""
        chosen = {name: vars(self)[name] for name in ("state", "schedule", "tag", "error")}
        times = {name: vars(self)[option] for option, name in _TIMES.items()}
        pairs = [pair.partition("=") for pair in self.where]
        for name, middle, value in pairs:
            if not (name and middle and value):
                raise CommandExit(Exit.USAGE, f"--where takes name=value, not {name + middle + value!r}")
        where = {name: value for name, _, value in pairs}
        every = {**chosen, **times, "where": where, "version": self.app_version}
        return {name: value for name, value in every.items() if value}


SEARCH = SearchOptions()
