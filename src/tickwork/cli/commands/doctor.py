"""`tickwork doctor`: what must be right before anything can work, each with what to do where it is not.

Nothing is changed and nothing is repaired.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import ClientOptions, settings
from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.version import BUILT_MS

if TYPE_CHECKING:
    from tickwork.compose.settings import Settings
    from tickwork.protocol.http_models import Status
    from tickwork.sdk.client.client import Client

FREE_MB_MIN = 200
PYTHON_MIN = (3, 11)
_ADVICE = {  # by kind of alarm: what to correct
    "other_store": "correct TICKWORK_ADVERTISE of that node, or the network between the nodes",
    "stranded": "tickwork versions",
}


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    result: Literal["ok", "warn", "fail"]
    detail: str
    advice: str = ""


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    checks: tuple[Check, ...]


def doctor(*, data: str | None = None, to: ClientOptions | None = None) -> int:
    """Check the set-up and say how to correct problems. Exit code 1 if a check fails.

    Parameters
    ----------
    data
        The data folder (TICKWORK_DATA; .tickwork).
    """
    from tickwork.cli.output import console, print_json, safe, table

    to = to or ClientOptions()
    checks = tuple(_all(data, to))
    if to.json:
        print_json(Checks(checks=checks))
    else:
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        rows = [
            (f"[{colours[check.result]}]{check.result}[/]", check.name, safe(check.detail), safe(check.advice))
            for check in checks
        ]
        console().print(table(("", "check", "found", "what to do"), rows))
    return Exit.FAILED if any(check.result == "fail" for check in checks) else Exit.OK


def _all(data: str | None, to: ClientOptions) -> Iterator[Check]:
    yield _python()
    yield _sqlite()
    yield _clock()
    try:
        chosen = settings({"data": data, "url": to.url})
    except Refused as refused:
        yield Check(name="settings", result="fail", detail=str(refused), advice="correct it; see docs/cli.md")
        return
    kept = "store in PostgreSQL" if chosen.store else f"data in {chosen.data}"
    yield Check(name="settings", result="ok", detail=f"{kept}, server at {chosen.address}")
    yield _exposure(chosen)
    if chosen.store:
        yield from _store(chosen)
    else:
        for check in (_folder, _rights, _file_system, _schema):
            yield check(chosen)
    yield from _server(chosen)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON_MIN:
        return Check(name="python", result="fail", detail=version, advice="install Python 3.11 or later")
    return Check(name="python", result="ok", detail=f"{version} at {sys.executable}")


def _sqlite() -> Check:
    import apsw

    from tickwork.stores.sqlite.open import require_version

    return _tried("sqlite", require_version, f"SQLite {apsw.sqlite_lib_version()}", "pip install --upgrade apsw")


def _clock() -> Check:
    now_ms = time.time_ns() // 1_000_000
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms / 1000))
    if now_ms < BUILT_MS:
        advice = "set the clock; schedules and tokens depend on it"
        return Check(name="clock", result="fail", detail=f"{shown} is before this program was built", advice=advice)
    return Check(name="clock", result="ok", detail=shown)


def _exposure(chosen: "Settings") -> Check:
    from tickwork.api.server import check_exposure

    token = chosen.token or None
    own = "accessible to every user of this machine" if chosen.unprotected else "the server creates its own token"
    shown = f"{chosen.host}, {'with a token' if token else own}"
    return _tried("token", lambda: check_exposure(chosen.host, token=token), shown, "set TICKWORK_TOKEN_FILE")


def _folder(chosen: "Settings") -> Check:
    folder = chosen.folder
    nearest = folder.resolve()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        advice = "name a folder that this user may write: --data, TICKWORK_DATA"
        return Check(name="folder", result="fail", detail=f"{nearest} cannot be written", advice=advice)
    free_mb = shutil.disk_usage(nearest).free // (1024 * 1024)
    if free_mb < FREE_MB_MIN:
        return Check(name="folder", result="warn", detail=f"{folder} has {free_mb} MB left", advice="free some space")
    return Check(name="folder", result="ok", detail=f"{folder} can be written, {free_mb} MB are free")


def _rights(chosen: "Settings") -> Check:
    """Check whether other users can read inputs and results."""
    from tickwork.compose.server import ARTIFACTS, DATABASE
    from tickwork.system.private_files import open_to_others

    folder = chosen.folder
    there = [path for path in (folder, folder / DATABASE, folder / ARTIFACTS) if path.exists()]
    wide = [path for path in there if open_to_others(path)]
    # If other users cannot enter the folder, the permissions of its files do not matter.
    if not wide or folder not in wide:
        return Check(name="rights", result="ok", detail="only its owner" if there else "the folder does not exist yet")
    detail = f"other users can read {', '.join(map(str, wide))}"
    return Check(name="rights", result="warn", detail=detail, advice=f"chmod -R go= {folder}")


def _file_system(chosen: "Settings") -> Check:
    from tickwork.stores.sqlite.open import NETWORK, file_system

    kind = file_system(chosen.folder, Path("/proc/self/mountinfo"))
    if kind in NETWORK:
        detail = f"{chosen.folder} is on {kind}, where SQLite's locks cannot be trusted"
        return Check(name="file system", result="fail", detail=detail, advice="use a local disk: --data")
    return Check(name="file system", result="ok", detail=kind or "not known here")


def _schema(chosen: "Settings") -> Check:
    """Read without the lock, so that a server may go on meanwhile."""
    import apsw

    from tickwork.compose.server import DATABASE
    from tickwork.stores.sqlite.open import APPLICATION_ID
    from tickwork.stores.sqlite.statements import migrations

    path = chosen.folder / DATABASE
    if not path.exists():
        return Check(name="schema", result="ok", detail="no database yet; the first start creates it")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            application, version = connection.pragma("application_id"), connection.pragma("user_version")
        finally:
            connection.close()
    except apsw.Error as error:
        advice = "restore a backup; keep this file for analysis"
        return Check(name="schema", result="fail", detail=f"{path} cannot be read: {error}", advice=advice)
    known = len(migrations())
    if application != APPLICATION_ID:
        return Check(name="schema", result="fail", detail=f"{path} is of another program", advice="name another folder")
    if version > known:
        advice = "run the newer program that wrote it"
        return Check(name="schema", result="fail", detail=f"schema {version}, known are {known}", advice=advice)
    later = f"; the next start migrates it to {known}" if version < known else ""
    return Check(name="schema", result="ok", detail=f"schema {version}{later}")


def _store(chosen: "Settings") -> Iterator[Check]:
    """What nodes share. Only looked at: a schema that is not there is for the first node to make."""
    import asyncio

    from tickwork.stores.postgres.open import look

    try:
        seen = asyncio.run(look(chosen.store))
    except TickworkError as error:
        yield Check(
            name="store", result="fail", detail=str(error), advice="correct TICKWORK_STORE; see docs/cluster.md"
        )
        return
    later = f"; the next start migrates it to {seen.known}" if seen.schema < seen.known else ""
    shown = f"schema {seen.schema}{later}" if seen.schema else "no store yet; the first start creates it"
    yield Check(name="store", result="ok", detail=f"PostgreSQL {seen.server} at {seen.where}, {shown}")
    for note in seen.notes:
        yield Check(name="store", result="warn", detail=note, advice="switch it on in postgresql.conf")


def _server(chosen: "Settings") -> Iterator[Check]:
    from tickwork.sdk.client.client import Client

    with Client(chosen.address, token=chosen.token or None, deadline=0.2) as client:
        try:
            status = client.status()
        except Unavailable:
            yield _port(chosen)
            return
        except Refused as refused:
            advice = "set TICKWORK_TOKEN_FILE to the server's token" if refused.code == "unauthorized" else ""
            yield Check(name="server", result="fail", detail=str(refused), advice=advice)
            return
        detail = f"{status.version} at {chosen.address}"
        if not status.accepting:
            yield Check(name="server", result="fail", detail=f"{detail} accepts nothing", advice="tickwork status")
        else:
            yield Check(name="server", result="ok", detail=detail)
        yield _workers(client)
        yield from _known(status)


def _known(status: "Status") -> Iterator[Check]:
    """What the server itself has noticed, with what to do about it."""
    if status.clock is not None and status.clock.description:
        advice = "correct the clock, or: tickwork clock confirm"
        yield Check(name="server's clock", result="warn", detail=status.clock.description, advice=advice)
    for alarm in dict.fromkeys(status.alarms):
        kind, _, detail = alarm.partition(": ")
        if kind in _ADVICE:
            yield Check(name=kind, result="warn", detail=detail, advice=_ADVICE[kind])


def _workers(client: "Client") -> Check:
    count = len(client.workers())
    if not count:
        return Check(name="workers", result="warn", detail="none is connected", advice="tickwork worker app.py")
    return Check(name="workers", result="ok", detail=str(count))


def _port(chosen: "Settings") -> Check:
    if chosen.url:
        advice = "start it, or correct TICKWORK_URL"
        return Check(name="server", result="fail", detail=f"no server responds at {chosen.url}", advice=advice)
    family = socket.AF_INET6 if ":" in chosen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((chosen.host, chosen.port))
        except OSError as error:
            detail = f"port {chosen.port} cannot be used: {error.strerror}, and no tickwork server responds there"
            return Check(name="port", result="fail", detail=detail, advice="choose another: --port, TICKWORK_PORT")
    advice = "tickwork dev app.py"
    return Check(
        name="server", result="warn", detail=f"no server is running; port {chosen.port} is free", advice=advice
    )


def _tried(name: str, check: Callable[[], None], detail: str, advice: str) -> Check:
    try:
        check()
    except TickworkError as error:
        return Check(name=name, result="fail", detail=str(error), advice=advice)
    return Check(name=name, result="ok", detail=detail)
