"""Programs as graphs: the shape is known before the run."""

import asyncio
from datetime import timedelta

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


def limited(world, program, documents):
    """Index these documents of three tenants, and note when each call began and ended."""
    module = program("tenant_queues")
    module.set_limits(world)
    spans = []

    async def index(tenant: str, document: str, text: str) -> str:
        begin = world.now
        await asyncio.sleep(10)
        spans.append((tenant, begin, world.now))
        return f"{document}: {text}"

    world.replace(module.index, index)
    for number in range(documents):
        world.start(module.indexed, tenant=f"t{number % 4 and 1}", document=f"d{number}", text="short")
    world.advance(hours=1)
    assert [run.output for run in world.runs()] == [f"d{number}: short" for number in range(documents)]
    return spans


def most_at_once(spans):
    return max(sum(begin <= moment < end for _, begin, end in spans) for _, moment, _ in spans)


def test_tenants_and_all_together_have_limits(world, program):
    spans = limited(world, program, 12)

    assert most_at_once(spans) == 3
    assert most_at_once([span for span in spans if span[0] == "t1"]) == 2


def test_no_minute_has_more_starts_than_the_rate(world, program):
    begins = sorted(begin for _, begin, _ in limited(world, program, 45))

    assert max(sum(first <= begin < first + timedelta(minutes=1) for begin in begins) for first in begins) <= 20


def test_each_machine_runs_two_models_at_a_time(world, program):
    module = program("gpu_models")
    spans = []

    async def score(model: str) -> str:
        begin = world.now
        await asyncio.sleep(60)
        spans.append((model, begin, world.now))
        return model

    world.replace(module.score, score)
    for _ in range(3):
        world.serve("models", resources={"gpu": 2})
    run = world.run(module.evaluate, models=[str(number) for number in range(18)])
    world.advance(minutes=10)

    run.assert_completed(output=[str(number) for number in range(18)])
    assert most_at_once(spans) == 6
    assert max(end for _, _, end in spans) - min(begin for _, begin, _ in spans) < timedelta(minutes=4)


def test_a_model_that_needs_more_cards_than_any_machine_has_waits_with_a_reason(world, program):
    module = program("gpu_models")
    world.serve("models", resources={"gpu": 0})
    run = world.run(module.evaluate, models=["one"])

    assert "wants gpu 1, and no connected worker" in run.why()


def test_a_burst_of_edits_is_one_run_with_the_last_text(world, program):
    module = program("tenant_queues")
    for text in ("a", "a b", "a b c"):
        module.edited(world, "ada", "letter", text)
        world.advance(seconds=9)
    module.edited(world, "ada", "poem", "o")
    world.advance(seconds=20)

    assert [run.output for run in world.runs()] == ["ada/letter: 3 words", "ada/poem: 1 words"]


def test_a_document_that_is_edited_all_the_time_is_indexed_each_minute(world, program):
    module = program("tenant_queues")
    for number in range(40):  # every five seconds
        module.edited(world, "ada", "letter", "word " * number)
        world.advance(seconds=5)

    assert [run.output for run in world.runs(state="completed")] == [
        f"ada/letter: {number} words" for number in (11, 23, 35)
    ]


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


SET_UP_AND_REMOVED = ["rent_cluster", "create_table", "drop_table", "return_cluster"]


def order_of(run):
    """Its tasks in the order in which they began."""
    began = [(task.history[0].started_at or "", node) for node, task in run.tasks.items() if task.history]
    return [node for _, node in sorted(began) if node in SET_UP_AND_REMOVED]


def test_set_up_and_teardown_are_nested(world, program):
    run = world.run(program("nested_setup").nightly)

    run.assert_completed(output="98 rows, counted on the cluster of 3")
    assert order_of(run) == SET_UP_AND_REMOVED


def test_work_that_fails_is_removed_and_a_retry_sets_up_again(world, program):
    module = program("nested_setup")
    world.fail(module.load, times=1)
    run = world.run(module.nightly)
    run.assert_failed(node="load")
    assert order_of(run) == SET_UP_AND_REMOVED

    world.retry(run)
    run.assert_completed()
    assert [len(world.calls(getattr(module, name))) for name in SET_UP_AND_REMOVED] == [2, 2, 2, 2]


def test_a_cancelled_night_drops_the_table_and_returns_the_cluster(world, program):
    module = program("nested_setup")
    world.replace(module.load, lambda **_: asyncio.sleep(3_600))
    run = world.start(module.nightly)
    world.advance(minutes=1)
    world.cancel(run)
    world.settle()

    run.assert_cancelled()
    assert order_of(run) == SET_UP_AND_REMOVED and run.tasks["report"].state == "cancelled"


def test_a_table_that_stays_is_a_warning_and_a_cluster_that_stays_is_a_failure(world, program):
    module = program("nested_setup")
    world.fail(module.drop_table)
    world.run(module.nightly).assert_completed()
    world.fail(module.return_cluster)
    world.run(module.nightly).assert_failed(node="return_cluster")
