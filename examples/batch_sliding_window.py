"""Process many records, a window of them at a time. Whoever starts a run chooses the window.

    tickwork dev examples/batch_sliding_window.py
    tickwork run examples/batch_sliding_window.py:sliding_window -i records=20 -i window=5

As soon as one record is done, the next one starts: `max_parallel` is the whole window. `tickwork why RUN` says how many
records have begun and how many are under way; if a worker is lost, only its records run again.
"""

import time

import tickwork as tw


@tw.task
def record_ids(records: int) -> list[int]:
    return list(range(records))


@tw.task(executor="thread", retries=3)
def process(record: int) -> dict[str, float]:
    started = time.time()
    time.sleep(0.2)  # stands for the real work
    return {"record": record, "started": started, "ended": time.time()}


@tw.task
def summary(done: list[dict[str, float]], window: int) -> str:
    most = max(sum(other["started"] <= one["started"] < other["ended"] for other in done) for one in done)
    return f"{len(done)} records, {most} at once, in a window of {window}"


@tw.workflow
def sliding_window(records: int = 20, window: int = 5) -> str:
    done = process.map(record_ids(records), max_parallel=window)
    return summary(done, window)
