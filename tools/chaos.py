"""`make chaos`: real nodes, workers and a real PostgreSQL under real faults, for as long as it takes to be sure.

    make chaos                                     # 100,000 tasks under every kind of fault
    python tools/chaos.py --seed 7 --minutes 30
    python tools/chaos.py --tasks 5000 --kinds kill_node,lose_answers

It shows what it does, ends with a table, and exits with 1 where a promise was broken. The seed decides which faults
come in which order; when exactly they strike is up to the machine.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"


def main() -> int:
    sys.path[0] = str(TESTS)  # in place of this folder
    campaign: Any = import_module("chaos.campaign")
    faults: Any = import_module("chaos.faults")
    disk: Any = import_module("chaos.disk")
    verdicts: Any = import_module("chaos.verdicts")
    asked = _arguments(sorted(faults.KINDS))
    settings = campaign.Settings(
        seed=asked.seed,
        nodes=asked.nodes,
        workers=asked.workers,
        tasks_min=asked.tasks,
        seconds=60 * asked.minutes,
        rate=asked.rate,
        kinds=asked.kinds.split(",") if asked.kinds else list(faults.KINDS),
    )
    folder = Path(tempfile.mkdtemp(prefix="tickwork-chaos-"))
    outcome = asyncio.run(campaign.run(settings, folder / "one", _tell))
    if not asked.kinds:
        outcome.verdicts += asyncio.run(disk.run(folder / "two", _tell))
    print(verdicts.table(outcome.verdicts))
    if asked.json:
        Path(asked.json).write_text(json.dumps(_report(asked, outcome), indent=2) + "\n")
    if outcome.broken:
        print(f"broken: {', '.join(one.name for one in outcome.broken)}; what the programs said is in {folder}")
        return 1
    shutil.rmtree(folder)
    print(f"{outcome.tasks} tasks, {len(outcome.faults)} faults in {outcome.seconds:.0f} s: every promise was kept")
    return 0


def _arguments(kinds: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--minutes", type=float, default=0.0, help="at least so long")
    parser.add_argument("--tasks", type=int, default=100_000, help="at least so many")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=300.0, help="tasks a second")
    parser.add_argument("--kinds", default="", help=f"only these, comma-separated: {', '.join(kinds)}")
    parser.add_argument("--json", default="", metavar="FILE", help="where the figures go as well")
    return parser.parse_args()


def _report(asked: argparse.Namespace, outcome: Any) -> dict[str, Any]:
    return {
        "seed": asked.seed,
        "tasks": outcome.tasks,
        "seconds": round(outcome.seconds, 1),
        "undisturbed_rate": round(outcome.base, 1),
        "verdicts": [{"name": one.name, "kept": one.kept, "text": one.text} for one in outcome.verdicts],
        "faults": [{"kind": one.kind, "target": one.target, "recovered_s": one.recovered_s} for one in outcome.faults],
    }


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
