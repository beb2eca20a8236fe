"""Effects outside the store: a worker dies after the effect of its task and before the report."""

import sqlite3

import pytest

from terminal import Terminal

APP = """
import os
import signal
import sqlite3
from pathlib import Path

import tickwork as tw


@tw.task
def charge(amount: int) -> int:
    key = tw.context().idempotency_key
    with sqlite3.connect("ledger.db") as ledger:
        ledger.execute("insert into attempts values (?)", (key,))
        ledger.execute("insert or ignore into charges values (?, ?)", (key, amount))
    if not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getppid(), signal.SIGKILL)  # the worker
        signal.pause()
    return amount


@tw.workflow
def order(amount: int) -> int:
    return charge(amount)
"""


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    terminal.app.write_text(APP)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.proves("S001-17", "S001-100", "S001-134", "S001-173")
def test_an_effect_under_the_key_of_its_task_is_applied_once_though_its_worker_died_after_it(terminal):
    with sqlite3.connect(terminal.folder / "ledger.db") as ledger:
        ledger.execute("create table attempts (key text)")
        ledger.execute("create table charges (key text primary key, amount integer)")
    terminal.start("server").until("tickwork server")
    first = terminal.start("worker", "app.py", "--name", "w", "--url", terminal.url)
    first.until("serves app.py")
    submit = ("run", "order", "--input", "amount=7", "--key", "order-1")
    run = terminal.run(*submit, "--detach").stdout.strip()
    first.ended()
    terminal.start("worker", "app.py", "--name", "w", "--url", terminal.url).until("serves app.py")
    done = terminal.run(*submit)
    again = terminal.run(*submit, "--detach").stdout.strip()
    with sqlite3.connect(terminal.folder / "ledger.db") as ledger:
        attempts = ledger.execute("select key, count(*) from attempts group by key").fetchall()
        charges = ledger.execute("select amount from charges").fetchall()

    assert done.returncode == 0 and "7" in done.stdout, done.stderr
    assert again == run and len(terminal.json("runs")["runs"]) == 1
    assert [count for _, count in attempts] == [2]  # it ran twice: at least once
    assert charges == [(7,)]
