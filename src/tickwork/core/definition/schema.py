"""The published JSON Schema of the document, shorthands included.

For editors and other languages. It describes form, not meaning: what `validate` finds is beyond it.
"""

from typing import Any

import msgspec

from tickwork.core.definition.model import Definition, Retry, Timeout
from tickwork.core.definition.shapes import Field, Shape, shape_of

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
