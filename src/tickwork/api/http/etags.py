"""ETags of what people edit: a request with `If-Match` changes only what its sender has read.

An ETag follows from what was put, not from what happened to it since: a schedule that fires keeps its own. The routes
that edit such resources are handled one after the other by the owner of the tenant's home, so that no other request of
them comes between the comparison and the change. Publishing an application does not wait for them.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.response import Response, StreamingResponse

if TYPE_CHECKING:
    from tickwork.api.http.request import Request
    from tickwork.api.http.route import Route

IF_MATCH_CHARACTERS_MAX = 1_000
IF_MATCH = ("If-Match", "Change it only if this is still its ETag; `*`: only if it is there. Otherwise 412.")


def etag_of(put: bytes | None) -> str:
    """The ETag of what was put; "": there is none."""
    return "" if put is None else f'"{blake2b(put, digest_size=12).hexdigest()}"'


def of_several(_request: "Request") -> None:
    """A set of resources has no ETag, and is edited in turn with them."""


async def with_etag(request: "Request", route: "Route") -> Response | StreamingResponse:
    """Handle a request for a resource with an ETag."""
    if route.method == "GET":
        answer = await route.handler(request)
    else:
        async with request.engine.context.editing:
            _check(request.header(b"if-match"), etag_of(route.edited(request)))
            answer = await route.handler(request)
    etag = etag_of(route.edited(request))
    if answer.status < 300 and etag:
        answer.headers.append((b"etag", etag.encode()))
    return answer  # type: ignore[no-any-return]


def _check(wanted: str, etag: str) -> None:
    if not wanted:
        return
    if len(wanted) > IF_MATCH_CHARACTERS_MAX:
        message = f"If-Match has at most {IF_MATCH_CHARACTERS_MAX} characters: send the ETag that you read"
        raise HttpRefused(400, "malformed", message, path="header.if-match")
    listed = [entry.strip() for entry in wanted.split(",")]
    if (etag and "*" in listed) or (etag and etag in listed):
        return
    now = f"its ETag is {etag} now" if etag else "it is not there"
    raise HttpRefused(412, "changed", f"{now}: read it again, and change that", path="header.if-match")
