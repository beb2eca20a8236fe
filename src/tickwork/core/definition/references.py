"""References: the small language that says where a value comes from.

`inputs`, `inputs.NAME`, `nodes.ID`, and inside a body `item`, `index`, `iteration`, `previous`;
further dots walk into the value. Names may contain dots themselves; a reference that could mean two
of them is refused, so it always means one thing.
"""

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.definition.model import (
    NO_OUTPUT,
    ApprovalNode,
    Argument,
    Definition,
    EventNode,
    MapNode,
    Node,
    RepeatNode,
    WaitNode,
    WorkflowNode,
    WorkNode,
)
from tickwork.core.definition.problems import join

REFERENCE_CHARACTERS_MAX = 1_024
SEGMENTS_MAX = 32

IN_TEXT = re.compile(r"\$\{([^{}]*)\}")  # a reference in a text for people: ${nodes.ID}
_IN_MAP = ("item", "index")
_IN_REPEAT = ("iteration", "previous")


@dataclass(frozen=True, slots=True)
class Reference:
    root: str  # inputs, nodes, item, index, iteration, previous
    name: str  # of the input or node; empty for the others and for all inputs together
    walk: tuple[str, ...]  # keys and positions inside the value


@dataclass(frozen=True, slots=True)
class ReferenceScope:
    """Where a reference is written, and which words of a body it may use there."""

    path: str
    text: str
    words: tuple[str, ...] = ()


def resolve(
    text: str, *, path: str, inputs: Container[str], nodes: Container[str], words: tuple[str, ...] = ()
) -> Reference:
    """What `text` stands for among the declared inputs and nodes. Raises `Refused`."""
    segments = _segments(text, path)
    root, rest = segments[0], segments[1:]
    if root in _IN_MAP or root in _IN_REPEAT:
        return _of_body(root, rest, path, words)
    if root == "inputs" and not rest:
        return Reference("inputs", "", ())
    if root not in ("inputs", "nodes"):
        message = f"{text[:60]!a} is no reference; write inputs.NAME or nodes.ID"
        raise Refused("reference_syntax", message, path=path)
    if not rest:
        raise Refused("reference_syntax", "name the node whose result is meant: nodes.ID", path=path)
    return _named(root, rest, path, inputs if root == "inputs" else nodes)


def is_reference(text: str) -> bool:
    """For fields that take a reference or something else, such as an instant."""
    return text.split(".", 1)[0] in ("inputs", "nodes", *_IN_MAP, *_IN_REPEAT)


def places_of(node: Node, path: str) -> Iterator[ReferenceScope]:
    """Every reference of a node, its body included."""
    match node:
        case WorkNode() | WorkflowNode():
            yield from _arguments(node.args, path, ())
            yield from _choices(node, path)
        case WaitNode():
            if node.until is not None and is_reference(node.until):
                yield ReferenceScope(f"{path}.until", node.until)
            yield from _given(path, duration_from=node.duration_from)
        case EventNode():
            yield from _given(path, key=node.key, timeout_from=node.timeout_from)
        case ApprovalNode():
            for source in IN_TEXT.findall(node.message):
                yield ReferenceScope(f"{path}.message", source)
            yield from _given(path, timeout_from=node.timeout_from)
        case MapNode():
            yield ReferenceScope(f"{path}.over", node.over)
            for number, source in enumerate(node.others):
                yield ReferenceScope(f"{path}.others[{number}]", source)
            yield from _given(path, max_parallel_from=node.max_parallel_from)
            yield from _arguments(node.body.args, f"{path}.body", _IN_MAP)
            yield from _choices(node.body, f"{path}.body")
        case RepeatNode():
            yield from _given(path, timeout_from=node.timeout_from)
            yield from _arguments(node.body.args, f"{path}.body", _IN_REPEAT)
            yield from _choices(node.body, f"{path}.body")


def _given(path: str, **references: str | None) -> Iterator[ReferenceScope]:
    for name, reference in references.items():
        if reference is not None:
            yield ReferenceScope(f"{path}.{name}", reference)


def _choices(node: WorkNode | WorkflowNode, path: str) -> Iterator[ReferenceScope]:
    """Where a worker's step goes. A body has no words of its own here: all of its children go the same way."""
    if isinstance(node, WorkNode):
        yield from _given(path, queue_from=node.queue_from)
        for name, source in node.labels_from.items():
            yield ReferenceScope(join(f"{path}.labels_from", name), source)


def output_place(definition: Definition) -> Iterator[ReferenceScope]:
    if definition.output is not None and definition.output != NO_OUTPUT:
        yield ReferenceScope("output", definition.output)


def published_places(definition: Definition) -> Iterator[ReferenceScope]:
    for name, sources in definition.publish.items():
        for position, source in enumerate(sources):
            yield ReferenceScope(f"{join('publish', name)}[{position}]", source)


def _arguments(args: Mapping[str, Argument], path: str, words: tuple[str, ...]) -> Iterator[ReferenceScope]:
    for name, argument in args.items():
        if argument.source is not None:
            yield ReferenceScope(f"{join(path + '.args', name)}.from", argument.source, words)


def _segments(text: str, path: str) -> list[str]:
    if len(text) > REFERENCE_CHARACTERS_MAX:
        message = f"a reference has at most {REFERENCE_CHARACTERS_MAX} characters"
        raise Refused("reference_syntax", message, path=path)
    segments = text.split(".")
    if not all(segments) or len(segments) > SEGMENTS_MAX:
        message = f"{text[:60]!a} has an empty part or more than {SEGMENTS_MAX} parts; write inputs.NAME or nodes.ID"
        raise Refused("reference_syntax", message, path=path)
    return segments


def _of_body(root: str, rest: list[str], path: str, words: tuple[str, ...]) -> Reference:
    if root in words:
        return Reference(root, "", tuple(rest))
    where = "map" if root in _IN_MAP else "repeat"
    raise Refused("reference_scope", f"{root!a} exists only inside the body of a {where}", path=path)


def _named(root: str, rest: list[str], path: str, known: Container[str]) -> Reference:
    ends = [end for end in range(1, len(rest) + 1) if ".".join(rest[:end]) in known]
    what = "input" if root == "inputs" else "node"
    if not ends:
        message = f"there is no {what} {shortened('.'.join(rest), 128)!a}; declare it, or mend the reference"
        raise Refused("unknown_reference", message, path=path)
    if len(ends) > 1:
        first, second = (".".join(rest[:end]) for end in ends[:2])
        message = f"this may mean the {what} {first!a} or {second!a}; rename one of them"
        raise Refused("reference_ambiguous", message, path=path)
    return Reference(root, ".".join(rest[: ends[0]]), tuple(rest[ends[0] :]))
