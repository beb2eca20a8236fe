"""The page: ours alone, and nothing in it that a name could turn into code."""

import base64
import re
from hashlib import sha256

from tickwork.protocol.http_models import ClockStatus, Status


async def test_the_policy_names_the_one_script_and_the_one_style(http):
    answer = await http.get("/")
    policy = answer.headers["content-security-policy"]

    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "'self'" in policy.split("connect-src")[1].split(";")[0]


async def test_the_page_loads_nothing_and_writes_no_markup(http):
    page = (await http.get("/")).text

    assert re.findall(r"""(?:src|href|action)\s*=\s*["'](?!#|data:,)[^"']*["']""", page) == []
    assert "http:" not in page and "https:" not in page
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", " style="):
        assert word not in page


async def test_every_path_that_the_page_asks_for_is_in_the_table(http):
    from tickwork.api.app import TABLE

    page = (await http.get("/")).text
    asked = set(re.findall(r'call\("(/v1/[a-z]+)', page))

    assert asked and asked <= {route.path for route in TABLE}


async def test_the_page_shows_alarms_and_what_is_wrong_with_the_clock(http):
    page = (await http.get("/")).text
    read = set(re.findall(r"\bstatus\.(\w+)", page)) | {
        f"clock.{name}" for name in re.findall(r"status\.clock\.(\w+)", page)
    }
    known = set(Status.__struct_fields__) | {f"clock.{name}" for name in ClockStatus.__struct_fields__}

    assert {"alarms", "clock", "clock.description"} <= read <= known
