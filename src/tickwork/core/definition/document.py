"""The document of a definition: read, checked, written back in one canonical form.

    parse         bytes or a plain dict to a `Definition`, or every problem of its form
    validate      every problem of its meaning: names, limits, graph, references
    accept        both, one after the other
    canonical     the one way to write it: keys sorted, defaults left out, durations in ms
    content_hash  what a version is known by

People may write shorthands, which parsing turns into the canonical form: any `*_ms` field under
its name without the unit as a text ("timeout": "1h", "delay_max": "5m"), `"timeout": "5m"` on a
node or in the defaults for one attempt's running time, and `"retry": 3` for three attempts.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.definition.input_fields import check_inputs, with_defaults
from tickwork.core.definition.model import BranchNode, Definition, Retry, Timeout
from tickwork.core.definition.problems import Problems, join
from tickwork.core.definition.shapes import KIND, Field, Shape, json_schema, shape_of
from tickwork.core.definition.validation import Limits, plain_condition, validate

__all__ = [
    "Limits",
    "accept",
    "canonical",
    "check_inputs",
    "content_hash",
    "json_schema",
    "parse",
    "plain_condition",
    "validate",
    "with_defaults",
]

SERVER_FIELDS = frozenset(
    (
        "id",
        "tenant",
        "tenant_id",
        "owner",
        "partition",
        "partition_id",
        "epoch",
        "seq",
        "status",
        "state",
        "phase",
        "attempt",
        "run_id",
        "version",
        "hash",
        "content_hash",
        "created_at",
        "created_by",
        "updated_at",
        "updated_by",
    )
)

_BAD: Any = object()  # stands where a problem was already named, so that it is named once


def accept(
    data: bytes | dict[str, Any],
    *,
    limits: Limits | None = None,
    check_condition: Callable[[str], str | None] = plain_condition,
) -> Definition:
    """A definition that may be stored and run. Raises like `parse`."""
    definition = parse(data)
    problems = validate(definition, limits=limits, check_condition=check_condition)
    if problems:
        raise InvalidDefinition(problems)
    return definition


def parse(data: bytes | dict[str, Any]) -> Definition:
    """Raises `Refused` where it is no JSON at all, `InvalidDefinition` with every problem of its form."""
    raw = strictjson.loads(data) if isinstance(data, bytes) else data
    if not isinstance(data, bytes):
        strictjson.check(raw)
    problems = Problems()
    shape = shape_of(Definition)
    document = _normal(raw, (shape,), "", problems)
    if not problems:
        try:
            return msgspec.convert(document, Definition)
        except msgspec.ValidationError:
            pass  # it names one problem only; the walk below names them all
    _explain(document, (shape,), "", problems)
    raise InvalidDefinition(problems.listed())


def canonical(definition: Definition) -> bytes:
    return msgspec.json.encode(_plain(definition), order="sorted")


def content_hash(definition: Definition) -> str:
    return f"sha256:{hashlib.sha256(canonical(definition)).hexdigest()}"


def _normal(raw: Any, shapes: tuple[Shape, ...], path: str, problems: Problems) -> Any:
    """The same object without shorthands. Depth follows the shape, not the data."""
    if type(raw) is not dict:
        problems.add(path, "wrong_type", f"an object is expected here, not {_type_name(raw)}")
        return _BAD
    shape = _shape_for(raw, shapes, path, problems)
    if shape is None:
        return _BAD
    result: dict[str, Any] = {}
    for name, value in raw.items():
        field = shape.fields.get(name)
        if field is not None:
            result[name] = _normal_field(value, field, join(path, name), problems) if field.parts else value
        elif name in shape.short:
            _lengthen(name, raw, shape, path, problems, result)
        elif name == KIND and shape.kind is not None:
            result[name] = value
        else:
            _refuse_field(name, shape, path, problems)
    return result


def _shape_for(raw: dict[str, Any], shapes: tuple[Shape, ...], path: str, problems: Problems) -> Shape | None:
    if shapes[0].kind is None:
        return shapes[0]
    kind = raw.get(KIND)
    for shape in shapes:
        if shape.kind == kind:
            return shape
    known = ", ".join(str(shape.kind) for shape in shapes)
    problems.add(join(path, KIND), "unknown_kind", f"the kind of the node is missing or unknown; use one of {known}")
    return None


def _normal_field(value: Any, field: Field, path: str, problems: Problems) -> Any:
    if value is None and field.optional:
        return None
    if field.container is list:
        if type(value) is not list:
            problems.add(path, "wrong_type", f"a list is expected here, not {_type_name(value)}")
            return _BAD
        return [_normal(item, field.parts, f"{path}[{index}]", problems) for index, item in enumerate(value)]
    if field.container is dict:
        if type(value) is not dict:
            problems.add(path, "wrong_type", f"an object is expected here, not {_type_name(value)}")
            return _BAD
        return {name: _normal(item, field.parts, join(path, name), problems) for name, item in value.items()}
    return _normal(_unfolded(value, field, path, problems), field.parts, path, problems)


def _unfolded(value: Any, field: Field, path: str, problems: Problems) -> Any:
    """`"retry": 3` and `"timeout": "5m"`, written out."""
    struct = field.parts[0].struct
    if struct is Retry and type(value) is int:
        return {"attempts": value}
    if struct is Timeout and type(value) in (int, str):
        return {"running_ms": problems.attempt(duration_ms, value, path=path, minimum_ms=1) or 1}
    return value


def _lengthen(
    name: str, raw: dict[str, Any], shape: Shape, path: str, problems: Problems, result: dict[str, Any]
) -> None:
    full = shape.short[name]
    if full in raw:
        problems.add(join(path, name), "given_twice", f"{name} and {full} say the same; keep one of them")
    elif raw[name] is None and shape.fields[full].optional:
        result[full] = None
    else:
        result[full] = problems.attempt(duration_ms, raw[name], path=join(path, name)) or 0


def _refuse_field(name: str, shape: Shape, path: str, problems: Problems) -> None:
    where = join(path, name)
    if problems.full:
        problems.add(where, "unknown_field", "")  # counted only
    elif name in SERVER_FIELDS:
        problems.add(where, "server_field", f"the field {name} is set by the server; remove it")
    else:
        known = ", ".join(sorted([*shape.fields, *shape.short]))
        problems.add(where, "unknown_field", f"there is no field {name[:60]!a} here; known are {known}")


def _explain(document: Any, shapes: tuple[Shape, ...], path: str, problems: Problems) -> None:
    """Every missing field and wrong type of a normal document."""
    if document is _BAD or document is None:
        return
    shape = next(shape for shape in shapes if shape.kind is None or shape.kind == document[KIND])
    for name, field in shape.fields.items():
        where = join(path, name)
        if name not in document:
            _explain_missing(field, name, shape, where, problems)
        elif not field.parts:
            _explain_value(document[name], field, where, problems)
        elif field.container is list and document[name] is not _BAD:
            for index, item in enumerate(document[name]):
                _explain(item, field.parts, f"{where}[{index}]", problems)
        elif field.container is dict and document[name] is not _BAD:
            for key, item in document[name].items():
                _explain(item, field.parts, join(where, key), problems)
        else:
            _explain(document[name], field.parts, where, problems)


def _explain_missing(field: Field, name: str, shape: Shape, where: str, problems: Problems) -> None:
    if not field.required:
        return
    if shape.struct is BranchNode and name == "default":
        message = "say where to go when no case holds; an empty list means nowhere"
        problems.add(where, "branch_without_default", message)
    else:
        problems.add(where, "missing_field", f"the field {name} is required")


def _explain_value(value: Any, field: Field, where: str, problems: Problems) -> None:
    try:
        msgspec.convert(value, field.annotation)
    except msgspec.ValidationError as error:
        message, _, inside = str(error).partition(" - at `$")
        code = "wrong_value" if message.startswith("Invalid") else "wrong_type"
        problems.add(where + inside.rstrip("`"), code, message)


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    """As JSON types, without what equals its default."""
    shape = shape_of(type(value))
    result: dict[str, Any] = {} if shape.kind is None else {KIND: shape.kind}
    for name, field in shape.fields.items():
        held = getattr(value, field.attribute)
        if held is msgspec.UNSET or (not field.required and held == field.default):
            continue
        result[name] = _plain_field(held, field)
    return result


def _plain_field(held: Any, field: Field) -> Any:
    if not field.parts or held is None:
        return held
    if field.container is list:
        return [_plain(item) for item in held]
    if field.container is dict:
        return {name: _plain(item) for name, item in held.items()}
    return _plain(held)


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
