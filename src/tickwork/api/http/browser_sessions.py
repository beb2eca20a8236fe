"""Sign-in of a browser: a link that works once sets a cookie.

A browser cannot read the token's file, and a token does not belong into an address. So a server, or a person who has
its token, makes a link with a code that is valid for a few minutes. Opening it sets a cookie that scripts cannot read
and other sites cannot use. Both are signed with the token, so that every process of a server accepts them.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256

LINK_S = 600
SESSION_S = 7 * 86_400
PATH = "/open"
COOKIE = "tickwork_"  # and the port, because browsers do not separate cookies by port
_LINK, _SESSION = b"link", b"session"


class BrowserSessions:
    def __init__(self, token: str, *, now_s: Callable[[], float] = time.time) -> None:
        self._token = token.encode()
        self._now_s = now_s
        self._used: dict[str, float] = {}  # used codes, until they expire

    def link(self, address: str) -> str:
        return f"{address}{PATH}?code={self._signed(_LINK, LINK_S)}"

    def exchange(self, code: str) -> str | None:
        """Return a cookie's value for a valid, unused code."""
        now_s = self._now_s()
        self._used = {used: until_s for used, until_s in self._used.items() if until_s > now_s}
        if code in self._used or not self._is_valid(_LINK, code):
            return None
        self._used[code] = now_s + LINK_S
        return self._signed(_SESSION, SESSION_S)

    def holds(self, cookies: bytes) -> bool:
        """Return whether a request has a valid cookie of this server."""
        for part in cookies.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name.startswith(COOKIE) and self._is_valid(_SESSION, value):
                return True
        return False

    def _signed(self, kind: bytes, seconds: int) -> str:
        text = f"{int(self._now_s()) + seconds}.{secrets.token_urlsafe(12)}"
        return f"{text}.{self._seal(kind, text)}"

    def _is_valid(self, kind: bytes, value: str) -> bool:
        text, _, seal = value.rpartition(".")
        until, _, _ = text.partition(".")
        if not (until.isascii() and until.isdecimal() and len(until) < 12 and seal.isascii()):
            return False
        return hmac.compare_digest(seal, self._seal(kind, text)) and int(until) > self._now_s()

    def _seal(self, kind: bytes, text: str) -> str:
        return hmac.new(self._token, b"tickwork page " + kind + b" " + text.encode(), sha256).hexdigest()
