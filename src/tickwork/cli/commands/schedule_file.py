"""Read a set of schedules from a YAML or JSON file.

The file is a mapping from names to the options of `tickwork schedules put`, or an object with `schedules` and,
optionally, `owner` and `holidays`. Dates and times remain text. Duplicate names are refused.
"""

import json
import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.core.base.errors import Refused
from tickwork.core.base.strict_json import check
from tickwork.protocol.http_models import EndpointRequest, ScheduleRequest

BYTES_MAX = 16 * 1024 * 1024


class ScheduleFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    owner: str = ""
    schedules: dict[str, ScheduleRequest] = {}
    holidays: dict[str, tuple[str, ...]] = {}  # lists that the schedules name, for commands that only compare


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the package ships no types
    """Plain values only: no dates, because a schedule has them as texts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} appears twice", node.start_mark)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return mapping


_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_schedules(path: Path) -> ScheduleFile:
    document = read_document(path)
    if not isinstance(document, dict):
        raise CommandExit(Exit.REFUSED, f"{path}: it must be a mapping from names to the fields of a schedule")
    whole = document if isinstance(document.get("schedules", None), dict) else {"schedules": document}
    if "workflow" in whole["schedules"]:
        raise CommandExit(
            Exit.REFUSED, f"{path}: this is one schedule without its name; write NAME: and indent the rest"
        )
    try:
        return msgspec.convert(whole, ScheduleFile)
    except msgspec.ValidationError as error:
        message, _, path_in_file = str(error).partition(" - at `$")
        where = _named(path_in_file.strip(".`"), whole)
        raise CommandExit(Exit.REFUSED, f"{path}: {where}{': ' if where else ''}{message}") from None


def read_document(path: Path) -> Any:
    """The plain values of a YAML, JSON or TOML file."""
    try:
        text = path.read_bytes()[:BYTES_MAX].decode("utf-8")
    except OSError as error:
        raise CommandExit(Exit.NOT_FOUND, f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandExit(Exit.REFUSED, f"{path} is not UTF-8 text") from None
    try:
        if path.suffix == ".json":
            return json.loads(text, object_pairs_hook=_once)
        if path.suffix == ".toml":
            return tomllib.loads(text)
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise CommandExit(Exit.REFUSED, f"{path}{line}: {error.problem or 'it is not YAML'}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise CommandExit(Exit.REFUSED, f"{path}: {' '.join(str(error).split())}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} appears twice")
    return dict(pairs)


def _named(path_in_file: str, whole: dict[str, Any]) -> str:
    """`schedules[...].cron` says nothing of which: the first entry that cannot be read alone is the one."""
    if not path_in_file.startswith("schedules[...]"):
        return path_in_file
    for name, fields in whole["schedules"].items():
        try:
            msgspec.convert(fields, ScheduleRequest)
        except msgspec.ValidationError:
            return f"schedules.{name}{path_in_file.removeprefix('schedules[...]')}"
    return path_in_file


# ---- A set of endpoints in a file, as YAML or JSON: from name to what an endpoint has, bare or under `endpoints`.


def read_endpoints(path: Path) -> dict[str, EndpointRequest]:
    document = read_document(path)
    try:
        check(document)  # YAML allows keys that are not text, and values that contain themselves
    except Refused as refused:
        raise CommandExit(Exit.REFUSED, f"{path}: {refused}") from None
    if isinstance(document, dict) and isinstance(document.get("endpoints"), dict):
        unknown = sorted(str(name) for name in document if name != "endpoints")
        if unknown:
            raise CommandExit(Exit.REFUSED, f"{path}: {unknown[0]!r} is next to `endpoints`; move it into that mapping")
        document = document["endpoints"]
    if not isinstance(document, dict) or not document:
        raise CommandExit(Exit.REFUSED, f"{path}: it must be a mapping from names to the fields of an endpoint")
    return {name: _endpoint_request(path, name, fields) for name, fields in document.items()}


def _endpoint_request(path: Path, name: str, fields: Any) -> EndpointRequest:
    try:
        return msgspec.convert(fields, EndpointRequest)
    except msgspec.ValidationError as error:
        message, _, path_in_file = str(error).partition(" - at `$")
        raise CommandExit(Exit.REFUSED, f"{path}: {name}{path_in_file.rstrip('`')}: {message}") from None
