"""Runs take turns at the threads of a process."""

import pytest

from tickwork.protocol.worker_messages import AttemptJob, NodeSpec
from tickwork.sdk.runner.attempt_line import AttemptLine

SPEC = NodeSpec(1, "task", "flow", "node", "sha256:0", "noop")


def line_of(*entries: tuple[str, int]) -> AttemptLine:
    line = AttemptLine()
    for run, task in entries:
        line.add(AttemptJob(task, 1, SPEC.id, "acme", run, b"\x80"), SPEC)
    return line


def taken(line: AttemptLine, *, without: tuple[int, ...] = ()) -> list[int]:
    tasks = []
    while (entry := line.take(without=without)) is not None:
        tasks.append(entry[0].task)
    return tasks


@pytest.mark.parametrize(
    ("entries", "order"),
    [
        ([("map", 1), ("map", 2), ("map", 3)], [1, 2, 3]),
        ([("map", 1), ("map", 2), ("map", 3), ("small", 9)], [1, 9, 2, 3]),  # it does not wait for the whole map
        ([("a", 1), ("b", 2), ("c", 3)], [1, 2, 3]),  # one of each run: as they came
        ([("a", 1), ("b", 2), ("a", 3), ("b", 4), ("c", 5)], [1, 2, 5, 3, 4]),
    ],
)
def test_runs_take_turns_and_give_their_attempts_as_they_came(entries, order):
    line = line_of(*entries)

    assert bool(line) and taken(line) == order and not line


def test_an_attempt_that_comes_to_a_long_line_waits_for_one_attempt_of_each_run():
    line = line_of(*[("map", task) for task in range(1_000)])
    assert [line.take(without=())[0].task for _ in range(3)] == [0, 1, 2]

    line.add(AttemptJob(2_000, 1, SPEC.id, "acme", "small", b"\x80"), SPEC)

    assert [line.take(without=())[0].task for _ in range(3)] == [3, 2_000, 4]


def test_a_task_that_may_not_begin_yet_keeps_its_place_and_nobody_waits_for_it():
    line = line_of(("a", 1), ("a", 2), ("b", 3))

    assert taken(line, without=(1,)) == [2, 3]
    assert line.take(without=(1,)) is None and [work.task for work in line] == [1]
    assert taken(line) == [1]


def test_an_attempt_is_taken_out_where_it_stands():
    line = line_of(("a", 1), ("a", 2), ("b", 3))

    assert line.remove(2, 1) and not line.remove(2, 1) and not line.remove(1, 7)
    assert line.remove(3, 1) and taken(line) == [1]
