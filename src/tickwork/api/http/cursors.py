"""Cursors: the place behind a page, with a seal that binds it to the list that it is of.

Whoever changes a filter between two pages, or the cursor itself, would get neither of two lists whole; so route,
tenant, path and filters are in the seal. It keeps mistakes out and no secrets in: whoever makes a cursor of their own
sees no more than they could ask for anyway.
"""

from hashlib import blake2b

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.route import QueryParam
from tickwork.core.base.errors import Refused
from tickwork.runtime.context import TENANT

CURSOR = QueryParam(
    "cursor", "`next` of the page before, with the same filters.", characters_max=12_000
)  # 512 partitions
_NO_FILTERS = ("cursor", "limit")


def following(request: Request, position: str) -> str:
    """Return the cursor of the page that begins after this position; "" where there is none."""
    return f"{position}~{_seal(request, position)}" if position else ""


def place_of(request: Request) -> str:
    """Return the position after which the requested page begins; "" is the beginning."""
    cursor: str = request.query["cursor"]
    if not cursor or (request.inner and "~" not in cursor):
        return cursor
    position, _, seal = cursor.rpartition("~")
    if not position or seal != _seal(request, position):
        raise bad_cursor()
    return position


def number_of(request: Request) -> int:
    """The same for a list by number; 0: at the beginning. Its letter leaves room for another kind."""
    position = place_of(request)
    number = position[1:]
    if position and (position[0] != "b" or not (number.isascii() and number.isdigit() and len(number) <= 18)):
        raise bad_cursor()
    return int(number) if position else 0


def bad_cursor() -> Refused:
    message = "take the cursor from `next` of the page before, and ask for the same list"
    return Refused("bad_cursor", message, path="query.cursor")


def _seal(request: Request, position: str) -> str:
    filters = [(name, value) for name, value in sorted(request.query.items()) if name not in _NO_FILTERS]
    bound = msgspec.json.encode((TENANT, request.route.path, request.scope["path_params"], filters, position))
    return blake2b(bound, digest_size=6).hexdigest()
