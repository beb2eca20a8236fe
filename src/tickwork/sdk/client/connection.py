"""How clients reach a server, apart from the network itself: its address, patience, streams, and errors.

Nothing here waits or sends, so both clients share it, and time is an argument.
"""

import getpass
import os
import random
import socket
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import httpx2
import msgspec

from tickwork.core.base.errors import (
    Conflict,
    InvalidDefinition,
    OutcomeUnknown,
    Problem,
    Refused,
    TickworkError,
    Unavailable,
)
from tickwork.protocol import http_models as wire
from tickwork.system import local_token as localtoken

DEFAULT_URL = "http://127.0.0.1:8440"
BY_CHARACTERS_MAX = 128
RUNS_REMEMBERED_MAX = 10_000  # of a client: with the store that each was seen in
STREAM_SILENCE_S = 60.0  # a stream that says nothing for so long is opened again


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, what lets us in, and who we say we are."""

    urls: tuple[str, ...]  # of one server, or of several nodes of a cluster: the next one where one is away
    token: str = field(default="", repr=False)
    by: str = ""  # as the journal remembers it; "": the server has a word of its own

    @staticmethod
    def of(url: str | None, token: str | None) -> "Address":
        """Arguments first, then TICKWORK_URL, TICKWORK_TOKEN and TICKWORK_TOKEN_FILE, then this machine."""
        text = url or os.environ.get("TICKWORK_URL") or DEFAULT_URL
        urls = tuple(part for part in (entry.strip().rstrip("/") for entry in text.split(",")) if part)
        for address in urls or (text,):
            if not address.startswith(("http://", "https://")):
                raise Refused("bad_url", f"{address!r} is no address of a server; write it like {DEFAULT_URL}")
        return Address(urls, _token() if token is None else token, _by())

    @property
    def url(self) -> str:
        """As a person would write it."""
        return ",".join(self.urls)

    @property
    def local(self) -> bool:
        hosts = [url.partition("://")[2] for url in self.urls]
        return all(host.startswith(("127.", "localhost", "[::1]")) for host in hosts)

    def headers(self) -> dict[str, str]:
        return {"X-Tickwork-By": self.by} if self.by else {}

    def auth(self) -> httpx2.Auth:
        return Bearer(self.token) if self.token else LocalBearer()


class Bearer(httpx2.Auth):
    """A token that was given."""

    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = self._value
        yield request


class LocalBearer(httpx2.Auth):
    """The token of a server of this user on this machine, looked up for each request: the server may start later, and
    where it ended the port may be somebody else's."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        local = localtoken.find(f"{request.url.scheme}://{request.url.netloc.decode()}")
        if local is not None:
            request.url = request.url.copy_with(host=httpx2.URL(local.url).host)  # where the token belongs
            request.headers["Authorization"] = f"Bearer {local.token}"
        yield request


BUSY_S, BUSY_PAUSE_S = 30.0, 0.5


class Backoff:
    """How long to go on trying, and how long to wait before the next try. Told the time, never asks for it."""

    def __init__(self, *, now_s: float, within_s: float | None, busy_s: float = 0.0) -> None:
        """`busy_s`: how long a server that answers "try again" is asked at least; it is there, and somebody may be
        taking over from somebody."""
        self._until_s = None if within_s is None else now_s + within_s
        self._busy_until_s = now_s + busy_s
        self._tries = 0

    def left_s(self, now_s: float) -> float | None:
        """None: for ever."""
        return None if self._until_s is None else max(0.0, self._until_s - now_s)

    def pause_s(
        self, now_s: float, *, at_least_ms: int = 0, cap_s: float = 5.0, answered: bool = False
    ) -> float | None:
        """None: it is over. `answered`: the server did, with "try again"."""
        self._tries += 1
        grown = min(cap_s, 0.05 * 2 ** min(self._tries - 1, 12))
        pause = max(grown * (0.5 + random.random() / 2), at_least_ms / 1_000)  # noqa: S311 - spreads clients, no secret
        left = self.left_s(now_s)
        if answered and left is not None:
            left, pause = max(left, self._busy_until_s - now_s), min(pause, BUSY_PAUSE_S)
        return None if left is not None and pause >= left else pause


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event."""

    event: str
    data: str
    id: str


class OtherStore(Conflict):
    """Another store answers at the address: its runs are other runs, also where their ids are alike."""

    code = "other_store"

    def __init__(self, run: str, before: str, now: str) -> None:
        super().__init__(
            f"another store answers at this address: the run {run} is one of store {before}, and the server has store "
            f"{now} now. It was restored or created again, or belongs to another project; look for the run in the "
            "store that took it, or submit it again"
        )
        self.run, self.before, self.now = run, before, now


class Stores:
    """Which store each run was seen in. A run that was submitted to one store is never looked for in another."""

    def __init__(self) -> None:
        self._by_run: dict[str, str] = {}

    def headers(self, path: str, run: str = "") -> dict[str, str]:
        """What a request about a run names its store by, so that another store does nothing of it."""
        store = self._by_run.get(run or _run_of(path), "")
        return {wire.STORE_HEADER: store} if store else {}

    def check(self, path: str, status: int, headers: Mapping[str, str], run: str = "") -> None:
        """A response to a request about one run. Raises `OtherStore`."""
        store, run = headers.get(wire.STORE_HEADER, ""), run or _run_of(path)
        if not store or not run:
            return
        before = self._by_run.get(run)
        if before is None:
            if status < 300:
                self._note(run, store)
        elif before != store:
            raise OtherStore(run, before, store)

    def submitted(self, path: str, answer: object, headers: Mapping[str, str]) -> None:
        """The answer to any request: it may be about new runs."""
        store = headers.get(wire.STORE_HEADER, "")
        if isinstance(answer, wire.Submitted):
            self._note(answer.id, store)
        elif path == "/v1/runs/batch" and isinstance(answer, dict):
            for run in answer.get("runs", ()):
                if "id" in run:
                    self._note(run["id"], store)

    def _note(self, run: str, store: str) -> None:
        self._by_run.pop(run, None)  # so that it is the latest
        if store:
            self._by_run[run] = store
            if len(self._by_run) > RUNS_REMEMBERED_MAX:
                self._by_run.pop(next(iter(self._by_run)), None)


def _run_of(path: str) -> str:
    """The run that the path of a request names; "": none."""
    head, _, rest = path.partition("/v1/runs/")
    name = rest.partition("/")[0]
    return "" if head or name == "batch" else unquote(name)


class EventReader:
    """Lines of a stream to events."""

    def __init__(self) -> None:
        self._event = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, line: str) -> Event | None:
        """An event where this line ends one."""
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            elif name == "id":
                self._id = value
            return None
        if not self._data:
            self._event = ""
            return None
        event = Event(self._event or "message", "\n".join(self._data), self._id)
        self._event, self._data = "", []
        return event


class NoStream(Exception):
    """This server, or something before it, has no stream of events here; polling does."""


def stream_headers(last: str) -> dict[str, str]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    return {**headers, "Last-Event-ID": last} if last else headers


def check_stream(headers: Mapping[str, str]) -> None:
    if not headers.get("content-type", "").startswith("text/event-stream"):
        raise NoStream


def stream_error(status: int, headers: Mapping[str, str], body: bytes) -> Exception:
    """Missing or not offered: poll instead, which also tells whether the run itself is missing."""
    return NoStream() if status in (404, 405, 406, 501) else error_of(status, headers, body)


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> TickworkError:
    """Sorted by what the caller does next; the code is the server's."""
    try:
        problem = msgspec.json.decode(body, type=wire.Problem)
    except msgspec.MsgspecError:
        text = body[:200].decode(errors="replace").strip()
        problem = wire.Problem(title=f"the server answered {status}", status=status, code=f"http_{status}", detail=text)
    message = problem.detail or problem.title
    if problem.code == "unauthorized":
        message = localtoken.NOT_LET_IN
    if problem.problems:
        listed = [
            Problem(entry.get("path", ""), entry.get("code", ""), entry.get("message", ""))
            for entry in problem.problems
        ]
        return InvalidDefinition(listed)
    error: TickworkError
    if status in (409, 412):
        error = Conflict(message)
    elif status == 429 or status >= 500:
        after = headers.get("retry-after", "")
        kind = OutcomeUnknown if status in (502, 504) else Unavailable  # also of a proxy that lost its answer
        error = kind(message, retry_after_ms=int(after) * 1_000 if after.isdecimal() else 0)
    else:
        error = Refused(problem.code, message, path=problem.path)
    error.code = problem.code
    return error


def may_have_arrived(error: Exception) -> bool:
    """Whether the server may have done what it was sent, although there is no answer."""
    if isinstance(error, httpx2.TransportError):
        return not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    return isinstance(error, OutcomeUnknown)


def unreachable(address: Address, error: Exception) -> Unavailable:
    if isinstance(error, Unavailable):
        return error
    reason = str(error) or type(error).__name__
    where = "is the server running (tickwork dev app.py), and is TICKWORK_URL right?"
    message = f"no answer from {address.url}: {reason}; {where}"
    return Unavailable(message, retry_after_ms=1_000)


def _by() -> str:
    """TICKWORK_BY, or user@host. It is what people say of themselves, not what lets them in."""
    name = os.environ.get("TICKWORK_BY", "").strip()
    if not name:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a number that has no name here, as in many containers
            user = f"uid{os.getuid()}"
        name = f"{user}@{socket.gethostname()}"
    return "".join(sign if sign.isascii() and sign.isprintable() else "?" for sign in name)[:BY_CHARACTERS_MAX]


def _token() -> str:
    if token := os.environ.get("TICKWORK_TOKEN"):
        return token
    if file := os.environ.get("TICKWORK_TOKEN_FILE"):
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise Refused("bad_token_file", f"TICKWORK_TOKEN_FILE cannot be read: {error}") from None
    return ""
