"""Cursors: the position after a page, signed and bound to its list and filters.

A client that changes a filter between two pages would get neither list completely, so route, tenant, path and filters
are signed too. The signature prevents mistakes and protects no secret: a forged cursor shows nothing that its maker
could not request anyway.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.route import QueryParam
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT

if TYPE_CHECKING:
    from tickwork.api.http.request import Request

CURSOR = QueryParam(
    "cursor", "`next` of the previous page, with the same filters.", characters_max=12_000
)  # 512 partitions
_NO_FILTERS = ("cursor", "limit")


def following(request: "Request", position: str) -> str:
    """Return the cursor of the page that begins after this position; "" where there is none."""
    return f"{position}~{_seal(request, position)}" if position else ""


def place_of(request: "Request") -> str:
    """Return the position after which the requested page begins; "" is the beginning."""
    cursor: str = request.query["cursor"]
    if not cursor or (request.inner and "~" not in cursor):
        return cursor
    position, _, seal = cursor.rpartition("~")
    if not position or seal != _seal(request, position):
        raise bad_cursor()
    return position


def number_of(request: "Request") -> int:
    """Read the cursor of a list by number; 0 is the beginning. The prefix leaves room for other kinds."""
    position = place_of(request)
    number = position[1:]
    if position and (position[0] != "b" or not (number.isascii() and number.isdigit() and len(number) <= 18)):
        raise bad_cursor()
    return int(number) if position else 0


def bad_cursor() -> Refused:
    message = "take the cursor from `next` of the previous page, with the same filters"
    return Refused("bad_cursor", message, path="query.cursor")


def _seal(request: "Request", position: str) -> str:
    filters = [(name, value) for name, value in sorted(request.query.items()) if name not in _NO_FILTERS]
    bound = msgspec.json.encode((TENANT, request.route.path, request.scope["path_params"], filters, position))
    return blake2b(bound, digest_size=6).hexdigest()
