"""Descriptors run out in real processes: who is inside goes on, who comes is sent away, and all is well afterwards."""

import contextlib
import os
import resource
import signal
import socket
import time
from pathlib import Path

import httpx2
import pytest

from terminal import SECONDS, Terminal
from tickwork.sdk.client.connection import LocalBearer

pytestmark = [pytest.mark.slow, pytest.mark.proves("F29")]


@pytest.fixture
def terminal(tmp_path):
    found = Terminal(tmp_path)
    try:
        yield found
    finally:
        found.close()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextlib.contextmanager
def scarce(pid: int, *, files_max: int):
    """The process may open no descriptor from this number on."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files_max, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(terminal, count: int, *, token: str = ""):
    """So many who have connected and say nothing; with a token they were let in before."""
    request = f"GET /v1/status HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    with contextlib.ExitStack() as held:
        found = []
        for _ in range(count):
            one = held.enter_context(socket.create_connection(("127.0.0.1", terminal.port), timeout=SECONDS))
            if token:
                with contextlib.suppress(ConnectionError):
                    one.sendall(request)
                    one.recv(1, socket.MSG_PEEK)  # it is answered, or sent away
            found.append(one)
        yield found


def heard(one: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := one.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def submitted(client: httpx2.Client, workflow: str, **inputs) -> str:
    answer = client.post("/v1/runs", json={"workflow": workflow, "inputs": inputs})
    assert answer.status_code in (200, 201, 202), answer.text
    return answer.json()["id"]


def until_completed(client: httpx2.Client, run: str) -> dict:
    deadline = time.monotonic() + SECONDS
    while (found := client.get(f"/v1/runs/{run}").json())["state"] != "completed":
        assert time.monotonic() < deadline and found["state"] != "failed", found
        time.sleep(0.02)
    return found


def until_served(terminal) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(terminal.url + "/readyz", timeout=1).status_code == 200:
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_with_all_its_connections_taken_sends_others_away_and_ticks_on(terminal):
    os_limit, program = 128, terminal.command("server")
    server = terminal.start_as(["sh", "-c", f'ulimit -n {os_limit}; exec "$@"', "sh", *program])
    server.until("tickwork server")
    terminal.start("worker", "app.py", "--url", terminal.url).until("serves app.py")
    token = (terminal.folder / ".tickwork" / "token").read_text().strip()
    with httpx2.Client(base_url=terminal.url, timeout=SECONDS, auth=LocalBearer()) as inside:
        before = submitted(inside, "greet", name="ann")
        with crowd(terminal, 2 * os_limit, token=token) as callers:
            answer = heard(callers[-1])
            assert answer.startswith(b"HTTP/1.1 503 ") and b"too_many_connections" in answer
            assert b"retry-after: 1" in answer.lower()
            during = submitted(inside, "greet", name="bob")

            assert until_completed(inside, during)["output"] == "HELLO BOB"
            assert descriptors(server.process.pid) < os_limit
        until_served(terminal)
        assert until_completed(inside, before)["output"] == "HELLO ANN"

    assert server.text.count("raise the limit of open files") == 1 and "Traceback" not in server.text


def test_idle_connections_of_those_who_show_no_token_lock_nobody_out(terminal):
    os_limit, program = 128, terminal.command("server")
    server = terminal.start_as(["sh", "-c", f'ulimit -n {os_limit}; exec "$@"', "sh", *program])
    server.until("tickwork server")
    terminal.start("worker", "app.py", "--url", terminal.url).until("serves app.py")
    with crowd(terminal, 2 * os_limit):
        began = time.monotonic()
        for number in range(5):  # each with a connection of its own
            with httpx2.Client(base_url=terminal.url, timeout=SECONDS, auth=LocalBearer()) as newcomer:
                run = submitted(newcomer, "greet", name=f"n{number}")
                assert until_completed(newcomer, run)["output"] == f"HELLO N{number}"
        assert time.monotonic() - began < 20  # of the 74 s that it took
        assert descriptors(server.process.pid) < os_limit
    assert "Traceback" not in server.text


def test_a_server_without_a_single_descriptor_left_loses_nothing(terminal):
    server = terminal.start("server")
    server.until("tickwork server")
    terminal.start("worker", "app.py", "--url", terminal.url).until("serves app.py")
    pid = server.process.pid
    with httpx2.Client(base_url=terminal.url, timeout=SECONDS, auth=LocalBearer()) as inside:
        until_completed(inside, submitted(inside, "greet", name="ann"))
        with scarce(pid, files_max=descriptors(pid)), crowd(terminal, 20):
            runs = [submitted(inside, "greet", name=f"n{number}") for number in range(20)]
            for run in runs:
                until_completed(inside, run)
            large = inside.post("/v1/runs", json={"workflow": "greet", "inputs": {"name": "x" * 100_000}})

            assert large.status_code in (200, 201, 202, 503), large.text
            assert server.process.poll() is None
        until_served(terminal)
        until_completed(inside, submitted(inside, "greet", name="x" * 100_000))
        listed = inside.get("/v1/runs", params={"state": "completed", "limit": 100}).json()["runs"]

        assert {one["id"] for one in listed} >= set(runs)
    assert "Traceback" not in server.text


def test_a_worker_that_cannot_start_a_child_keeps_what_it_has_and_tries_again(terminal):
    terminal.start("server").until("tickwork server")
    worker = terminal.start("worker", "app.py", "--url", terminal.url, "--processes", "1")
    worker.until("serves app.py")
    pid = worker.process.pid
    with httpx2.Client(base_url=terminal.url, timeout=SECONDS, auth=LocalBearer()) as client:
        until_completed(client, submitted(client, "greet", name="ann"))
        children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        with scarce(pid, files_max=8):
            for child in children:
                os.kill(child, signal.SIGKILL)
            waiting = submitted(client, "greet", name="bob")
            worker.until("no child process can be started now")
            state = client.get(f"/v1/runs/{waiting}").json()["state"]

            assert state not in ("failed", "completed") and worker.process.poll() is None

        assert until_completed(client, waiting)["output"] == "HELLO BOB"
    assert "Traceback" not in worker.text
