"""Requests that leave, and what may come back."""

import ast
import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc
import zlib
from pathlib import Path

import httpcore2
import pytest

from executors.test_egress_policy import PUBLIC, Names
from executors.web_servers import plain, raw, site
from tickwork.executors.egress_client import HEADER_BYTES_MAX, EgressClient, NoHttpResult
from tickwork.executors.egress_policy import LOOPBACK, AddressRefused, EgressPolicy

OPENSSL = shutil.which("openssl") or ""
SOURCE = Path(__file__).resolve().parents[2] / "src" / "tickwork"


async def ask(
    url: str, *, guard: EgressPolicy | None = None, method="GET", total_s=5.0, body_bytes_max=100_000, **more
):
    outbound = EgressClient(
        guard or EgressPolicy(networks=LOOPBACK), **{name: more.pop(name) for name in ("network",) if name in more}
    )
    try:
        return await outbound.ask(
            method, url, headers=more.pop("headers", {}), total_s=total_s, body_bytes_max=body_bytes_max, **more
        )
    finally:
        await outbound.close()


class Wires(httpcore2.AsyncNetworkBackend):
    """In place of the system: where connections went, and for which name TLS was asked."""

    def __init__(self) -> None:
        self.went, self.names = [], []

    async def connect_tcp(self, host, port, timeout=None, local_address=None, socket_options=None):
        self.went.append((host, port))
        wires = self

        class Stream(httpcore2.AsyncNetworkStream):
            answered = False

            async def read(self, max_bytes, timeout=None):
                done, self.answered = self.answered, True
                return b"" if done else b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"

            async def write(self, buffer, timeout=None):
                pass

            async def aclose(self):
                pass

            async def start_tls(self, ssl_context, server_hostname=None, timeout=None):
                wires.names.append((server_hostname, ssl_context.check_hostname))
                return self

        return Stream()


@pytest.mark.proves("S41", "S003-15", "S003-17")
async def test_the_connection_goes_to_the_checked_address_and_keeps_the_name():
    names = Names(shop=[["127.0.0.1"]])
    async with site(plain(b"[1]")) as there:
        answer = await ask(
            f"http://shop.example:{there.port}/a?b=c", guard=EgressPolicy(networks=LOOPBACK, resolve=names),
            method="POST",
            content=b"xyz", headers={"X-A": "b"},
        )  # fmt: skip

    line, headers, body = there.requests[0]
    assert (answer.status, answer.body, answer.cut) == (200, b"[1]", False) and answer.duration_ms >= 0
    assert line == "POST /a?b=c HTTP/1.1" and headers["host"] == f"shop.example:{there.port}"
    assert headers["x-a"] == "b" and body == b"xyz" and names.asked == ["shop.example"]


@pytest.mark.proves("S41")
async def test_tls_asks_for_the_name_and_checks_it():
    wires = Wires()
    await ask("https://shop.example/", guard=EgressPolicy(resolve=Names(shop=[[PUBLIC]])), network=wires)

    assert wires.went == [(PUBLIC, 443)] and wires.names == [("shop.example", True)]


@pytest.fixture
def certificate(tmp_path):
    """Of 127.0.0.1, by nobody that anybody knows."""
    key, found = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ("-subj", "/CN=there", "-addext", "subjectAltName=IP:127.0.0.1,DNS:there.example")
    made = ("-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(found))
    subprocess.run([OPENSSL, "req", *made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    return found, context


@pytest.mark.proves("S41")
@pytest.mark.skipif(not OPENSSL, reason="there is no openssl to make a certificate with")
async def test_a_certificate_must_be_known_to_the_system_or_named_by_the_operator(certificate, monkeypatch):
    file, context = certificate
    guard = EgressPolicy(networks=LOOPBACK, resolve=Names(other=[["127.0.0.1"]], there=[["127.0.0.1"]]))
    async with site(plain(b"[1]"), tls=context) as there:
        url = there.url.replace("http:", "https:")
        with pytest.raises(NoHttpResult, match="certificate verify failed"):
            await ask(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        answer = await ask(url)
        named = await ask(f"https://there.example:{there.port}/", guard=guard)
        with pytest.raises(NoHttpResult, match="certificate verify failed: Hostname mismatch"):
            await ask(f"https://other.example:{there.port}/", guard=guard)

    assert (answer.status, named.status, len(there.requests)) == (200, 200, 2)


@pytest.mark.proves("S41", "S45", "B20")
async def test_a_name_that_changes_its_address_is_refused_before_anything_connects():
    wires, names = Wires(), Names(rebind=[[PUBLIC], ["127.0.0.1"]])
    guard = EgressPolicy(resolve=names)
    await ask("http://rebind.example/", guard=guard, network=wires)
    assert names.asked == ["rebind.example"]  # once: what was checked is what was used
    with pytest.raises(AddressRefused, match="loopback"):
        await ask("http://rebind.example/", guard=guard, network=wires)

    assert wires.went == [(PUBLIC, 80)]


async def test_the_next_address_is_tried_where_one_does_not_answer():
    async with site(plain()) as there:
        names = Names(shop=[["127.0.0.2", "127.0.0.1"]])
        answer = await ask(f"http://shop.example:{there.port}", guard=EgressPolicy(networks=LOOPBACK, resolve=names))

    assert answer.status == 200


@pytest.mark.proves("S40", "S43", "B20")
@pytest.mark.parametrize(
    "url",
    [
        "ftp://shop.example/", "//shop.example", "http://me:pw@shop.example/", "http://127.1/", "http://2130706433/",
        "http://0x7f.1/", "http://0177.0.0.1/", "http://127.0.0.1/", "http://localhost./", "http://[::1]/",
        "http://127\u30020\u30020\u30021/", "http://[fe80::1%25eth0]/", "http://127.0.0.1\\@shop.example/",
        "http://[::ffff:7f00:1]/", "http://169.254.169.254/latest", "http://metadata.google.internal/", "http:///a",
    ],
)  # fmt: skip
async def test_what_is_refused_never_connects(url):
    wires = Wires()
    guard = EgressPolicy(resolve=Names(shop=[[PUBLIC]], localhost=[["127.0.0.1", "::1"]]))
    with pytest.raises(AddressRefused):
        await ask(url, guard=guard, network=wires)

    assert wires.went == []


@pytest.mark.proves("S44")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Again", "308 For Good"])
async def test_a_redirect_is_an_answer_and_is_not_followed(status):
    async with site(plain()) as other, site(plain(status=status, headers=f"location: {other.url}/")) as there:
        answer = await ask(there.url)

    assert answer.status == int(status[:3]) and other.requests == []


@pytest.mark.proves("S48")
async def test_proxy_variables_are_ignored(monkeypatch):
    async with site(plain()) as proxy, site(plain(b"direct")) as there:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        answer = await ask(there.url)

    assert answer.body == b"direct" and proxy.requests == []


# ---- what comes back


@pytest.mark.proves("S47")
async def test_a_body_is_read_up_to_its_limit():
    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with site(endless) as there:
        answer = await ask(there.url, body_bytes_max=1_000)
    async with site(plain(b"y" * 1_000)) as there:
        whole = await ask(there.url, body_bytes_max=1_000)

    assert answer.body == b"x" * 1_000 and answer.cut
    assert whole.body == b"y" * 1_000 and not whole.cut


@pytest.mark.proves("S47")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_small_answer_that_unpacks_to_a_gigabyte_is_cut(coding):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    first, again = (packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    bomb = first + 1023 * again  # after a full flush each part stands alone; nobody comes to its end
    async with site(plain(bomb, headers=f"content-encoding: {coding}")) as there:
        tracemalloc.start()
        answer = await ask(there.url)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert answer.body == bytes(100_000) and answer.cut
    assert peak < 32 << 20


@pytest.mark.proves("S47")
async def test_an_answer_that_is_packed_twice_is_refused():
    body = gzip.compress(gzip.compress(b"x"))
    async with site(plain(body, headers="content-encoding: gzip, gzip")) as there:
        with pytest.raises(NoHttpResult, match="compressed more than once"):
            await ask(there.url)


@pytest.mark.proves("S47")
@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1_000) for n in range(70)),  # over our limit
        b"x: " + b"y" * (2 * HEADER_BYTES_MAX) + b"\r\n",  # over the parser's
    ],
)
async def test_headers_are_bounded(head):
    async with site(raw(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")) as there:
        with pytest.raises(NoHttpResult) as no:
            await ask(there.url)

    assert no.value.error in ("HeadersTooLarge", "RemoteProtocolError")


@pytest.mark.proves("S47", "S003-16")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(raw(b"", pause_s=3), id="no first byte"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\n", *([b"x: y\r\n"] * 100), pause_s=0.04), id="headers drop by drop"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\n\r\n", *([b"x"] * 100), pause_s=0.04), id="a body drop by drop"),
        pytest.param(raw(*([b"HTTP/1.1 100 Continue\r\n\r\n"] * 100), pause_s=0.04), id="never the answer itself"),
    ],
)
async def test_the_whole_exchange_has_one_time_limit(answer):
    async with site(answer) as there:
        began = time.monotonic()
        with pytest.raises(NoHttpResult, match=r"no answer within 0.3 s") as no:
            await ask(there.url, total_s=0.3)
        assert time.monotonic() - began < 2.8

    assert no.value.error == "TimeoutError"


@pytest.mark.proves("S47")
async def test_a_name_that_takes_for_ever_to_resolve_counts_too():
    async def never(host, port):
        await asyncio.sleep(60)

    with pytest.raises(NoHttpResult) as no:
        await ask("http://slow.example", guard=EgressPolicy(resolve=never), total_s=0.2)

    assert no.value.error == "TimeoutError"


@pytest.mark.proves("S47")
async def test_names_that_nobody_answers_for_keep_no_other_thread_busy(monkeypatch):
    answered, true = threading.Event(), socket.getaddrinfo

    def lookup(host, *args, **more):
        if host == "silent.example":
            answered.wait(20)
        return true("127.0.0.1", *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    async with site(plain(b"[1]")) as there:
        silent = [asyncio.ensure_future(ask("http://silent.example", total_s=0.2)) for _ in range(40)]
        failed = await asyncio.gather(*silent, return_exceptions=True)
        try:
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(int, "7") == 7
                answer = await ask(f"http://shop.example:{there.port}/")
        finally:
            answered.set()

    assert {one.error for one in failed} == {"TimeoutError"} and answer.status == 200


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (raw(b"nonsense\r\n\r\n"), "RemoteProtocolError"),
        (raw(), "RemoteProtocolError"),  # closed without a word
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort"), "RemoteProtocolError"),
        (plain(b"no gzip", headers="content-encoding: gzip"), "DecodingError"),
    ],
)
async def test_a_broken_answer_is_none(answer, error):
    async with site(answer) as there:
        with pytest.raises(NoHttpResult) as no:
            await ask(there.url)

    assert no.value.error == error


async def test_nobody_listens_and_nobody_has_the_name():
    async def unknown(host, port):
        raise OSError(-2, "Name or service not known")

    async with site(plain()) as gone:
        pass
    for url, guard in (
        (gone.url, EgressPolicy(networks=LOOPBACK)),
        ("http://shop.example", EgressPolicy(resolve=unknown)),
    ):
        with pytest.raises(NoHttpResult) as no:
            await ask(url, guard=guard)
        assert no.value.error == "ConnectError"


async def test_cookies_of_one_answer_are_in_no_other_request():
    async with site(plain(headers="set-cookie: a=b")) as there:
        outbound = EgressClient(EgressPolicy(networks=LOOPBACK))
        for _ in range(2):
            await outbound.ask("GET", there.url, headers={}, total_s=5, body_bytes_max=100)
        await outbound.close()

    assert "cookie" not in there.requests[1][1]


# ---- one way out


CLIENTS = frozenset(("aiohttp", "http.client", "httpcore2", "httpx2", "requests", "urllib.request", "urllib3"))
# Connections of the product to its own server, at an address that its operator has set; none goes where users say.
OWN = {
    "cli/commands/replay.py": "fetches a journal from the server",
    "cluster/multiplexed_connection.py": "a node to another, for the exchanges of all its workers",
    "sdk/client/async_client.py": "the client of the API",
    "sdk/client/client.py": "the client of the API",
    "sdk/client/connection.py": "the client of the API, which address it asks and with which token",
    "sdk/client/reading.py": "the code of a task to its own worker, over a socket in the file system",
    "sdk/runner/child_main.py": "the code of a task to its own worker, over a socket in the file system",
    "stores/leases/etcd.py": "a node to the etcd that keeps its leases",
    "stores/sqlite/writer/client.py": "a server to the process that writes its database, over a pair of sockets",
    "worker/http1.py": "a worker to its server, and a node to another, without a library",
    "worker/http_link.py": "a worker to its server",
}
CONNECTING = frozenset(("create_connection", "open_connection", "sock_connect"))


def http_clients(text: str) -> list[str]:
    """Libraries that are imported, and connections that are made by hand."""
    found, connecting = [], []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CONNECTING:
            connecting.append(node.func.attr)
    return connecting + [one for one in found if any(f"{one}.".startswith(f"{client}.") for client in CLIENTS)]


@pytest.mark.proves("S49")
def test_there_is_no_other_http_client():
    using = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if http_clients(path.read_text())}

    assert using - {"executors/egress_client.py"} == set(OWN)


@pytest.mark.proves("S49")
@pytest.mark.parametrize(
    "text",
    ["import httpx2", "from httpx2 import get", "import urllib.request", "from urllib import request",
     "from http import client", "import http.client as c", "def f():\n    import aiohttp", "import requests.sessions",
     "loop.create_connection(P, host, 80)", "asyncio.open_connection(host)"],
)  # fmt: skip
def test_a_planted_client_is_found(text):
    assert http_clients(text)
    assert not http_clients("import httptools\nfrom urllib.parse import quote\nfrom http import HTTPStatus")
