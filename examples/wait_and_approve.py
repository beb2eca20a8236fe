"""Draft, wait, ask a person, publish.

    tickwork dev examples/wait_and_approve.py
    tickwork run examples/wait_and_approve.py:release --detach       # prints the id of the run
    tickwork approve ID sign_off                                     # or use the button on the page

While the run waits, it uses no process, thread or connection, and it survives restarts.
"""

import tickwork as tw


@tw.task
def draft(version: str) -> str:
    return f"notes of {version}"


@tw.task
def publish(notes: str) -> str:
    return f"{notes}: published"


@tw.workflow
def release(version: str = "1.0") -> str:
    notes = draft(version)
    tw.wait("1s")  # or "3d"
    tw.approval("sign_off", message="Publish the release notes?", timeout="7d")
    return publish(notes)
