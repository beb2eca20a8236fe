"""The status page: one file without external resources, and a content policy that lets nothing else run."""

import base64
import re
from functools import cache
from hashlib import sha256
from importlib.resources import files

from tickwork.api.http.auth import SESSIONS
from tickwork.api.http.browser_sessions import COOKIE, PATH, SESSION_S, BrowserSessions
from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.request import Request
from tickwork.api.http.response import HTML, Header, Response
from tickwork.api.http.route import QueryParam, ResponseSpec, Route

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


async def show(request: Request) -> Response:  # noqa: ARG001 - the page is the same for all; its script fetches the data
    page, policy = _page()
    return Response(200, page, HTML, (b"content-security-policy", policy), (b"cache-control", b"no-cache"))


async def open_page(request: Request) -> Response:
    """Exchange a single-use code for a cookie."""
    sessions: BrowserSessions | None = request.scope.get(SESSIONS)
    if sessions is None:  # the server needs no token
        return _to_page()
    session = sessions.exchange(request.query["code"])
    if session is None:
        detail = "this link was used or is out of date; `tickwork page` prints a new one, or give the token to the page"
        raise HttpRefused(403, "link_used", detail)
    port = request.header(b"host").rpartition(":")[2]
    name = f"{COOKIE}{port if port.isascii() and port.isdecimal() else 80}"
    cookie = f"{name}={session}; Path=/; Max-Age={SESSION_S}; HttpOnly; SameSite=Strict"
    return _to_page((b"set-cookie", cookie.encode("latin-1")))


def _to_page(*headers: Header) -> Response:
    return Response(303, b"", HTML, (b"location", b"/"), *headers)


@cache
def _page() -> tuple[bytes, bytes]:
    """Return the file and its content policy. The policy names script and style by digest, so nothing else can run."""
    page = files("tickwork.api").joinpath("page.html").read_bytes()
    policy = (
        f"default-src 'none'; script-src {_digests(_SCRIPT, page)}; style-src {_digests(_STYLE, page)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy.encode()


def _digests(pattern: re.Pattern[bytes], page: bytes) -> str:
    return " ".join(f"'sha256-{base64.b64encode(sha256(part).digest()).decode()}'" for part in pattern.findall(page))


ROUTES = (
    Route(
        method="GET",
        path="/",
        routed_to="here",
        handler=show,
        summary="Return the status page. It contains no data; its script asks for the token, then fetches the data.",
        tag="server",
        responses={200: ResponseSpec(None, (HTML,), "HTML.")},
        open=True,
    ),
    Route(
        method="GET",
        path=PATH,
        routed_to="here",
        handler=open_page,
        summary="Log a browser in by a single-use link: set a cookie and redirect to the page.",
        tag="server",
        query=(QueryParam("code", "From the link that the server or `tickwork page` printed."),),
        responses={303: ResponseSpec(None, (HTML,), "Redirect to the page.", ("Location", "Set-Cookie"))},
        open=True,
    ),
)
