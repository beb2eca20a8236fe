"""What else than a time makes a schedule fire: updates, alone or together.

An update is an event from outside, the end of a run, or new data of an asset. A `TriggerSpec` lists the updates that a
schedule listens to, and the groups that fire it: any group does, as soon as each source of it has had an update.
"""

from collections.abc import Iterator

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import KEY_CHARACTERS_MAX, check_name

STATES = ("completed", "failed", "cancelled", "any")
SOURCES_MAX = 50
GROUPS_MAX = 100
WHERE_CHARACTERS_MAX = 4_096


class UpdateSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One of event, ended and asset is given."""

    event: str = ""  # its name
    ended: str = ""  # the workflow whose run ends
    key: str = ""  # of an event; "": any
    where: str = ""  # CEL over the event; "": all
    state: str = "completed"  # of the run that ends
    asset: str = ""

    @property
    def subject(self) -> tuple[str, str]:
        """The kind of its updates, and their name."""
        if self.asset:
            return "asset", self.asset
        return ("event", self.event) if self.event else ("run", self.ended)

    @property
    def words(self) -> str:
        if self.asset:
            return f"asset {self.asset}"
        if self.ended:
            return f"a run of {self.ended} {'ends' if self.state == 'any' else f'is {self.state}'}"
        key = f" with the key {self.key!r}" if self.key else ""
        return f"event {self.event}{key}{f' where {self.where}' if self.where else ''}"


class TriggerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    sources: tuple[UpdateSource, ...]
    groups: tuple[tuple[int, ...], ...]  # any of these, of each all sources, by index
    coalesce: bool = False  # updates that wait become one run

    @property
    def words(self) -> str:
        groups = [" and ".join(self.sources[index].words for index in group) for group in self.groups]
        return "on " + "; or on ".join(groups)


def check_trigger(on: TriggerSpec, path: str) -> None:
    """Raises `Refused` with the field. What a filter says is checked where filters are known."""
    if not on.groups or not on.sources:
        raise Refused("bad_trigger", "say what it listens to: an event, or the end of a workflow", path=path)
    if len(on.sources) > SOURCES_MAX or len(on.groups) > GROUPS_MAX:
        message = f"a schedule listens to at most {SOURCES_MAX} sources in {GROUPS_MAX} groups"
        raise Refused("bad_trigger", message, path=path)
    named = {index for group in on.groups for index in group}
    if any(not group for group in on.groups) or named != set(range(len(on.sources))):
        raise Refused("bad_trigger", "each group names sources, and each source is in a group", path=path)
    for source, at in _at(on, path):
        given = [name for name in ("event", "ended", "asset") if getattr(source, name)]
        if len(given) != 1:
            raise Refused("bad_trigger", "a source has one of event, ended and asset", path=at)
        check_name(source.subject[1], path=f"{at}.{given[0]}", kind="workflow" if source.ended else given[0])
        _check_rest(source, at)


def _check_rest(source: UpdateSource, at: str) -> None:
    if source.state not in STATES:
        raise Refused("bad_trigger", f"state is one of {', '.join(STATES)}", path=f"{at}.state")
    if not source.event and (source.key or source.where):
        raise Refused("bad_trigger", "only an event has a key and a filter", path=at)
    if not source.ended and source.state != "completed":
        raise Refused("bad_trigger", "only the end of a run has a state", path=f"{at}.state")
    if len(source.key) > KEY_CHARACTERS_MAX:
        raise Refused("key_too_long", f"at most {KEY_CHARACTERS_MAX} characters", path=f"{at}.key")


def _at(on: TriggerSpec, path: str) -> Iterator[tuple[UpdateSource, str]]:
    """Each source with its path in the request."""
    for index, source in enumerate(on.sources):
        yield source, f"{path}[{index}]"
