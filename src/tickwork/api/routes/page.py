"""The status page: one file of ours, nothing from elsewhere, and a policy that lets nothing else run."""

import base64
import re
from functools import cache
from hashlib import sha256
from importlib.resources import files

from tickwork.api.asked import Asked
from tickwork.api.messages import HTML, Answer
from tickwork.api.table import Gives, Route

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)


async def show(asked: Asked) -> Answer:  # noqa: ARG001 - the page is the same for all; it asks for what it shows
    page, policy = _page()
    return Answer(200, page, HTML, (b"content-security-policy", policy), (b"cache-control", b"no-cache"))


@cache
def _page() -> tuple[bytes, bytes]:
    """The file, and the policy that names its script and style by their digests: nothing else can run or be loaded."""
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
        lives="here",
        does=show,
        says="The status page. It holds no data; its script asks for the token and then for everything else.",
        tag="server",
        gives={200: Gives(None, (HTML,), "HTML.")},
        open=True,
    ),
)
