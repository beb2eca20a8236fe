"""Checks of requests before they become inputs.

A refused input is journalled like any other, so every input that passes must be encodable and small: an input that
cannot be encoded would stop its partition.
"""

from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import KEY_CHARACTERS_MAX
from tickwork.core.base.strict_json import check as check_plain
from tickwork.core.base.values import pack
from tickwork.core.decide.commands.setup_commands import DELAY_MS_MAX
from tickwork.core.definition.run_labels import check_tags
from tickwork.core.state.inputs import Input
from tickwork.protocol import http_models as wire

COMMAND_BYTES_MAX = 4 * 1024 * 1024

_plain = msgspec.msgpack.Decoder()
_TEXTS = (
    ("id", "bad_run_id"), ("key", "key_too_long"), ("debounce", "key_too_long"), ("definition", "unknown_workflow"),
    ("queue", "unknown_queue"),
)  # fmt: skip
_NUMBERS = (
    ("delay_ms", "bad_delay"), ("at_most_ms", "bad_at_most"), ("priority", "bad_priority"),
    ("timeout_ms", "bad_timeout"),
)  # fmt: skip


def check_terms(submission: wire.Submission) -> None:
    """Refuse an input that cannot be encoded or is too large: refused inputs are journalled, too."""
    check_tags(submission.tags, path="tags")
    for field, code in _TEXTS:
        text = getattr(submission, field)
        if text and (len(text) > KEY_CHARACTERS_MAX or "\0" in text or not _encodes(text)):
            raise Refused(code, f"at most {KEY_CHARACTERS_MAX} characters of valid text", path=field)
    for field, code in _NUMBERS:
        number = getattr(submission, field)
        if number is not None and not 0 <= number <= DELAY_MS_MAX:
            raise Refused(code, f"a number from 0 to {DELAY_MS_MAX}", path=field)
    if submission.retry is not None:
        packed(msgspec.to_builtins(submission.retry), "retry")  # the machine checks its bounds


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_writable(request: Input) -> None:
    """A command that cannot be journalled is refused here: no tick could get past it."""
    try:
        size = len(msgspec.msgpack.encode(request))
    except (OverflowError, ValueError, TypeError) as error:
        raise Refused("bad_value", f"this cannot be stored: {error}") from None
    if size > COMMAND_BYTES_MAX:
        raise Refused("json_too_large", f"a command has at most {COMMAND_BYTES_MAX} bytes, this one has {size}")


def packed(value: Any, path: str) -> bytes:
    """Decoders let numbers through that MessagePack cannot carry."""
    try:
        return pack(value)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise Refused("bad_value", f"this cannot be stored: {error}", path=path) from None


def shown(data: bytes) -> Any:
    """Decode bytes from a worker. Anything that is not plain data is shown as a note."""
    try:
        plain = _plain.decode(data)
        check_plain(plain)
    except (ValueError, TypeError, RecursionError, Refused) as error:
        return f"[{len(data)} bytes that cannot be shown: {error}]"
    return plain
