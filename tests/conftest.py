"""Fixed seeds for every run; `HYPOTHESIS_PROFILE=fresh` draws new ones."""

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from tickwork.core.state.state import State

# A failed comparison shows its sides: a whole state takes minutes and gigabytes to write out.
State.__repr__ = lambda self: f"<State at tick {self.tick}>"

# A shell ignores Ctrl-C for what it starts in the background, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Folders of tests lie in memory where there is room: a sync to disk takes milliseconds, and what is proved here is
# the order of writes and syncs, not the disk. `PYTEST_DEBUG_TEMPROOT` names another place.
MEMORY, MEMORY_FREE_MIN = Path("/dev/shm"), 4 * 1024**3


def has_room(place: Path) -> bool:
    if not os.access(place, os.W_OK):
        return False
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize > MEMORY_FREE_MIN and not found.f_flag & os.ST_NOEXEC


if has_room(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Real processes, servers and terminals: left to `make test`, so that `make check` stays short.
SLOW_PLACES = (
    "tests/api/test_schema.py",
    "tests/cluster/",
    "tests/conformance/test_store_sequences.py",
    "tests/core/test_determinism.py",
    "tests/core/state/test_timing_wheel.py",
    "tests/e2e/",
    "tests/executors/",
    "tests/cli/test_usage.py",
    "tests/worker/test_worker.py",
    "tests/integration/",
    "tests/sim/test_simcluster.py",
    "tests/test_examples.py",
    "tests/test_docs.py",
    "tests/testing/test_kit_docs.py",
)
SERVERS = frozenset(["etcd", "kafka_server", "nats_server", "postgres_server", "rabbitmq_server", "valkey"])  # fixtures

# Begun first, in this order, so that no core waits for the other at the end.
LONGEST_PLACES = (
    "tests/chaos/test_chaos.py",
    "tests/sim/test_schedule_oracle.py",
    "tests/e2e/test_kills.py",
    "tests/core/definition/test_validation.py",
    "tests/conformance/test_store_sequences.py",
    "tests/e2e/",
    "tests/test_examples.py",
    "tests/executors/",
    "tests/integration/",
    "tests/sdk/test_surface.py",
    "tests/api/test_schema.py",
)
SEEDS_IN_CHECK = 2  # of each test over random histories; all of them in `make test`
MANY = 100  # cases of one test: then every tenth is in `make check`


@pytest.fixture(autouse=True, scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What this process and its children put into the temporary folder goes where pytest tidies up."""
    folder = str(tmp_path_factory.mktemp("scratch"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))  # where servers leave their tokens
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(autouse=True, scope="module")
def swept() -> Iterator[None]:
    """Whatever a module leaves is found here, and what cannot be freed is not looked at again: values of the core are
    outside the collector's reach, and each machine of a test stays."""
    yield
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seeds: dict[str, int] = {}
    cases = Counter(item.nodeid.partition("[")[0] for item in items)
    places = {path: path.relative_to(config.rootpath).as_posix() for path in {item.path for item in items}}
    for place, item in enumerate(items):
        if cases[item.nodeid.partition("[")[0]] > MANY and place % 10:
            item.add_marker(pytest.mark.slow)
        if isinstance(item, pytest.Function) and "seed" in getattr(getattr(item, "callspec", None), "params", {}):
            test = item.nodeid.partition("[")[0]
            seeds[test] = seeds.get(test, 0) + 1
            if seeds[test] > SEEDS_IN_CHECK:
                item.add_marker(pytest.mark.slow)
        if places[item.path].startswith(SLOW_PLACES) or SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if config.pluginmanager.hasplugin("_cov") and not is_traced(item):
            item.add_marker(pytest.mark.no_cover)
    items.sort(key=lambda item: turn(places[item.path]))


def is_traced(item: pytest.Item) -> bool:
    """Whether coverage counts this test. Tracing doubles the time of the core, so it leaves out tests that take most
    of it: those over random histories, and those that `make check` leaves out too."""
    repeats = "seed" in getattr(getattr(item, "callspec", None), "params", {})
    return not (repeats or item.get_closest_marker("slow") or is_hypothesis_test(getattr(item, "obj", None)))


def turn(place: str) -> int:
    return next((n for n, start in enumerate(LONGEST_PLACES) if place.startswith(start)), len(LONGEST_PLACES))
