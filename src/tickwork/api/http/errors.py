"""What went wrong, as RFC 9457 problem details: a stable code for programs, a sentence for people.

The error tree is sorted by what the caller does next, and so are the statuses. Nothing of the inside gets out:
an unexpected error is logged under a number, and the caller gets the number.
"""

import logging
from http import HTTPStatus

import msgspec

from tickwork.api.http.response import PROBLEM, Header, Response
from tickwork.core.base.errors import Conflict, InvalidDefinition, OutcomeUnknown, Refused, Unavailable
from tickwork.core.base.shortened import shortened
from tickwork.ports.store import StoreFull
from tickwork.protocol import http_models as wire

log = logging.getLogger("tickwork.api")

DETAIL_CHARACTERS_MAX = 2_000
STATUS_OF_CODE = {
    "already_decided": 409,
    "already_submitted": 409,
    "catching_up": 409,
    "exists": 409,
    "four_eyes": 403,
    "illegal_move": 409,
    "in_use": 409,
    "json_too_large": 413,
    "key_in_use": 409,
    "key_reused": 409,
    "log_chunk_too_large": 413,
    "mailbox_full": 409,
    "mailbox_not_empty": 409,
    "mailbox_spread": 409,
    "lookup_failed": 500,
    "not_entitled": 403,
    "not_holder": 403,
    "not_waiting": 409,
    "other_store": 409,
    "overloaded": 429,
    "quarantined": 500,
    "resume_first": 409,
    "run_ended": 409,
    "still_running": 409,
    "selection_changed": 409,
    "too_many_bulks": 429,
    "too_many_events": 429,
}
NOT_FOUND_BY_BODY = frozenset(
    ("unknown_field", "unknown_input", "unknown_parameter", "unknown_reference", "unknown_setting", "unknown_zone")
)
RETRY_AFTER_S = 1
OUTCOME_UNKNOWN = 504  # the only status after which the request may have been done

_encoder = msgspec.json.Encoder()


class HttpRefused(Refused):
    """A request that is invalid as HTTP, independent of its meaning."""

    def __init__(
        self, status: int, code: str, message: str, *, path: str = "", headers: tuple[Header, ...] = ()
    ) -> None:
        super().__init__(code, message, path=path)
        self.status = status
        self.headers = headers


def status_of(code: str) -> int:
    if code.startswith("unknown_") and code not in NOT_FOUND_BY_BODY:
        return 404
    if code.startswith("json_") and code not in STATUS_OF_CODE:
        return 400
    return STATUS_OF_CODE.get(code, 422)


def problem(
    status: int,
    code: str,
    detail: str,
    *headers: Header,
    path: str = "",
    problems: tuple[dict[str, str], ...] = (),
    request_id: str = "",
) -> Response:
    body = wire.Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=_shown(detail),
        path=_shown(path),
        problems=problems,
        request_id=request_id,
    )
    return Response(status, _encoder.encode(body), PROBLEM, *headers)


def answer_to(error: Exception, request_id: str) -> Response:
    """Return the response for an exception of a handler."""
    match error:
        case HttpRefused():
            return problem(error.status, error.code, error.message, *error.headers, path=error.path)
        case InvalidDefinition():
            listed = tuple(
                {"path": _shown(entry.path), "code": entry.code, "message": _shown(entry.message)}
                for entry in error.problems
            )
            return problem(422, error.code, error.message, path=error.path, problems=listed)
        case Refused():
            return refusal(error.code, error.message, path=error.path)
        case Conflict():
            return problem(409, error.code, str(error))
        case StoreFull():
            return problem(507, error.code, str(error), retry_after(error.retry_after_ms))
        case OutcomeUnknown():  # no Retry-After: that would invite clients without a key to do it twice
            return problem(OUTCOME_UNKNOWN, error.code, str(error))
        case Unavailable():
            return problem(503, error.code, str(error), retry_after(error.retry_after_ms))
        case _:
            log.error("request %s failed", request_id, exc_info=error)
            return problem(
                500,
                "internal",
                f"the server failed; its log has the reason under {request_id}",
                (b"x-request-id", request_id.encode()),
                request_id=request_id,
            )


def refusal(code: str, message: str, *, path: str = "") -> Response:
    """Return the field of the request: the core's `run_id` is `run` in paths."""
    status, path = status_of(code), "run" if path == "run_id" else path
    headers = (retry_after(RETRY_AFTER_S * 1_000),) if status == 429 else ()
    return problem(status, code, message, *headers, path=path)


def retry_after(ms: int) -> Header:
    return b"retry-after", str(max(1, -(-ms // 1_000))).encode()


def _shown(text: str) -> str:
    """Return text that UTF-8 can encode: messages may quote user text, with half of a surrogate pair."""
    return shortened(text, DETAIL_CHARACTERS_MAX).encode("utf-8", "replace").decode()
