"""What runs are found by: tags, and inputs that their workflow declares searchable.

Tags are words without a value. A run has those of its workflow, then those of its schedule or of its submission. A
child run has those of its own workflow only: a tag says what somebody started, and a search that finds the start finds
what hangs below it.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value, decode
from tickwork.core.definition.input_fields import with_defaults
from tickwork.core.definition.model import Definition
from tickwork.core.definition.problems import Problems

TAGS_MAX = 16  # in one list: of a workflow, a schedule, a submission
TAG_CHARACTERS_MAX = 64
FIELDS_MAX = 8
FIELD_CHARACTERS_MAX = 256  # of a value; a longer one is found by its beginning
SEARCHABLE = ("string", "integer", "number", "boolean", "datetime", "any")

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+=-]*", re.ASCII)

Fields = tuple[tuple[str, str], ...]


def check_tags(tags: Sequence[str], *, path: str) -> None:
    """Raises `Refused` with the tag at fault."""
    if len(tags) > TAGS_MAX:
        raise Refused("too_many_tags", f"{len(tags)} tags are too many; at most {TAGS_MAX} are accepted", path=path)
    for index, tag in enumerate(tags):
        if not 0 < len(tag) <= TAG_CHARACTERS_MAX or not _TAG.fullmatch(tag):
            message = f"a tag has 1 to {TAG_CHARACTERS_MAX} letters, digits and _.:/@+=-, and begins with no sign"
            raise Refused("bad_tag", f"{tag[:TAG_CHARACTERS_MAX]!a}: {message}", path=f"{path}[{index}]")
        if tag in tags[:index]:
            raise Refused("repeated_tag", f"the tag {tag!a} is listed twice; keep one", path=f"{path}[{index}]")


def check_search(definition: Definition, problems: Problems) -> None:
    """Searchable inputs exist, are small and are no secrets."""
    problems.count("search", len(definition.search), high=FIELDS_MAX, what="searchable inputs")
    for index, name in enumerate(definition.search[:FIELDS_MAX]):
        path, field = f"search[{index}]", definition.inputs.get(name)
        if field is None:
            problems.add(path, "unknown_input", f"there is no input {name[:128]!a}; mend the name or declare the input")
        elif field.secret:
            problems.add(path, "secret_value", f"the input {name} is secret: nobody may search for it")
        elif field.type not in SEARCHABLE:
            problems.add(path, "wrong_type", f"the input {name} is of type {field.type}; search a text or a number")
        elif name in definition.search[:index]:
            problems.add(path, "duplicate_id", f"the input {name} is listed twice; keep one")


def merged_tags(definition: Definition, tags: tuple[str, ...]) -> tuple[str, ...]:
    """The tags of a run: those of its workflow first."""
    if not definition.tags or not tags:
        return tags or definition.tags
    return tuple(dict.fromkeys((*definition.tags, *tags)))


def fields_of(definition: Definition, inputs: Value) -> Fields:
    """The searchable inputs of a run as texts. None of inputs that are not inline."""
    if not definition.search or not (inputs is None or isinstance(inputs, bytes)):
        return ()
    try:
        values = {} if inputs is None else decode(inputs, what="inputs")
    except Refused:
        return ()
    return fields_among(definition, values) if isinstance(values, dict) else ()


def fields_among(definition: Definition, values: dict[str, Any]) -> Fields:
    given = with_defaults(definition, values)
    texts = [(name, field_text(given.get(name))) for name in definition.search]
    return tuple([(name, text) for name, text in texts if text])


def field_text(value: Any) -> str:
    """How a value is written in a search: a text as it is, everything else as JSON. Nothing and lists are not found."""
    if isinstance(value, str):
        return value[:FIELD_CHARACTERS_MAX]
    return msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else ""
