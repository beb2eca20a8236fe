"""How workers look: what each has, how much of it is in use, and when it was heard, on any screen."""

import io

import pytest
from rich.console import Console

from tickwork.cli.commands.status import worker_table
from tickwork.protocol import http_models as wire

TRAINER = wire.Worker(
    id="trainer-in-the-back-room-0193f2c4-7d1e-7000-8000-aa55",
    queues=("training", "default"),
    labels={"zone": "north"},
    credit=6,
    running=5,
    last_heard_at="2026-03-29T01:00:00Z",
    host="box-7",
    pid=4242,
    application="shop",
    version="v1",
    latest=False,
    resources=wire.WorkerResources(slots=6, cpu_milli=8000, memory_mb=32 * 1024, gpu=2),
    in_use=wire.WorkerResources(slots=5, cpu_milli=1500, memory_mb=2048, gpu=1),
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_worker_shows_its_whole_capacity_on_any_screen(width):
    out = io.StringIO()
    Console(file=out, width=width, emoji=False).print(
        worker_table([TRAINER, wire.Worker(id="w", queues=(), credit=1, running=0)])
    )
    text = out.getvalue()

    assert all(len(line) <= width for line in text.splitlines())
    joined = "".join(text.split())
    for words in (TRAINER.id, "training", "zone=north", "notthelatest", "5/6", "cpu1.5/8", "memory2/32GB", "gpu1/2",
                  "ago)", "box-7", "4242"):  # fmt: skip
        assert words in joined, words
    assert "…" not in text
