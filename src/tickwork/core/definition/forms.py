"""Forms: approvals with declared fields, whose answer is checked when it is given.

The result of a form has a value for each field, and who answered: `by` and `comment`. Where the time runs out it has
the default, and `by` is empty.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Problem, Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, EncryptedValue, Ref, Value, decode, pack, too_large
from tickwork.core.definition.input_fields import TYPES, check_declaration, check_value
from tickwork.core.definition.model import InputField
from tickwork.core.definition.problems import Problems, join

FIELDS_MAX = 100
RESERVED = ("by", "comment")  # who answered; they stand beside the fields

Fields = Mapping[str, InputField]


def check_form(fields: Fields, default: Mapping[str, Any], path: str, problems: Problems) -> None:
    """The declaration. A default need not have every field."""
    problems.count(f"{path}.fields", len(fields), high=FIELDS_MAX, what="fields")
    for name, field in fields.items():
        where = join(f"{path}.fields", name)
        if name in RESERVED:
            problems.add(where, "wrong_value", f"{' and '.join(RESERVED)} say who answered; choose another name")
        check_declaration(name, field, problems, path=where, kind="field")
    for name, value in default.items():
        where = join(f"{path}.default", name)
        if name not in fields:
            problems.add(where, "unknown_field", f"the form has no such field; known: {_known(fields)}")
        elif fields[name].type in TYPES:
            check_value(value, fields[name], where, problems)
    if fields and too_large(result_of(fields, default)):
        problems.add(f"{path}.default", "value_too_large", f"a default has at most {INLINE_BYTES_MAX} bytes")


def check_answer(fields: Fields, value: Value, *, by: str, comment: str) -> None:
    """Raises `Refused` with the first problem of what a person filled in."""
    values = values_of(value)
    try:
        strictjson.check(values)
    except Refused as refused:
        raise Refused(refused.code, refused.message, path="values") from None
    for problem in _problems(fields, values)[:1]:
        raise Refused(problem.code, problem.message, path=problem.path)
    if fields and too_large(result_of(fields, values, by=by, comment=comment)):
        message = f"an answer has at most {INLINE_BYTES_MAX} bytes, with its comment and what is filled in by default"
        raise Refused("value_too_large", message, path="values")


def _problems(fields: Fields, values: dict[str, Any]) -> list[Problem]:
    problems = Problems()
    for name in values:
        if name not in fields:
            message = f"the form has no such field; known: {_known(fields)}"
            message = message if fields else "it is no form: there are no fields to fill in"
            problems.add(join("values", name), "unknown_field", message)
    for name, field in fields.items():
        where = join("values", name)
        if name in values:
            check_value(values[name], field, where, problems)
        elif field.required and field.default is msgspec.UNSET:
            problems.add(where, "missing_field", f"this field is required: {field_words(field)}")
    return problems.listed()


def values_of(value: Value) -> dict[str, Any]:
    """Raises `Refused`."""
    if isinstance(value, Ref | EncryptedValue) or too_large(value):
        raise Refused("value_too_large", f"an answer has at most {INLINE_BYTES_MAX} bytes", path="values")
    plain = {} if value is None else decode(value, what="values")
    if not isinstance(plain, dict):
        raise Refused("bad_values", "an answer is a map from field to value", path="values")
    return plain


def filled(fields: Fields, values: Mapping[str, Any]) -> dict[str, Any]:
    """A value for each field, None where there is none."""
    defaults = {name: None if field.default is msgspec.UNSET else field.default for name, field in fields.items()}
    return {name: values.get(name, default) for name, default in defaults.items()}


def result_of(fields: Fields, values: Mapping[str, Any], *, by: str = "", comment: str = "") -> Value:
    return pack({**filled(fields, values), "by": by, "comment": comment})


def field_words(field: InputField) -> str:
    """What it takes: string, or one of its choices."""
    if field.enum:
        choices = [choice if isinstance(choice, str) else str(choice) for choice in field.enum]
        return f"one of {shortened(', '.join(choices), 300)}"
    return "true or false" if field.type == "boolean" else field.type


def _known(fields: Fields) -> str:
    return shortened(", ".join(fields), 500) or "none"
