"""Inputs of a run from the command line.

`name=value`: the value is JSON where it can be read as such, and text otherwise. A parameter that the workflow
declares as text gets the text as it stands.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tickwork.cli.exit_codes import CommandExit, Exit

if TYPE_CHECKING:
    from tickwork.sdk.authoring.workflows import Workflow

BYTES_MAX = 64 * 1024 * 1024


def read_inputs(pairs: Sequence[str], document: str | None, workflow: "Workflow[..., Any] | None") -> dict[str, Any]:
    if pairs and document is not None:
        raise CommandExit(Exit.USAGE, "give --input or --inputs-json, not both")
    if document is not None:
        return _document(document)
    inputs: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise CommandExit(Exit.USAGE, f"--input {pair!r} is not name=value")
        if name in inputs:
            raise CommandExit(Exit.USAGE, f"--input {name} is given twice")
        inputs[name] = text if _wants_text(workflow, name) else _json_or_text(text)
    return inputs


def read_fields(pairs: Sequence[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a form. A field that is declared as text gets the text as it stands."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise CommandExit(Exit.USAGE, f"--set {pair!r} is not name=value")
        if name in values:
            raise CommandExit(Exit.USAGE, f"--set {name} is given twice")
        is_text = fields.get(name, {}).get("type") in ("string", "datetime")
        values[name] = text if is_text else _json_or_text(text)
    return values


def read_value(text: str) -> Any:
    return _json_or_text(text)


def read_payload(text: str | None, document: str | None) -> Any:
    """What an event carries: JSON or else text, or a JSON document like that of `--inputs-json`."""
    if text is not None and document is not None:
        raise CommandExit(Exit.USAGE, "give --payload or --payload-json, not both")
    if document is not None:
        return _json(document, "--payload-json")
    return None if text is None else _json_or_text(text)


def _wants_text(workflow: "Workflow[..., Any] | None", name: str) -> bool:
    parameter = workflow.codec.parameters.get(name) if workflow is not None else None
    return parameter is not None and parameter.type in (str, str | None)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _document(text: str) -> dict[str, Any]:
    document = _json(text, "--inputs-json")
    if not isinstance(document, dict):
        raise CommandExit(Exit.USAGE, "--inputs-json must be an object: a name and a value for each input")
    return document


def _json(text: str, option: str) -> Any:
    """JSON itself, `@file`, or `-` for standard input."""
    try:
        return json.loads(_read(text))
    except OSError as error:
        raise CommandExit(Exit.USAGE, f"{option}: {text[1:]} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CommandExit(Exit.USAGE, f"{option} is not JSON: {error}") from None


def _read(text: str) -> str | bytes:
    if text == "-":
        return sys.stdin.buffer.read(BYTES_MAX)
    return Path(text[1:]).read_bytes() if text.startswith("@") else text
