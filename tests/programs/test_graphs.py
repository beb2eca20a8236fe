"""Programs as graphs: the shape is known before the run."""

import asyncio

import pytest


@pytest.mark.parametrize(("host", "worker"), [("host-1", "worker-2"), ("host-2", "worker-3")])
def test_the_later_tasks_run_on_the_host_of_the_first(world, program, monkeypatch, host, worker):
    module = program("same_host")
    world.serve("host-1")  # beside worker-1, which serves the shared queue
    world.serve("host-2")
    monkeypatch.setenv("HOST", host)
    run = world.run(module.transfer)

    run.assert_completed(output="uploaded video.download.processed")
    assert [run.tasks[node].history[0].worker for node in ("process", "upload")] == [worker, worker]


def test_nested_fan_out_is_joined(world, program):
    run = world.run(program("result_graph").total_length, letters=["a", "b", "c", "d"])

    run.assert_completed(output=4 * 6)


def test_a_broken_branch_of_the_fan_out_fails_the_join(world, program):
    module = program("result_graph")
    world.replace(module.words_with, lambda letter: [letter] if letter != "b" else 1 / 0)
    run = world.run(module.total_length)

    run.assert_failed(node="length_of_words")
    assert run.tasks["add"].state == "blocked"


def test_the_crawler_reads_what_pages_link_to(world, program):
    run = world.run(program("web_crawler").crawl, page="home", depth=2)

    run.assert_completed(output=["home", "news", "today", "archive", "shop", "books", "music", "about"])


def test_the_crawler_goes_32_deep_and_no_deeper(world, program):
    module = program("web_crawler")
    world.replace(module.links_of, lambda page, depth: [page] if depth > 0 else [])

    deepest = world.run(module.crawl, page="next", depth=31)
    assert len(deepest.output) == 32
    world.run(module.crawl, page="next", depth=40).assert_failed()


def test_the_window_slides(world, program):
    module = program("batch_sliding_window")
    at_once = [0, 0]

    async def process(record: int) -> dict[str, float]:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(1 + record % 3)
        at_once[0] -= 1
        return {"record": record, "started": 0.0, "ended": 1.0}

    world.replace(module.process, process)
    run = world.run(module.sliding_window, records=20, window=4)

    run.assert_completed()
    assert at_once == [0, 4]
