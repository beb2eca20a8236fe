"""What `make demo` shows: schedules, a fan-out, a failing task with retries, a wait and an approval.

tickwork dev examples/demo.py
"""

import random
import time
from datetime import datetime

import tickwork as tw

# ---- every few seconds


@tw.task
def read_sensor(due: datetime) -> int:
    return 20 + due.second % 7


@tw.workflow(schedule=tw.every("3s"))
def heartbeat(scheduled_time: datetime) -> int:
    """A schedule: every three seconds."""
    return read_sensor(scheduled_time)


# ---- list -> score each -> best, in parallel with a disk check


@tw.task
def list_files(count: int) -> list[str]:
    return [f"file-{number:02}.csv" for number in range(count)]


@tw.task
def score(ctx: tw.Context, path: str) -> int:
    for part in range(5):
        time.sleep(random.uniform(0.02, 0.12))
        ctx.progress(part + 1, 5)
    print(f"{path} done")
    return sum(path.encode()) % 100


@tw.task
def check_disk() -> str:
    return "enough space"


@tw.task
def best(scores: list[int], room: str) -> str:
    return f"best of {len(scores)}: {max(scores)}, {room}"


@tw.workflow(schedule=tw.every("10s"))
def fan_out(count: int = 12) -> str:
    """A graph: list files, score them in parallel, take the best."""
    room = check_disk()
    return best(score.map(list_files(count)), room)


# ---- a task that fails twice and then succeeds, and a task that always fails


@tw.task(retries=4, retry_delay="500ms")
def call_bank(ctx: tw.Context) -> str:
    if ctx.attempt <= 2:
        raise ConnectionError(f"the bank closed the connection (attempt {ctx.attempt})")
    return f"paid in attempt {ctx.attempt}"


@tw.workflow(schedule=tw.every("8s"))
def payments() -> str:
    """A task that fails twice and is retried."""
    return call_bank()


@tw.task(retries=1, retry_delay="1s")
def call_nobody() -> str:
    raise TimeoutError("no answer from this host")


@tw.workflow(schedule=tw.every("20s"))
def hopeless() -> str:
    """A task that uses up its attempts. `tickwork why` explains each of them."""
    return call_nobody()


# ---- a wait, then an approval


@tw.task
def draft(version: str) -> str:
    return f"notes of {version}"


@tw.task
def publish(notes: str) -> str:
    return f"{notes}: published"


@tw.workflow
def release(version: str = "1.0") -> str:
    """Draft, wait two seconds, ask a person, publish."""
    notes = draft(version)
    tw.wait("2s")
    tw.approval("sign_off", message="Publish the release notes?", timeout="1h")
    return publish(notes)
