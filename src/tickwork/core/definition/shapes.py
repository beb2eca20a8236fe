"""The shape of the document, derived from the types in `model.py`.

One table for the parser, the canonical form and the published schema: a field added to a type is
known to all three. The types nest to a fixed depth, so walking a shape never follows user data.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from tickwork.core.definition.model import Definition, Retry, Timeout

KIND = "kind"


@dataclass(frozen=True, slots=True)
class Field:
    attribute: str
    annotation: Any
    required: bool
    default: Any
    parts: tuple["Shape", ...] = ()  # the structs it holds; none for a plain value
    container: type | None = None  # list or dict where it holds many
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    struct: type[msgspec.Struct]
    kind: str | None
    fields: dict[str, Field]
    short: dict[str, str]  # the same name without its unit: `timeout` for `timeout_ms`


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    fields = {info.encode_name: _field(info) for info in msgspec.structs.fields(struct)}
    short = {_without_unit(name): name for name in fields if _without_unit(name) != name}
    tag = struct.__struct_config__.tag
    return Shape(struct, None if tag is None else str(tag), fields, short)


def _field(info: msgspec.structs.FieldInfo) -> Field:
    container, types = _unwrapped(info.type)
    parts = tuple(shape_of(kind) for kind in types if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    return Field(
        attribute=info.name,
        annotation=info.type,
        required=info.required,
        default=default,
        parts=parts,
        container=container if parts else None,
        optional=type(None) in get_args(info.type),
    )


def _unwrapped(annotation: Any) -> tuple[type | None, tuple[Any, ...]]:
    """The container, and the types inside it: `tuple[X | Y, ...]` is a list of X and Y."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return list, get_args(args[0]) or (args[0],)
    if origin is dict:
        return dict, (args[1],)
    return None, args or (annotation,)


def _without_unit(name: str) -> str:
    return name.removesuffix("_ms").replace("_ms_", "_")


# ---- The published JSON Schema of the document, shorthands included.


_DURATION = {
    "type": ["string", "integer"],
    "description": "A duration such as 5m, 1h30m, 250ms or PT5M; an integer is milliseconds.",
}


def json_schema() -> dict[str, Any]:
    (schema,), parts = msgspec.json.schema_components([Definition], ref_template="#/$defs/{name}")
    for shape in _shapes(shape_of(Definition)).values():
        _add_shorthands(parts[shape.struct.__name__], shape)
    for part in parts.values():
        if "description" in part:
            part["description"] = " ".join(part["description"].split())
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tickwork definition",
        "description": "One workflow: its inputs, its nodes and the rules they run by.",
        **schema,
        "$defs": dict(sorted(parts.items())),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))  # defaults are structs until here
    return plain


def _shapes(top: Shape) -> dict[str, Shape]:
    shapes = {top.struct.__name__: top}
    todo = [top]
    for shape in todo:  # grows while we walk it
        for field in shape.fields.values():
            fresh = [part for part in field.parts if part.struct.__name__ not in shapes]
            shapes.update((part.struct.__name__, part) for part in fresh)
            todo.extend(fresh)
    return shapes


def _add_shorthands(part: dict[str, Any], shape: Shape) -> None:
    properties = part["properties"]
    for name, field in shape.fields.items():
        properties[name].setdefault("title", name.replace("_", " "))
        if extra := _folded(field):
            properties[name] = {"title": name, "anyOf": [extra, properties[name]]}
    for short, full in shape.short.items():
        properties[short] = {"title": short.replace("_", " "), **_DURATION}
        if full in part["required"]:
            part["required"].remove(full)
            part["oneOf"] = [{"required": [full]}, {"required": [short]}]


def _folded(field: Field) -> dict[str, Any] | None:
    structs = [part.struct for part in field.parts]
    if structs == [Retry]:
        return {"type": "integer", "description": "The number of attempts in all."}
    return _DURATION if structs == [Timeout] else None
