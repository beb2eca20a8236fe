"""What routes of actions have in common: the key of a request, the response without content, the reason of a person."""

from tickwork.api.http.route import BodySpec, ResponseSpec
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire

REASON_CHARACTERS_MAX = 1_000
KEY = ("Idempotency-Key", "The same key returns the same run for at least 24 hours.")
DONE = {204: ResponseSpec(None, (), "Done, and durable.")}
REASON = BodySpec(wire.Reason, optional=True, bytes_max=64 * 1024)


def checked_text(text: str, *, path: str = "reason") -> str:
    """Return a text of a person, checked for length, because it goes into the journal."""
    if len(text) > REASON_CHARACTERS_MAX:
        raise Refused("text_too_long", f"at most {REASON_CHARACTERS_MAX} characters", path=path)
    return text
