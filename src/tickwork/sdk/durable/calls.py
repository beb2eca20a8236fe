"""What is needed to carry out each call of a durable function, and what its recorded outcome means to the function."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import HistoryEntry
from tickwork.sdk.durable.driver import OURS, Driver, Reply
from tickwork.sdk.durable.outcomes import CallFailed, Decision, FormResult, Message, StepFailed
from tickwork.sdk.durable.pending import Location
from tickwork.sdk.values.decode import Converter
from tickwork.sdk.values.encode import encode
from tickwork.sdk.values.signature_codec import result_of

TIMED_OUT = "timeout"
_decode = msgspec.msgpack.Decoder().decode


class StepCall(msgspec.Struct, frozen=True):
    """A step: what to call and how often to try."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    timeout_ms: int | None
    retry: tuple[int, int, int, int] | None  # retries, delay_ms, delay_max_ms, factor in percent
    cost: str = ""  # the field of its result that says what it cost

    def cost_of(self, result: Any) -> int:
        if not self.cost:
            return 0
        value = result.get(self.cost) if isinstance(result, Mapping) else getattr(result, self.cost, None)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            message = f"the result of a step with cost={self.cost!r} has a field {self.cost}, a whole number from 0"
            raise Refused("bad_cost", f"{message}; here it is {value!r}")
        return value

    def outcome(self, entry: HistoryEntry) -> Any:
        if entry.error:
            raise StepFailed(entry.name, entry.error, entry.message, position=entry.position)
        return result_of(self.function, value_of(entry))


class Sleep(msgspec.Struct, frozen=True):
    delay_ms: int = -1
    until_ms: int = 0

    def outcome(self, entry: HistoryEntry) -> None:  # noqa: ARG002 - of every kind
        return None


class EventCall(msgspec.Struct, frozen=True):
    key: str
    delay_ms: int

    def outcome(self, entry: HistoryEntry) -> Any:
        if entry.error == TIMED_OUT:
            return None
        value = value_of(entry)
        return {} if value is None else value


class RunCall(msgspec.Struct, frozen=True):
    inputs: bytes
    result: Callable[[Any], Any]

    def outcome(self, entry: HistoryEntry) -> Any:
        if entry.error:
            run_id, _, _ = entry.message.partition(": ") if entry.error.isupper() else ("", "", "")
            raise CallFailed(entry.name, entry.error, entry.message, run_id=run_id, position=entry.position)
        return self.result(value_of(entry))


class ApprovalCall(msgspec.Struct, frozen=True):
    terms: bytes
    delay_ms: int

    def outcome(self, entry: HistoryEntry) -> Decision:
        if entry.error == TIMED_OUT:
            return Decision(approved=False, timed_out=True)
        value = value_of(entry)
        return Decision(bool(value["approved"]), str(value.get("by", "")), str(value.get("comment", "")))


class FormCall(msgspec.Struct, frozen=True):
    terms: bytes
    delay_ms: int
    convert: dict[str, Converter]
    default: dict[str, Any]

    def outcome(self, entry: HistoryEntry) -> FormResult:
        if entry.error == TIMED_OUT:
            return FormResult(self._typed(self.default), timed_out=True)
        value = value_of(entry)
        by, comment = str(value.get("by", "")), str(value.get("comment", ""))
        if not value["approved"]:
            return FormResult(self._typed(self.default), by, comment, rejected=True)
        return FormResult(self._typed(value.get("values", {})), by, comment)

    def _typed(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: convert(values.get(name)) for name, convert in self.convert.items()}


class ReceiveCall(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    delay_ms: int
    driver: Driver

    def outcome(self, entry: HistoryEntry) -> Message | None:
        if entry.error == TIMED_OUT:
            return None
        name, _, update = entry.message.partition(" ")
        value = value_of(entry)
        return Message(name, {} if value is None else value, self._replier(name, update) if update else None)

    def _replier(self, name: str, update: str) -> Callable[[Any, str | None], None]:
        replied = False

        def reply(value: Any, refusal: str | None) -> None:
            nonlocal replied
            if replied:
                raise Refused("replied_already", f"the update {name} {update!r} has its reply already\n    {here()}")
            data = b"" if refusal is not None else encode(value, what=f"reply to {name}")
            self.driver.reply(Reply(update, data, refusal))
            replied = True

        return reply


def value_of(entry: HistoryEntry) -> Any:
    assert entry.value is None or isinstance(entry.value, bytes), "artifacts are read before the attempt begins"
    return None if entry.value is None else _decode(entry.value)


def here() -> Location:
    """The line of the user's code that calls."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)
