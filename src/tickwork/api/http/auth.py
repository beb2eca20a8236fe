"""Who may come in, and what every answer carries.

With a token, a request names it, or brings the cookie of a browser that was let in; a cookie counts for requests of the
page itself alone. Without one the server is for this machine only: the Host must be a loopback name, because a page of
a stranger can make a browser resolve its own name to 127.0.0.1, and a request that changes something may not come from
another origin. What a browser sends for a page of another site is refused either way.
"""

import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tickwork.api.http.browser_sessions import PATH as OPEN_PATH
from tickwork.api.http.browser_sessions import BrowserSessions
from tickwork.api.http.errors import problem
from tickwork.api.http.request import NODE, PARTITION
from tickwork.api.http.response import Header, Response
from tickwork.cluster.node_credentials import CODE

SESSIONS = "tickwork.sessions"  # in the scope of a request that opens one
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "[::1]", "::1"))
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
HEADERS: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
# Duplicates of these headers are ambiguous: a proxy between client and server may have used the other one.
ONCE = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"cookie",
        b"host",
        b"idempotency-key",
        b"if-none-match",
        b"last-event-id",
        b"origin",
        b"sec-fetch-site",
        b"webhook-id",
        b"webhook-signature",
        b"webhook-timestamp",
        b"x-tickwork-by",
        b"x-tickwork-session",
        b"x-tickwork-store",
        b"x-tickwork-worker",
        NODE,
        PARTITION,
    )
)
DEFAULTS: tuple[Header, ...] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Authenticator:
    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        open_paths: frozenset[str],
        hosts: Iterable[str],
        sessions: BrowserSessions | None = None,
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._token = token.encode() if token is not None else None
        self._open_paths = frozenset(path for path in open_paths if "{" not in path)
        self._open_folders = tuple(path.partition("{")[0] for path in open_paths if "{" in path)
        self._hosts = LOOPBACK_NAMES | frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = guarded(message["headers"])
            await send(message)

        refused = self.refusal(scope)
        if refused is None:
            await self._app(scope, receive, send_guarded)
        else:
            await refused.send(send_guarded, body=scope["method"] != "HEAD")

    def is_open(self, scope: Scope) -> bool:
        return self._opens(scope["path"])

    def _opens(self, path: str) -> bool:
        """Return whether the path is open itself, or is one name in an open folder."""
        if path in self._open_paths:
            return True
        return any(path.startswith(folder) and "/" not in path[len(folder) :] for folder in self._open_folders)

    def refusal(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]) and (twice := _twice(scope["headers"])):
            return problem(400, "repeated_header", "give this header once", path=f"header.{twice}")
        site = headers.get(b"sec-fetch-site")
        is_open = self._opens(scope["path"])
        if site == b"cross-site" and not (is_open and scope["method"] in SAFE_METHODS):
            return problem(403, "cross_site", "pages of other sites must not use this server")
        if PARTITION in headers and NODE not in headers:
            return not_a_node(f"the header {PARTITION.decode()} is for nodes of the cluster only; leave it out")
        if self._token is not None:
            if scope["path"] == OPEN_PATH:
                scope[SESSIONS] = self._sessions
            if is_open or _bearer(headers, self._token) or self._is_page(headers, scope["method"], site):
                return None
            return problem(
                401,
                "unauthorized",
                "this server needs a token: send it as `Authorization: Bearer <token>`",
                (b"www-authenticate", b'Bearer realm="tickwork"'),
            )
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _name(host) not in self._hosts:
            return problem(
                403, "bad_host", "without a token, this server accepts only loopback host names; use http://127.0.0.1"
            )
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] not in SAFE_METHODS and not _same(origin, host):
            return problem(403, "bad_origin", "a request from another origin must not change anything")
        return None

    def _is_page(self, headers: dict[bytes, bytes], method: str, site: bytes | None) -> bool:
        """Return whether the request comes from our own page in a browser with a valid cookie.

        A browser also sends the cookie to other ports of the same host, so the origin is compared.
        """
        cookies = headers.get(b"cookie")
        if self._sessions is None or cookies is None or site not in (None, b"same-origin", b"none"):
            return False
        origin, host = headers.get(b"origin"), headers.get(b"host", b"").decode("latin-1").lower()
        if origin is None:
            if method not in SAFE_METHODS:
                return False
        elif not _same(origin, host):
            return False
        return self._sessions.holds(cookies)


def not_a_node(detail: str) -> Response:
    return problem(403, CODE, detail)


def _twice(headers: list[Header]) -> str:
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in ONCE and name in seen:
            return name.decode()
        seen.add(name)
    return ""


def guarded(headers: list[Header]) -> list[Header]:
    """Return the headers with those that every response carries."""
    given = {name for name, _ in headers}
    return [*headers, *HEADERS, *(pair for pair in DEFAULTS if pair[0] not in given)]


def _bearer(headers: dict[bytes, bytes], token: bytes) -> bool:
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    return hmac.compare_digest(given.strip(), token) and scheme.lower() == b"bearer"


def _name(host: str) -> str:
    """Return the host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _same(origin: bytes, host: str) -> bool:
    _, _, rest = origin.decode("latin-1").lower().partition("://")
    return rest == host
