"""Requests that can be written down and never be sent: asked where a document comes in.

A document that is read again was accepted once and stays so, whatever is asked of new ones: what stands here is no
part of `validation`, or a store with such a document could not be opened any more.
"""

from collections.abc import Iterator

from tickwork.core.base.errors import InvalidDefinition, Refused
from tickwork.core.definition.cel import HTTP_VARIABLES, Condition
from tickwork.core.definition.model import Definition, HttpNode, MapNode, Node, RepeatNode
from tickwork.core.definition.problems import Problems, join

# They say where a message ends and what becomes of its connection, which whoever sends it knows and nobody else.
_OF_THE_CONNECTION = frozenset((
    "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
    "upgrade",
))  # fmt: skip


def check_requests(definition: Definition) -> None:
    """Raises `InvalidDefinition` with every problem found."""
    problems = Problems()
    for position, node in enumerate(definition.nodes):
        for path, request in _requests(node, f"nodes[{position}]"):
            _check(request, path, problems)
    if problems:
        raise InvalidDefinition(problems.listed())


def header_reason(name: str, value: str) -> str:
    """Why a header cannot be sent; "" if it can."""
    if name.lower() in _OF_THE_CONNECTION:
        return "this header belongs to the connection and is set by whoever sends the request; leave it out"
    if not value.isascii() or value != value.strip():
        return "write the value of a header in ASCII, without spaces around it"
    return ""


def _requests(node: Node, path: str) -> Iterator[tuple[str, HttpNode]]:
    if isinstance(node, HttpNode):
        yield path, node
    elif isinstance(node, MapNode | RepeatNode):
        yield from _requests(node.body, f"{path}.body")


def _check(node: HttpNode, path: str, problems: Problems) -> None:
    seen: dict[str, None] = {}
    for name, value in node.headers.items():
        reason = header_reason(name, value)
        if not reason and name.lower() in seen:
            reason = "this header is given twice; large and small letters make no difference"
        if reason:
            problems.add(join(f"{path}.headers", name), "header", reason)
        seen[name.lower()] = None
    if node.success is not None:
        _check_success(node.success, f"{path}.success", problems)


def _check_success(text: str, path: str, problems: Problems) -> None:
    try:
        gives = Condition.compile(text, allowed=HTTP_VARIABLES).gives
    except Refused as refused:
        problems.add(path, "condition", refused.message)
        return
    if gives not in ("BOOL", "DYN"):  # of what an answer holds, only the answer tells
        problems.add(path, "condition", f"it gives {gives}, not true or false; compare it with something")
