"""Updates that schedules listen to: what a schedule has heard and what of it waits for its run."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tickwork.core.base.values import Value, decode
from tickwork.core.calendar.durations import instant_text
from tickwork.core.definition.model import Definition

HEARD_MAX = 100  # updates of one source that wait for those of others; an older one joins the next run unseen
JOINED_MAX = 100  # updates of one run
JOINED_BYTES_MAX = 16_384  # of their payloads
LATEST_MAX = 20  # updates of one asset that are listed
PARTITIONS_MAX = 400  # of one asset that are listed
UPDATE = "update"  # the cause of a run in the record of fates, and how it began


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One update, as one schedule heard it."""

    source: int  # of its schedule, by index
    at_ms: int  # no two updates of a schedule have the same
    kind: str  # event, run, asset
    name: str  # of the event, the workflow, or the asset
    key: str = ""  # of the event; which part of the asset is new
    id: str = ""  # of the event, where its sender gave one; of the run that ended
    by: str = ""
    state: str = ""  # of the run that ended
    payload: Value = None
    inputs: Value = None  # all inputs of the run that it starts, where the payload is not inline
    source_task: str = ""  # which task of which run made the asset's data

    @property
    def partition(self) -> str:
        return self.key if self.kind == "asset" else ""


class Firing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An occurrence by updates, that waits for its run or its fate."""

    due_ms: int  # when the last of them came
    updates: tuple[Update, ...]  # by time


class AssetUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at_ms: int
    by: str
    source: str = ""  # the task that made it; "": somebody says so
    partition: str = ""
    details: Value = None
    id: str = ""


class Asset(msgspec.Struct, gc=False, eq=False):
    """Data by its name: what is known of it is when it was updated, and by whom."""

    number: int
    tenant: str
    name: str
    count: int = 0  # of all updates
    latest: tuple[AssetUpdate, ...] = ()  # oldest first
    partitions: tuple[tuple[str, int], ...] = ()  # each with its last update, the oldest first


class ScheduleUpdates(msgspec.Struct, gc=False, eq=False):
    last_ms: int = 0  # time of the latest update
    count: int = 0  # of all updates so far
    heard: tuple[Update, ...] = ()  # those that wait for updates of other sources
    waiting: tuple[Firing, ...] = ()

    @property
    def open(self) -> int:
        """How many updates have no fate yet."""
        return len(self.heard) + sum(len(firing.updates) for firing in self.waiting)


# ---- what a run learns of its causes

# An input of this name gets the payload of the event, the list of updates, or which part of the assets is new.
EVENT_INPUT, BECAUSE_INPUT, PARTITION_INPUT = "event", "because", "partition"
CAUSED_INPUTS = (EVENT_INPUT, BECAUSE_INPUT, PARTITION_INPUT)


def caused_inputs(definition: Definition, updates: Sequence[Update]) -> dict[str, Any]:
    """The inputs by which a run learns what started it, as far as its workflow has them."""
    given: dict[str, Any] = {}
    if BECAUSE_INPUT in definition.inputs:
        given[BECAUSE_INPUT] = [described(update) for update in updates]
    payload = next((update.payload for update in reversed(updates) if update.kind == "event"), None)
    if EVENT_INPUT in definition.inputs and payload is not None:
        given[EVENT_INPUT] = _plain(payload)
    partition = next((update.key for update in updates if update.kind == "asset" and update.key), "")
    if PARTITION_INPUT in definition.inputs and partition:
        given[PARTITION_INPUT] = partition
    return given


def described(update: Update) -> dict[str, Any]:
    """What `because` has of one update."""
    about = {"kind": update.kind, "name": update.name, "at": instant_text(update.at_ms), "by": update.by}
    key = "partition" if update.kind == "asset" else "key"
    more = {key: update.key, "id": update.id, "state": update.state, "source": update.source_task}
    about |= {name: text for name, text in more.items() if text}
    return about if update.payload is None else {**about, "payload": _plain(update.payload)}


def _plain(payload: Value) -> Any:
    return decode(payload, what="payload") if isinstance(payload, bytes) else None
