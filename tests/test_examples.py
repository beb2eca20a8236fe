"""Every example runs for real: one server and one worker serve them all, as two processes of their own."""

import contextlib
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tickwork as tw

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
README = ROOT / "README.md"
WAIT_S = 30.0
# Not served by the one worker: the demo and the tests of `testing.py`, run below, and the engine inside a program,
# which tests/compose/test_embedded.py and test_embedded_processes.py run.
OTHERS = {"demo", "embedded_asgi", "embedded_script", "shop_asgi", "testing"}

OUTPUTS = [
    ("hello", "hello", {}, "13 words on 3 pages"),
    ("find_runs", "refund", {"customer": "ed"}, "paid 5 back to ed"),
    ("fan_out", "largest", {"folder": str(ROOT / "tools")}, r"\w+\.py is the longest of \d+ files"),
    ("combinations", "quiet_tyres", {},
     "#1: 19 dB; 3 of 4 settings are quiet enough for Bergen; 1 of 4 settings are quiet enough for Oslo"),
    ("etl", "nightly", {}, {"rows": 2, "sum": 195, "key": r"default/[^/]+/load"}),
    ("child_workflows", "company", {}, 41),
    ("durable_steps", "move", {"city": "Bergen"},
     ["flight to Bergen booked in attempt 1", "hotel in Bergen booked in attempt 2"]),
    ("async_http", "survey", {}, r"40 responses of 0\.2 s each in [0-4]\.\d s"),
    ("shell_and_http", "check", {"text": "three words here"}, {"words": 3, "status": 200}),
    ("methods", "invoice", {}, "Prices: 714"),
    ("failure", "nightly_load", {}, "3 rows loaded"),
    ("large_values", "report", {}, "50000 rows, 2588890 characters"),
    ("poll", "wait_for_export", {}, "300 rows, complete"),
    ("web_crawler", "crawl", {"page": "home", "depth": 2},
     ["home", "news", "today", "archive", "shop", "books", "music", "about"]),
    ("first_answer", "purchase", {"item": "piano"}, "piano from Near & Co by lorry"),
    ("batch_sliding_window", "sliding_window", {"records": 12, "window": 3},
     r"12 records, [123] at once, in a window of 3"),
    ("start_runs", "releases", {}, 2),
    ("order_saga", "sell", {"number": "A-7"}, "parcel with A-7, paid with payment for A-7"),
    ("agent_loop", "assist", {"question": "What does a night in Oslo cost?"}, "a night in Bergen costs 120 euros"),
    ("streaming", "answer", {}, "a run is one execution of a workflow"),
]  # fmt: skip
BY_HAND = {"reports", "schedule", "wait_and_approve", "order", "payment"}


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TICKWORK_")}
    return kept | {"PYTHONPATH": f"{ROOT / 'src'}", "NO_COLOR": "1"} | more


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def process(*args: str, env: dict[str, str], cwd: Path):
    """A command of ours that has said it is ready."""
    command = [sys.executable, "-m", "tickwork", *args]
    with subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running.stdout.readline()
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(WAIT_S)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    names = ", ".join(sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in OTHERS))
    app = folder / "every_example.py"
    app.write_text(f"import sys\nsys.path[:0] = [{str(folder)!r}, {str(EXAMPLES)!r}]\nimport {names}\n")
    with process("server", "--port", "0", "--data", "data", env=environment(), cwd=folder) as said:
        url = re.search(r"http://\S+", said)[0]
        # This one calls the server at its usual port; here it has another.
        asking = (EXAMPLES / "shell_and_http.py").read_text()
        assert "http://127.0.0.1:8440" in asking
        (folder / "shell_and_http.py").write_text(asking.replace("http://127.0.0.1:8440", url))
        env = environment(TICKWORK_URL=url, TICKWORK_ALLOW_NETWORKS="127.0.0.0/8")
        with process("worker", str(app), "--grace", "2", env=env, cwd=folder) as ready:
            assert "serves" in ready
            with tw.Client(url) as found:
                yield found


def matches(pattern, value):
    if isinstance(pattern, str):
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None
    if isinstance(pattern, dict):
        return pattern.keys() == value.keys() and all(matches(pattern[name], value[name]) for name in pattern)
    return pattern == value


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)
    return found


def test_every_example_is_run_by_a_test():
    covered = {name for name, *_ in OUTPUTS} | BY_HAND | OTHERS

    assert {path.stem for path in EXAMPLES.glob("*.py")} == covered


@pytest.mark.parametrize(("example", "workflow", "inputs", "output"), OUTPUTS, ids=[one[0] for one in OUTPUTS])
def test_an_example_gives_its_output(client, example, workflow, inputs, output):
    found = client.result(client.submit(workflow, inputs), timeout=WAIT_S)

    assert matches(output, found), found


@pytest.mark.proves("S001-189")
def test_a_risky_task_waits_in_the_inbox(client):
    run = client.submit("settle", {"amount": 30})
    [entry] = until(lambda: client.inbox(["approval"], workflow="settle"))

    assert (entry.run, entry.node, entry.message) == (run.id, "approve_pay", "Pay 30 to DE-ADA?")
    client.approve(run, entry.node)
    assert client.result(run, timeout=WAIT_S) == "30 paid to DE-ADA"
    assert client.inbox(workflow="settle") == []


def test_a_step_that_finished_is_not_taken_again(client):
    run = client.submit("move")
    client.result(run, timeout=WAIT_S)
    [trip] = client.get(run).tasks

    assert [one.state for one in trip.attempts] == ["failed", "succeeded"]


def test_somebody_is_told_of_the_run_that_failed(client):
    run = client.submit("nightly_load", {"broken": True})
    until(lambda: client.get(run).state == "failed")

    [handler] = until(lambda: list(client.list("nightly_load.on_failure", state="completed")))
    assert handler.id.startswith(f"{run.id}.on_failure.")
    [line] = until(lambda: [line.text for line in client.logs(handler.id) if "nightly_load" in line.text])
    assert line == f"ALERT nightly_load {run.id}: failed: extract"


def test_a_stream_marks_what_came_of_an_attempt_that_broke_off(client):
    run = client.submit("answer", words=["one", "two", "three", "four"])
    pieces = list(client.stream(run))

    texts = {1: [], 2: []}
    for piece in pieces:
        if piece.number is not None:
            assert piece.number == len(texts[piece.attempt])
            texts[piece.attempt].append(piece.text)
    assert texts == {1: ["one ", "two ", "three "], 2: ["one ", "two ", "three ", "four "]}
    assert [(piece.attempt, piece.number) for piece in pieces if piece.dead and piece.number is None] == [(1, None)]
    again = list(client.stream(run, node="write"))
    assert {(piece.attempt, piece.dead) for piece in again} == {(1, True), (2, False)}
    assert [line.text for line in client.logs(run)] == []


def test_only_the_accepted_attempt_starts_runs(client):
    run = client.submit("releases", versions=["2.0", "2.1"])
    client.result(run, timeout=WAIT_S)
    started = [one for one in client.list("pipeline") if one.key in ("release-2.0", "release-2.1")]

    assert sorted(client.result(one, timeout=WAIT_S) for one in started) == ["built 2.0", "built 2.1"]
    assert {one.source for one in started} == {f"task begin_new of {run.id}"}


def test_a_run_with_nothing_to_load_completes_without_an_output(client):
    run = client.submit("nightly_load", {"day": "sunday"})

    assert client.result(run, timeout=WAIT_S) is None
    assert {task.node: task.state for task in client.get(run).tasks} == {
        "extract": "succeeded", "check": "not_taken", "load": "not_taken",
    }  # fmt: skip


def test_the_flaky_source_is_asked_three_times(client):
    run = client.submit("nightly")
    client.result(run, timeout=WAIT_S)

    wanted = [f"reading shop, attempt {number}" for number in (1, 2, 3)]
    assert until(lambda: [line.text for line in client.logs(run) if line.text.startswith("reading")] == wanted)


def test_a_schedule_makes_runs_and_tells_them_their_time(client):
    run = until(lambda: next(client.list("pulse", state="completed"), None))

    assert run.schedule == "pulse"
    assert matches(r"measured for \d\d:\d\d:\d\d", client.get(run.id).output)
    assert {one.name: one.expression for one in client.schedules()}["workdays"] == "30 7 * * 1-5"


@pytest.mark.proves("S004-44", "S004-82")
def test_a_backfill_of_zoned_reports_keeps_their_time_of_day(client):
    env = environment(TICKWORK_URL=client.address.url)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "reports.py"], env=env, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.splitlines() == [
        "Opening report for Friday, 2026-03-06T09:00:00-05:00",
        "Opening report for Monday, 2026-03-09T09:00:00-04:00",
        "Opening report for Tuesday, 2026-03-10T09:00:00-04:00",
    ], done.stderr
    assert {one.name: one.owner for one in client.schedules()}["opening"] == "every_example"


def test_a_release_waits_then_asks_then_publishes(client):
    run = client.submit("release", version="2.0")
    until(lambda: any(one.node == "sign_off" and one.state == "waiting" for one in client.get(run).tasks))
    client.approve(run, "sign_off")

    assert client.result(run, timeout=WAIT_S) == "notes of 2.0: published"


@pytest.mark.parametrize(("total", "checked"), [(250, "was reviewed by a person"), (20, "accepted")])
def test_an_order_is_shipped_when_its_own_payment_comes(client, total, checked):
    number = f"B-{total}"
    run = client.submit("order", number=number, total=total)
    until(lambda: any(one.node == "paid" and one.state == "waiting" for one in client.get(run).tasks))
    client.signal("paid", {"amount": 1}, key="of-another-order")
    client.signal("paid", {"amount": total}, key=number)

    assert client.result(run, timeout=WAIT_S) == f"{number} shipped for {total} ({number} {checked})"


def test_the_tests_of_the_example_pass():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini=addopts=", "testing.py"],
        cwd=EXAMPLES, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_demo_shows_everything(tmp_path):
    env = environment(DEMO_SECONDS="60", DEMO_PORT=str(free_port()), DEMO_DATA=str(tmp_path / "demo"))
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "demo.py"], env=env, capture_output=True, text=True, timeout=90, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"completed: heartbeat [1-9]\d*, fan_out [1-9]\d*, payments [1-9]\d*, release 1", done.stdout)
    assert "sign_off" in done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "core").glob("*.py")), ids=lambda path: path.stem)
def test_the_tour_of_the_core_runs(path):
    done = subprocess.run(
        [sys.executable, path], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout


# The README


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_readme_program_is_the_example():
    assert blocks("python")[0] == (EXAMPLES / "hello.py").read_text()


def shape(text: str) -> list[str]:
    """The last picture of a terminal, without colours, durations and the blanks at line ends."""
    text = re.sub(r"\x1b\[2K", "\n", text.replace("\r", ""))  # a picture begins where the one before is wiped off
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [re.sub(r"\d+(\.\d+)? m?s\b", "TIME", line) for line in text.splitlines()]
    last = max(place for place, line in enumerate(lines) if line.startswith("hello  completed"))
    return [" ".join(line.split()) for line in lines[last:] if line.strip()]


def in_a_terminal(*args: str, cwd: Path, env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(args, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as running:
            os.close(theirs)
            seen = bytearray()
            with contextlib.suppress(OSError):  # how a terminal ends
                while data := os.read(ours, 65536):
                    seen += data
        assert running.returncode == 0, seen.decode()
    finally:
        os.close(ours)
    return seen.decode()


def test_the_readme_shows_what_the_program_prints(tmp_path):
    shutil.copy(EXAMPLES / "hello.py", tmp_path)
    env = environment(TICKWORK_PORT=str(free_port()), TERM="xterm", COLUMNS="100", LINES="40")
    [shown] = [one for one in blocks("console") if "tickwork run hello.py" in one]
    command, _, output = shown.partition("\n")
    seen = in_a_terminal(sys.executable, "-m", *command.removeprefix("$ ").split(), cwd=tmp_path, env=env)

    assert shape(output) == shape(seen)
    run = re.findall(r"^run (\S+)", seen, re.MULTILINE)[0]
    [shown] = [one for one in blocks("console") if "tickwork why" in one]
    asked = [sys.executable, "-m", "tickwork", "why", run]
    told = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=WAIT_S).stdout
    assert reasons(shown) == reasons(told)


def reasons(text: str) -> list[str]:
    """What is told of the second call, without its times and the names of workers."""
    lines = [line for line in text.splitlines() if "count[1]" in line]
    return [re.sub(r"worker[ :]\S+|in \d+ ms at \S+", "", line.partition("count[1]")[2]) for line in lines]


def test_every_link_of_the_readme_leads_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)", README.read_text())

    assert links
    assert [one for one in links if not (ROOT / one).exists()] == []
