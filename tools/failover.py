"""How long a cluster takes no submission while a partition changes hands, measured under load.

python tools/failover.py                       # kill -9 of the owner, 50 times
python tools/failover.py --clean               # SIGTERM of the owner, 50 times
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"


def main() -> int:
    sys.path[0] = str(TESTS)  # in place of this folder
    moves: Any = import_module("chaos.moves")
    verdicts: Any = import_module("chaos.verdicts")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--rate", type=float, default=200.0, help="tasks a second beside the probes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clean", action="store_true", help="ask it to end instead of killing it")
    parser.add_argument("--json", default="", metavar="FILE", help="where the figures go as well")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tickwork-failover-"))
    measure = moves.hand_over if asked.clean else moves.fail_over
    found = asyncio.run(measure(folder, times=asked.times, rate=asked.rate, seed=asked.seed, tell=_tell))
    print(verdicts.table(found.verdicts))
    print(found.as_json())
    if asked.json:
        Path(asked.json).write_text(found.as_json() + "\n")
    broken = [one.name for one in found.verdicts if not one.kept]
    if broken:
        print(f"broken: {', '.join(broken)}; what the programs said is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _tell(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
