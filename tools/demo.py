"""`make demo`: the demo application with a data folder of its own, made anew each time.

It starts `tickwork dev`, submits a run of each workflow, one of which will ask for an approval, and says what to
look at. With DEMO_SECONDS it approves that run by itself, ends when every part of the demo was seen, and fails where
that takes longer than so many seconds.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import tickwork as tw

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "build" / "demo"  # git-ignored
RUN = "release-1"
START_S = 30.0
AT_ONCE = ("fan_out", "payments", "hopeless")  # nobody waits for their schedules to come round
SHOWN = ("heartbeat", "fan_out", "payments", "release")


def main() -> int:
    port, seconds = int(os.environ.get("DEMO_PORT", "8440")), float(os.environ.get("DEMO_SECONDS", "0"))
    data = Path(os.environ.get("DEMO_DATA", DATA))
    shutil.rmtree(data, ignore_errors=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "tickwork", "dev", "examples/demo.py", "--data", str(data), "--port", str(port)]
    dev = subprocess.Popen(command, cwd=ROOT)
    try:
        with tw.Client(f"http://127.0.0.1:{port}") as client:
            if not start_release(client, dev):
                return dev.wait()
            tell(client.address.url)
            if not seconds:
                return dev.wait()
            return watch(client, until=began + seconds)
    except KeyboardInterrupt:  # the child has had the same Ctrl-C
        return dev.wait()
    finally:
        if dev.poll() is None:
            dev.terminate()
            dev.wait()


def start_release(client: tw.Client, dev: "subprocess.Popen[bytes]") -> bool:
    """As soon as the worker has published the workflow; False where `dev` ended instead."""
    deadline = time.monotonic() + START_S
    while dev.poll() is None and time.monotonic() < deadline:
        try:
            client.submit("release", id=RUN)
            for name in AT_ONCE:
                client.submit(name)
        except (tw.Refused, tw.Unavailable):
            time.sleep(0.1)
        else:
            return True
    return False


def tell(url: str) -> None:
    print(
        f"""
  Open the link above in a browser (`tickwork page --url {url}` prints another). There you see

    heartbeat   a schedule, every three seconds
    fan_out     twelve tasks side by side, every ten seconds
    payments    fails twice, is tried again, succeeds
    hopeless    uses up its attempts and fails
    release     waits two seconds, then for you. Approve it on its page, or in another terminal:

        .venv/bin/tickwork approve {RUN} sign_off --url {url}
        .venv/bin/tickwork why {RUN} --url {url}

  Ctrl-C ends the demo.
""",
        flush=True,
    )


def watch(client: tw.Client, *, until: float) -> int:
    approved, seen = False, dict.fromkeys(SHOWN, 0)
    while time.monotonic() < until and not all(seen.values()):
        time.sleep(0.2)
        approved = approved or approve(client)
        seen = {name: sum(1 for _ in client.list(name, state="completed")) for name in SHOWN}
    print("completed: " + ", ".join(f"{name} {count}" for name, count in seen.items()), flush=True)
    missing = [name for name, count in seen.items() if not count]
    if missing:
        print(f"not seen within the time: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def approve(client: tw.Client) -> bool:
    for task in client.get(RUN).tasks:
        if task.node == "sign_off" and task.state == "waiting":
            client.approve(RUN, "sign_off", comment="by the demo itself")
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
