"""The declared inputs of a workflow: the declarations themselves, and the values of one run.

A secret input never holds a secret: its value is a reference `secret:name`, in a default too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Problem, Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, EncryptedValue, Ref, Value, decode, too_large
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.definition.model import Definition, InputField
from tickwork.core.definition.problems import Problems, join

TYPES = ("string", "integer", "number", "boolean", "array", "object", "datetime", "any")
SECRET_PREFIX = "secret:"  # noqa: S105 - the mark of a reference, not a password
SCHEDULED_TIME = "scheduled_time"  # an input of this name gets the nominal time of a scheduled run
EXAMPLE_TIME = "2000-01-01T00:00:00Z"
ENUM_MAX = 1_000

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "datetime": (str,),
}
_ALWAYS_SMALL = ("integer", "number", "boolean", "datetime")


def check_inputs(
    definition: Definition, values: dict[str, Any], apart: Mapping[str, Ref | None] = MappingProxyType({})
) -> list[Problem]:
    """Every problem of the values given to one run. A default that steps in needs no checking again. `apart`: further
    values that are not inline, of which only the reference is checked; None where not even that is known."""
    problems = Problems()
    try:
        strictjson.check(values)
    except Refused as refused:
        return [Problem("inputs", refused.code, refused.message)]
    _check_fields(definition, values, apart, problems)
    return problems.listed()


def require_accepted(definition: Definition, values: Any) -> None:
    """Raises `Refused` with the first problem of a child run's inputs that are not inline. They are made of values that
    were accepted before, so only what the workflow declares is checked."""
    if not isinstance(values, dict):
        raise Refused("bad_inputs", "inputs are a map from name to value", path="inputs")
    problems = Problems()
    _check_fields(definition, values, {}, problems)
    for problem in problems.listed()[:1]:
        raise Refused(problem.code, problem.message, path=problem.path)


def _check_fields(
    definition: Definition, values: dict[str, Any], apart: Mapping[str, Ref | None], problems: Problems
) -> None:
    known = shortened(", ".join(definition.inputs), 500) or "none"
    for name in (*values, *apart):
        if name not in definition.inputs:
            problems.add(join("inputs", name), "unknown_input", f"the workflow has no such input; known: {known}")
    for name, field in definition.inputs.items():
        path = join("inputs", name)
        if name in values:
            check_value(values[name], field, path, problems)
        elif name in apart:
            _check_reference(apart[name], field, path, problems)
        elif field.required and field.default is msgspec.UNSET:
            problems.add(path, "missing_input", "this input is required; give it a value")


class ScheduledInputs(Protocol):
    """The names of the inputs that a schedule fills itself, where the workflow has them."""

    @property
    def time_input(self) -> str: ...

    @property
    def context_input(self) -> str: ...


def require_inputs(
    definition: Definition, value: Value, *, scheduled: tuple[ScheduledInputs, Value] | None = None
) -> None:
    """Raises `Refused` with the first problem of a run's inputs. What is not inline was checked where it was stored,
    and that of a child run is checked when it starts.
    With `scheduled` (the terms and the context of a schedule) they are those of a scheduled run."""
    if too_large(value):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="inputs")
    more = filled(definition, *scheduled, EXAMPLE_TIME) if scheduled is not None else {}
    if more and isinstance(value, Ref | EncryptedValue):
        raise Refused(
            "value_not_inline", "these inputs are too large for the scheduled time to join them", path="inputs"
        )
    if isinstance(value, Ref | EncryptedValue):
        return
    plain = {} if value is None else decode(value, what="inputs")
    if not isinstance(plain, dict):
        raise Refused("bad_inputs", "inputs are a map from name to value", path="inputs")
    problems = check_inputs(definition, plain | more)
    if problems:
        raise Refused(problems[0].code, problems[0].message, path=problems[0].path)


def require_child_inputs(definition: Definition, plain: dict[str, Any], apart: Mapping[str, Ref | None]) -> None:
    """Raises `Refused` with the first problem of what a parent gives to a child run."""
    problems = check_inputs(definition, plain, apart)
    if problems:
        raise Refused(problems[0].code, problems[0].message, path=problems[0].path)


def filled(definition: Definition, terms: ScheduledInputs, context: Value, time: str) -> dict[str, Any]:
    """What a schedule itself gives to a run: the nominal time and its context, where there are inputs for them."""
    if isinstance(context, Ref | EncryptedValue) or too_large(context):
        raise Refused("value_too_large", f"a context has at most {INLINE_BYTES_MAX} bytes", path="context")
    given: dict[str, Any] = {}
    if terms.time_input in definition.inputs:
        given[terms.time_input] = time
    if context is not None:
        if terms.context_input not in definition.inputs:
            message = f"the workflow has no input {terms.context_input!r} to take the context"
            raise Refused("unknown_input", message, path="context")
        given[terms.context_input] = decode(context, what="context")
    return given


def with_defaults(definition: Definition, values: dict[str, Any]) -> dict[str, Any]:
    """The values in the order of the declarations, defaults filled in."""
    filled = {name: values.get(name, field.default) for name, field in definition.inputs.items()}
    return {name: value for name, value in filled.items() if value is not msgspec.UNSET}


def check_value(value: Any, field: InputField, path: str, problems: Problems) -> None:
    if field.secret:
        _check_secret(value, path, problems)
        return
    if not _has_type(value, field.type, path, problems):
        return
    if field.enum and not any(_same(value, choice) for choice in field.enum):
        choices = msgspec.json.encode(field.enum).decode()
        problems.add(path, "wrong_value", f"the value is not one of {shortened(choices, 500)}")
    _check_bounds(value, field, path, problems)


def check_declaration(name: str, field: InputField, problems: Problems, *, path: str, kind: str = "input") -> None:
    problems.attempt(check_name, name, path=path, kind=kind)
    problems.length(f"{path}.description", field.description, high=10_000)
    if field.type not in TYPES:
        problems.one_of(f"{path}.type", field.type, TYPES)
        return
    _check_limits(field, path, problems)
    bare = msgspec.structs.replace(field, enum=())
    if problems.count(f"{path}.enum", len(field.enum), high=ENUM_MAX, what="choices"):
        for index, choice in enumerate(field.enum):
            _check_choice(choice, bare, f"{path}.enum[{index}]", problems)
    if field.default is not msgspec.UNSET:
        check_value(field.default, field, f"{path}.default", problems)


def _check_choice(choice: Any, bare: InputField, path: str, problems: Problems) -> None:
    if choice is None or choice == "":
        problems.add(path, "wrong_value", "a choice is empty; make the input optional instead")
    else:
        check_value(choice, bare, path, problems)


def _check_limits(field: InputField, path: str, problems: Problems) -> None:
    if field.secret and field.type not in ("string", "any"):
        problems.add(f"{path}.type", "wrong_value", "a secret input is of type string")
    if (field.minimum is not None or field.maximum is not None) and field.type not in ("integer", "number"):
        problems.add(path, "wrong_value", "minimum and maximum are for integers and numbers; set the type")
    if field.minimum is not None and field.maximum is not None and field.minimum > field.maximum:
        problems.add(f"{path}.minimum", "out_of_range", "the minimum is above the maximum")
    if field.max_length is not None and field.type not in ("string", "array"):
        problems.add(f"{path}.max_length", "wrong_value", "max_length is for strings and arrays; set the type")
    if field.max_length is not None and field.max_length < 0:
        problems.add(f"{path}.max_length", "out_of_range", "max_length is zero or more")


def _check_secret(value: Any, path: str, problems: Problems) -> None:
    """The value itself is never repeated: it may be the secret."""
    if not isinstance(value, str) or not value.startswith(SECRET_PREFIX):
        problems.add(path, "secret_value", "give a reference like secret:name here, never the secret itself")
        return
    try:
        check_name(value.removeprefix(SECRET_PREFIX), path=path, kind="secret")
    except Refused as refused:
        problems.add(path, refused.code, "the name after secret: is not valid; use letters, digits, '_', '-' and '.'")


def _has_type(value: Any, type_name: str, path: str, problems: Problems) -> bool:
    if type_name == "any":
        return True
    if type(value) not in _PYTHON_TYPES[type_name]:
        problems.add(path, "wrong_type", f"a value of type {type_name} is expected, not {type(value).__name__}")
        return False
    return type_name != "datetime" or problems.attempt(instant_ms, value, path=path) is not None


def _check_reference(ref: Ref | None, field: InputField, path: str, problems: Problems) -> None:
    """A value that is larger than any inline value is a text, a list or an object; its reference tells lists."""
    if field.secret:
        _check_secret(None, path, problems)
    elif ref is not None and ref.items is not None:
        if field.type not in ("array", "any"):
            problems.add(path, "wrong_type", f"a value of type {field.type} is expected, not list")
        elif field.max_length is not None and ref.items > field.max_length:
            problems.add(path, "out_of_range", f"the value is longer than {field.max_length}")
    elif ref is not None and ref.size > INLINE_BYTES_MAX and field.type in _ALWAYS_SMALL:
        message = f"a value of type {field.type} is expected, not one of {ref.size} bytes"
        problems.add(path, "wrong_type", message)


def _check_bounds(value: Any, field: InputField, path: str, problems: Problems) -> None:
    if field.minimum is not None and type(value) in (int, float) and value < field.minimum:
        problems.add(path, "out_of_range", f"the value is below {field.minimum}")
    if field.maximum is not None and type(value) in (int, float) and value > field.maximum:
        problems.add(path, "out_of_range", f"the value is above {field.maximum}")
    if field.max_length is not None and type(value) in (str, list) and len(value) > field.max_length:
        problems.add(path, "out_of_range", f"the value is longer than {field.max_length}")


def _same(first: Any, second: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values."""
    return msgspec.json.encode(first, order="sorted") == msgspec.json.encode(second, order="sorted")
