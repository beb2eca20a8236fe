"""What clients need besides the network: the server's address, backoff, event streams, and errors.

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
RUNS_REMEMBERED_MAX = 10_000  # per client, with the store of each
STREAM_SILENCE_S = 60.0  # a stream without data for this time is reopened


@dataclass(frozen=True, slots=True)
class Address:
    """The server's addresses, the token, and the author of requests."""

    urls: tuple[str, ...]  # of one server, or of several nodes: the next one is used if one is unreachable
    token: str = field(default="", repr=False)
    by: str = ""  # recorded in the journal; "": the server's default

    @staticmethod
    def of(url: str | None, token: str | None) -> "Address":
        """Read arguments first, then TICKWORK_URL, TICKWORK_TOKEN and TICKWORK_TOKEN_FILE, then the local default."""
        text = url or os.environ.get("TICKWORK_URL") or DEFAULT_URL
        urls = tuple(part for part in (entry.strip().rstrip("/") for entry in text.split(",")) if part)
        for address in urls or (text,):
            if not address.startswith(("http://", "https://")):
                raise Refused("bad_url", f"{address!r} is not a valid server address; write it like {DEFAULT_URL}")
        return Address(urls, _token() if token is None else token, _by())

    @property
    def url(self) -> str:
        """The address as text."""
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
    """Authentication with a given token."""

    def __init__(self, token: str) -> None:
        self._value = f"Bearer {token}"

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = self._value
        yield request


class LocalBearer(httpx2.Auth):
    """Authentication with the token of this user's local server. It is looked up for each request: the server may start
    later, and after it ended, another user's program may use the port."""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        local = localtoken.find(f"{request.url.scheme}://{request.url.netloc.decode()}")
        if local is not None:
            request.url = request.url.copy_with(host=httpx2.URL(local.url).host)  # where the token belongs
            request.headers["Authorization"] = f"Bearer {local.token}"
        yield request


BUSY_S, BUSY_PAUSE_S = 30.0, 0.5


class Backoff:
    """Limits the time for retries, and gives the pause before each. Receives the time, never reads a clock."""

    def __init__(self, *, now_s: float, within_s: float | None, busy_s: float = 0.0) -> None:
        """`busy_s`: minimum time for retries while the server responds with "try again", for example during a
        hand-over."""
        self._until_s = None if within_s is None else now_s + within_s
        self._busy_until_s = now_s + busy_s
        self._tries = 0

    def left_s(self, now_s: float) -> float | None:
        """Return the time left; None: no limit."""
        return None if self._until_s is None else max(0.0, self._until_s - now_s)

    def pause_s(
        self, now_s: float, *, at_least_ms: int = 0, cap_s: float = 5.0, answered: bool = False
    ) -> float | None:
        """Return the pause before the next try; None: give up. `answered`: the server responded with "try again"."""
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
    """Another store responds at the address: its runs are different runs, even with equal ids."""

    code = "other_store"

    def __init__(self, run: str, before: str, now: str) -> None:
        super().__init__(
            f"another store responds at this address: the run {run} is one of store {before}, and the server has store "
            f"{now} now. It was restored or created again, or belongs to another project; look for the run in the "
            "store that took it, or submit it again"
        )
        self.run, self.before, self.now = run, before, now


class Stores:
    """The store of each known run. A run of one store is never looked up in another."""

    def __init__(self) -> None:
        self._by_run: dict[str, str] = {}

    def headers(self, path: str, run: str = "") -> dict[str, str]:
        """Return the header that names the run's store, so that another store refuses the request."""
        store = self._by_run.get(run or _run_of(path), "")
        return {wire.STORE_HEADER: store} if store else {}

    def check(self, path: str, status: int, headers: Mapping[str, str], run: str = "") -> None:
        """Check a response to a request about one run. Raises `OtherStore`."""
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
        """Record new runs in the response to any request."""
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
    """Return the run in the path of a request; "": none."""
    head, _, rest = path.partition("/v1/runs/")
    name = rest.partition("/")[0]
    return "" if head or name == "batch" else unquote(name)


class EventReader:
    """Parses the lines of an event stream."""

    def __init__(self) -> None:
        self._event = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, line: str) -> Event | None:
        """Return an event if this line completes one."""
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
    """The server, or a proxy in front of it, does not provide an event stream. Poll instead."""


def stream_headers(last: str) -> dict[str, str]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    return {**headers, "Last-Event-ID": last} if last else headers


def check_stream(headers: Mapping[str, str]) -> None:
    if not headers.get("content-type", "").startswith("text/event-stream"):
        raise NoStream


def stream_error(status: int, headers: Mapping[str, str], body: bytes) -> Exception:
    """Return `NoStream` if the stream is missing: polling then shows whether the run itself is missing."""
    return NoStream() if status in (404, 405, 406, 501) else error_of(status, headers, body)


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> TickworkError:
    """Return the exception by what the caller can do next, with the server's code."""
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
    """Return whether the server may have executed a request that got no response."""
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
    """Return TICKWORK_BY, or user@host. It is a label, not a credential."""
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
