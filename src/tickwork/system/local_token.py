"""The token that a server makes for itself if it was given none, and how clients of the same user find it.

A port on loopback is open to every user of the machine, so such a server is protected too. Its token is a file that
only its user can read. A client knows the address alone, so a server that listens writes down, in a folder that is
private to its user, which token belongs to its address and which process it is. A client sends a token only to an
address for which there is such a note, and only while that process lives: another process on the port gets nothing.
`localhost` is replaced by the address in the note, because the name may lead to another user's port.
"""

import contextlib
import ipaddress
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tickwork.system.private_files import private_file, private_folder

FILE = "token"  # in a data folder
CHARACTERS_MIN = 16
NOT_LET_IN = (
    "the server refused this user's token: set TICKWORK_TOKEN to its token, or TICKWORK_TOKEN_FILE to the file that"
    " holds it; a server that made its own has it in its data folder (.tickwork/token), for the user who started it"
)
LOCALHOST = ("127.0.0.1", "::1")


class Unsafe(Exception):
    """A file or folder that should be private is not, or cannot be made."""


class ServerRecord(msgspec.Struct, frozen=True):
    token: str
    pid: int


@dataclass(frozen=True, slots=True)
class LocalServer:
    url: str  # with the address in place of a name
    token: str


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def state_folder() -> Path:
    """Where this user's servers leave their notes: the same for every shell and service of the user."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not base:
        home = os.path.expanduser("~")
        base = f"{home}/.local/state" if os.access(home, os.W_OK) and home not in ("/", "~") else ""
    return Path(base) / "tickwork" if base else Path(tempfile.gettempdir()) / f"tickwork-{os.getuid()}"


def own_token(path: Path) -> str:
    """The token in this file; a new one where there is no file. Raises `Unsafe`."""
    try:
        private_folder(path.parent)
        fresh = secrets.token_urlsafe(32)
        with contextlib.suppress(FileExistsError):
            _write_new(path, fresh.encode() + b"\n")
            return fresh
    except OSError as error:
        raise Unsafe(f"{path} cannot be written: {error.strerror or error}; set TICKWORK_TOKEN") from None
    try:
        token = _read_private(path).decode("ascii", "replace").strip()
    except OSError as error:
        raise Unsafe(f"{path} cannot be read: {error.strerror or error}; set TICKWORK_TOKEN") from None
    if len(token) < CHARACTERS_MIN:
        raise Unsafe(f"{path} contains no token; delete the file, and a new token is created")
    return token


def file_of_store(store: str) -> Path:
    """The file that all nodes of this user at one database share: they have no data folder in common."""
    return _state() / f"store-{sha256(store.encode()).hexdigest()[:32]}"


@contextlib.contextmanager
def announced(host: str, port: int, token: str) -> Iterator[None]:
    """A note for clients, for as long as the server listens there."""
    path = _note(_state(), host, port)
    data = msgspec.json.encode(ServerRecord(token, os.getpid()))
    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # of a server that was killed
    _write_new(path, data)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, msgspec.DecodeError, Unsafe):
            if msgspec.json.decode(_read_private(path), type=ServerRecord).pid == os.getpid():
                path.unlink()


def find(url: str) -> LocalServer | None:
    """The token for the server at this address, where a server of this user says that it is there."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return None
        port = parts.port or 80
        for host in LOCALHOST if parts.hostname == "localhost" else (parts.hostname,):
            if not ipaddress.ip_address(host).is_loopback:
                continue
            note = _noted(host, port)
            if note is not None:
                shown = f"[{host}]" if ":" in host else host
                return LocalServer(f"http://{shown}:{port}{parts.path}", note.token)
    return None


def _noted(host: str, port: int) -> ServerRecord | None:
    folder = state_folder()
    try:
        _check_private(os.lstat(folder), folder)
        note = msgspec.json.decode(_read_private(_note(folder, host, port)), type=ServerRecord)
        os.kill(note.pid, 0)
    except (OSError, msgspec.DecodeError, Unsafe):  # no note, not ours, or its process is gone
        return None
    return note


def _note(folder: Path, host: str, port: int) -> Path:
    """With the machine's name: a home folder may be shared by several."""
    machine = "".join(sign if sign.isalnum() or sign in "-." else "_" for sign in socket.gethostname())[:64]
    return folder / f"{machine}-{host.replace(':', '_')}-{port}"


def _state() -> Path:
    folder = state_folder()
    try:
        private_folder(folder)
        _check_private(os.lstat(folder), folder)
    except OSError as error:
        raise Unsafe(f"{folder} cannot be used: {error.strerror or error}") from None
    return folder


def _write_new(path: Path, data: bytes) -> None:
    """Write it atomically, so that no half token is ever read. Raises `FileExistsError`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(private_file(fresh), "wb") as file:
        file.write(data)
    try:
        os.link(fresh, path)
    finally:
        fresh.unlink()


def _read_private(path: Path) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        _check_private(os.fstat(file.fileno()), path)
        return file.read(4_096)


def _check_private(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid():  # its owner knows the token, also where we are root
        raise Unsafe(f"{path} belongs to another user; remove it, or set TICKWORK_TOKEN")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise Unsafe(
            f"other users can read {path}, so its token is not secret; delete the file, and a new token is created"
        )
