"""Nothing reaches past the ports while a simulation runs."""

import datetime
import logging
import os
import random
import secrets
import socket
import sys
import threading
import time
import types
import uuid

import pytest

from sim.io_guard import Guard
from tickwork.testing.virtual_loop import NotSimulated

CALLS = {
    "time.time": lambda: time.time(),
    "time.monotonic": lambda: time.monotonic(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.sleep": lambda: time.sleep(0),
    "datetime.now": lambda: datetime.datetime.now(datetime.UTC),
    "datetime.utcnow": lambda: datetime.datetime.utcnow(),
    "date.today": lambda: datetime.date.today(),
    "random.random": lambda: random.random(),
    "random.choice": lambda: random.choice([1]),
    "random.shuffle": lambda: random.shuffle([1]),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "os.urandom": lambda: os.urandom(8),
    "secrets.token_hex": lambda: secrets.token_hex(),
    "secrets.randbelow": lambda: secrets.randbelow(3),
    "socket.socket": lambda: socket.socket(),
    "threading.Thread.start": lambda: threading.Thread(target=print).start(),
    "open for writing": lambda: open(os.devnull, "w"),  # noqa: SIM115
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_to_the_real_world_is_refused_by_name(name):
    with pytest.raises(NotSimulated, match=name), Guard():
        CALLS[name]()


@pytest.mark.parametrize("name", CALLS)
def test_a_refusal_that_is_swallowed_is_raised_at_the_end(name):
    def sly():
        try:
            CALLS[name]()
        except Exception:
            return

    with pytest.raises(NotSimulated, match=name), Guard():
        sly()


def test_everything_is_put_back():
    names = [(time, "time"), (random, "random"), (datetime, "datetime"), (socket.socket, "__init__"), (os, "urandom")]
    before = [getattr(holder, name) for holder, name in names]
    with pytest.raises(ZeroDivisionError), Guard():
        1 / 0  # noqa: B018

    assert [getattr(holder, name) for holder, name in names] == before
    assert time.time() > 0 and random.random() < 1


def test_a_function_that_was_imported_by_name_is_refused_too():
    module = types.ModuleType("codeundertest.inner")
    exec("from time import monotonic\nfrom datetime import datetime\nmade = datetime(2026, 1, 1)", vars(module))
    sys.modules["codeundertest.inner"] = module
    try:
        with pytest.raises(NotSimulated, match=r"time\.monotonic"), Guard(["codeundertest"]):
            module.monotonic()
        with Guard(["codeundertest"]):
            made = module.datetime(2026, 1, 1)
            assert type(made) is datetime.datetime.__base__ or made == module.made
            assert isinstance(module.made, module.datetime)
            assert module.datetime.fromisoformat("2026-01-01") == module.made
    finally:
        del sys.modules["codeundertest.inner"]
    assert module.monotonic() > 0


def test_a_stand_in_that_somebody_kept_is_harmless_afterwards():
    with Guard():
        kept = time.monotonic

    assert kept() > 0


def test_seeded_chance_reading_logging_and_importing_are_allowed(caplog):
    with Guard():
        drawn = random.Random(1).getrandbits(8)
        with open(__file__) as file:
            assert file.readline()
        logging.getLogger("x").warning("said")
        sys.modules.pop("this_is_it", None)
        import colorsys  # noqa: F401

    assert drawn == random.Random(1).getrandbits(8)
    assert "said" in caplog.text


def test_other_threads_are_left_alone():
    seen, begin, end = [], threading.Event(), threading.Event()

    def elsewhere():
        begin.wait(5)
        seen.append(time.time())
        end.set()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    with Guard():
        begin.set()
        assert end.wait(5)
    thread.join()

    assert seen
