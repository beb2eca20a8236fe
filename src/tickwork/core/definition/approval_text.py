"""What an approval asks of a person: text with values of the run in it.

`${REFERENCE}` stands for a value, as in `Ship ${nodes.pack.count} parcels?`. A view shows the value where it lies with
the run; a larger one belongs to no message.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value, unpack
from tickwork.core.definition import references
from tickwork.core.definition.input_fields import with_defaults
from tickwork.core.definition.plan import Plan

VALUE_CHARACTERS_MAX = 500


def message_of(text: str, plan: Plan, inputs: Value, results: Mapping[int, Value]) -> str:
    """The text with the current values filled in."""
    return references.IN_TEXT.sub(lambda match: _shown(match[1], plan, inputs, results), text)


def _shown(source: str, plan: Plan, inputs: Value, results: Mapping[int, Value]) -> str:
    definition = plan.definition
    try:
        ref = references.resolve(source, path=source, inputs=definition.inputs, nodes=plan.index)
        if ref.root == "inputs":
            value: Any = with_defaults(definition, unpack(inputs, what=source) or {})
            walk = (ref.name, *ref.walk) if ref.name else ref.walk
        else:
            value, walk = unpack(results.get(plan.index[ref.name]), what=source), ref.walk
    except Refused as refused:
        return "(too large to show)" if refused.code == "value_not_inline" else "(no value)"
    for step in walk:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return "(no value)"
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return shown if len(shown) <= VALUE_CHARACTERS_MAX else f"{shown[:VALUE_CHARACTERS_MAX]}… ({len(shown)} characters)"
