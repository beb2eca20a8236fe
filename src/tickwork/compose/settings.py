"""Where settings come from, in this order: flags, `TICKWORK_*`, `.env`, `tickwork.toml`, `[tool.tickwork]`, defaults.

An unknown name and a value of the wrong kind are refused by name and place, so that a typing
mistake never becomes a default. Secrets may also be given as a file (`TICKWORK_TOKEN_FILE`).
"""

import contextlib
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.machine_settings import CHANGEABLE
from tickwork.core.calendar.durations import duration_ms
from tickwork.runtime.maintenance.retention import RetentionPolicy, keep_of

PREFIX = "TICKWORK_"
PORT = 8440
FOLDER = ".tickwork"
FILE = "tickwork.toml"
# Variables with our prefix that are no settings: what tasks get, and what helps to find a fault.
OTHERS = frozenset(("attempt", "by", "child", "debug", "idempotency_key", "node", "parent", "process", "run_id"))
KEY_START = "secret_"  # a name that starts so is a key for requests, and the settings leave it alone
# What a number may be. A value outside would not be noticed before something else breaks, or is there for good.
BOUNDS: dict[str, tuple[float, float]] = {
    "partitions": (1, 65_536),
    "port": (0, 65_535),
    "processes": (0, 10_000),
    "threads": (1, 10_000),
    "coroutines": (1, 100_000),
    "parked": (0, 1_000_000),
    "grace_s": (0, 86_400),
    "stop_grace_s": (0, 86_400),
    "memory_mb": (0, 1 << 30),
    "resolution_ms": (1, 3_600_000),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data: str = FOLDER  # folder of database and artifacts
    store: str = ""  # a database that several nodes share (postgresql://…); "": SQLite in the folder
    replica: str = ""  # a copy of it that lists may be read from
    node_name: str = ""  # this node's name, which it keeps; "": made from host and port
    advertise: str = ""  # the address at which other nodes reach this one; "": host and port
    role: str = "all"  # all, or api: answers and forwards, and owns nothing
    server_processes: int = 1  # of one server, on one port
    partitions: int = 8  # of a cluster; counts when its store is created
    leases: str = ""  # where leases are kept: redis://… or etcd://…; "": in the store
    lease_ttl: str = "10s"  # how long a node that says nothing still owns what it owns
    lease_retry: str = "1s"  # how often is looked for something to own
    host: str = "127.0.0.1"
    port: int = PORT
    token: str = ""  # needed as soon as `host` is more than loopback; "": on loopback the server makes one of its own
    unprotected: bool = False  # on loopback: every user of this machine is let in, without a token
    url: str = ""  # of the server, for clients and workers; "": host and port from here
    worker: str = ""  # a worker's name; "": made from host and process
    queues: str = "default"  # comma-separated
    labels: str = ""  # a=b,c=d
    resources: str = ""  # of a worker: cpu=4,memory=16GB,gpu=1; cpu and memory are detected where it names none
    app_version: str = ""  # of a worker's application; "": a hash of its code
    app_latest: bool = False  # make that version the latest, also where it was known before
    processes: int = 0  # that run tasks; 0: as many as cores, at least two
    threads: int = 16  # for tasks that ask for a thread
    coroutines: int = 64  # asynchronous tasks at once
    parked: int = (
        1_000  # suspended durable functions that stay in a worker's memory, so that they go on without a replay
    )
    grace_s: float = 30.0  # what running tasks get when a worker ends
    stop_grace_s: float = 5.0  # what a task gets to end after it was cancelled or timed out
    memory_mb: int = 0  # per child process; 0: no limit
    pass_env: str = ""  # variables that tasks get too, comma-separated; AWS_* stands for all that begin so
    allow_networks: str = ""  # that requests of http nodes may reach beside public addresses, comma-separated
    allow_ports: str = ""  # that they may reach beside 80 and 443, comma-separated
    secrets: str = ""  # folder with a file for each key that signs requests, or checks those of webhooks
    webhooks: str = ""  # file that declares the signed requests of other services that the server receives
    catch_up: str = ""  # how a server that starts deals with what is late; "": as each schedule says
    retention_runs: str = "3d"  # how long ended runs are in the database; then in the archive. "0": for ever
    retention_journal: str = "3d"  # the same for rows of the journal
    retention_archive: str = "365d"  # how long the archive is kept. "0": for ever
    retention_logs: str = "30d"  # the same for logs
    audit: bool = False  # decide every tick a second time and compare; a difference holds dispatch
    clock_hold: str = "5m"  # how long a step of the wall clock must persist before it is believed
    lane: str = ""  # address of a broker that carries dispatches to workers; "": the exchange brings them
    lane_queues: str = "default"  # whose work goes by the lane, comma-separated
    lane_credit: int = 1_000  # dispatches of one partition that may be on the lane
    lane_drain: int = 2_000  # a second, at most, when a broker comes back
    lane_untaken_s: float = 300.0  # what no worker took in this time is sent again under a new number
    resolution_ms: int = 1  # of the logical clock; counts when a store is created
    # The machine's settings (`core/base/machine_settings`), put at each start. None: as they are in the store.
    max_runs_per_tick: int | None = None
    max_changes_per_tick: int | None = None
    max_live_runs: int | None = None
    ageing_ms: int | None = None
    dedupe_window_ms: int | None = None
    shed_lag_ms: int | None = None
    shed_below: int | None = None
    loss_allowance: int | None = None
    retry_gap_ms: int | None = None
    retry_burst: int | None = None
    retry_earned_percent: int | None = None

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.url or f"http://{host}:{self.port}"

    @property
    def folder(self) -> Path:
        return Path(self.data)

    def of_machine(self) -> dict[str, int]:
        """Settings of the machine that were given here, by name."""
        given = {name: getattr(self, name) for name in CHANGEABLE}
        return {name: value for name, value in given.items() if value is not None}


class BadSettings(Refused):
    """A start is refused: one message, exit code 78."""


def load(flags: Mapping[str, Any], *, env: Mapping[str, str] | None = None, here: Path | None = None) -> Settings:
    """`flags` that are None were not given."""
    here = here or Path.cwd()
    chosen: dict[str, Any] = {}
    for source, values in (
        ("pyproject.toml", _pyproject(here)),
        (FILE, read_toml(here / FILE)),
        (".env", _environment(_dotenv(here / ".env"), here, strict=False)),
        ("the environment", _environment(os.environ if env is None else env, here, strict=True)),
        ("flags", {name: value for name, value in flags.items() if value is not None}),
    ):
        for name, value in values.items():
            chosen[name] = _converted(name, value, source)
    return Settings(**chosen)


def _converted(name: str, value: Any, source: str) -> Any:
    fields = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    if name not in fields:
        known = ", ".join(sorted(fields))
        raise BadSettings("unknown_setting", f"there is no such setting, in {source}; known: {known}", path=name)
    if name in CHANGEABLE and value == "":
        return None  # as in the store
    try:
        converted = msgspec.convert(value, fields[name], strict=source not in (".env", "the environment"))
    except msgspec.ValidationError as error:
        raise BadSettings("bad_setting", f"{error}, in {source}", path=name) from None
    if (why := _unfit(name, converted)) is not None:
        raise BadSettings("bad_setting", f"{why}, in {source}", path=name)
    return converted


def _unfit(name: str, value: Any) -> str | None:
    """Why a value of the right kind cannot be meant; None where it can."""
    if name in CHANGEABLE and value is not None:
        spec = CHANGEABLE[name]
        return None if spec.low <= value <= spec.high else f"{value} is not between {spec.low:,} and {spec.high:,}"
    if name in BOUNDS:
        least, most = BOUNDS[name]
        return None if least <= value <= most else f"{value} is not between {least:,} and {most:,}"
    if name == "token" and not (value.isascii() and value.isprintable() and value == value.strip()):
        return "it is sent in a header: use ASCII letters, digits and punctuation only, without surrounding spaces"
    if name == "url":
        return next((why for name in names(value) if (why := _unfit_url(name)) is not None), None)
    return None


def _unfit_url(url: str) -> str | None:
    with contextlib.suppress(ValueError):  # a port that is none
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0):
            return None
    return f"{url!r} is not a valid server address; write it like http://127.0.0.1:{PORT}"


def _environment(env: Mapping[str, str], here: Path, *, strict: bool) -> dict[str, str]:
    variables: dict[str, str] = {}
    names = {field.name for field in msgspec.structs.fields(Settings)}
    for key, value in env.items():
        name = key.removeprefix(PREFIX).lower()
        if not key.startswith(PREFIX) or name in OTHERS or name.startswith(KEY_START):
            continue
        if name.endswith("_file") and name.removesuffix("_file") in names:
            if key.removesuffix("_FILE") in env:
                message = f"{key.removesuffix('_FILE')} is set, too; remove one of them"
                raise BadSettings("two_values", message, path=key)
            variables[name.removesuffix("_file")] = _secret(here / value, key)
        elif name in names or not strict:
            variables[name] = value
        else:
            raise BadSettings(
                "unknown_setting", f"there is no such setting; known: {', '.join(sorted(names))}", path=key
            )
    return variables


def _secret(path: Path, key: str) -> str:
    try:
        mode = path.stat().st_mode
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadSettings("missing_file", f"{path.name} cannot be read: {why}", path=key) from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise BadSettings("open_secret", f"other users can read {path.name}; run chmod 600 on it", path=key)
    return text


def variables(here: Path) -> dict[str, str]:
    """What `.env` sets for tasks; a variable of the environment goes first."""
    return _dotenv(here / ".env")


def _dotenv(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    pairs = (line.split("=", 1) for line in _text(path).splitlines() if "=" in line and line[:1] != "#")
    return {key.strip(): value.strip().strip("'\"") for key, value in pairs}


def read_toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BadSettings("bad_file", f"it cannot be read: {error}", path=path.name) from None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadSettings("bad_file", f"it cannot be read: {why}", path=path.name) from None


def _pyproject(here: Path) -> dict[str, Any]:
    tool = read_toml(here / "pyproject.toml").get("tool", {})
    own = tool.get("tickwork", {}) if isinstance(tool, dict) else {}
    return own if isinstance(own, dict) else {}


def duration_setting(settings: Settings, name: str) -> int:
    """A setting that is a length of time, in ms."""
    try:
        return duration_ms(getattr(settings, name), path=name)
    except Refused as refused:
        raise BadSettings("bad_setting", refused.message, path=name) from None


def pairs(text: str, *, path: str) -> dict[str, str]:
    """`a=b,c=d`."""
    entries: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, mark, value = part.partition("=")
        if not mark or not name:
            raise BadSettings("bad_setting", f"{part!r} is not name=value", path=path)
        entries[name.strip()] = value.strip()
    return entries


def names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def passed(env: Mapping[str, str], text: str, *, path: str) -> dict[str, str]:
    """The variables that `DATABASE_URL,AWS_*` names. Ours hold keys, and are never among them."""
    patterns = names(text)
    for pattern in patterns:
        if pattern.startswith(PREFIX) or "=" in pattern or "*" in pattern[:-1]:
            message = (
                f"{pattern!r} is not a valid variable name, or is one of tickwork's own; use names like DATABASE_URL"
            )
            raise BadSettings("bad_setting", f"{message} or AWS_*", path=path)
    starts = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(PREFIX) and (name in patterns or (starts and name.startswith(starts)))
    }


def ports(text: str, *, path: str) -> tuple[int, ...]:
    """`8080,8443`."""
    for part in names(text):
        if not (part.isascii() and part.isdecimal() and 1 <= int(part) <= 65_535):
            raise BadSettings("bad_setting", f"{part!r} is not a valid port; use 1 to 65535", path=path)
    return tuple(int(part) for part in names(text))


# ---- How long what is kept, from the settings.


def how_long(settings: Settings) -> RetentionPolicy:
    try:
        return keep_of(
            runs=settings.retention_runs,
            journal=settings.retention_journal,
            archive=settings.retention_archive,
            logs=settings.retention_logs,
        )
    except Refused as refused:
        raise BadSettings("bad_setting", refused.message, path=refused.path) from None
