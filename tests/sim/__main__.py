"""Run seeds of a scenario: `PYTHONPATH=tests python -m sim --scenario module:function --seed 7`.

A scenario is a function (seed, options) -> Report. Options of the command line that are not listed here are handed to
it as they are, so that the command in a report runs the same run again.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pkgutil import resolve_name

from sim.faults import BadOption
from sim.report import Report

DEFAULT = "sim.scenario:run"
TOLD_SEEDS = 50  # after so many it says where it stands
Scenario = Callable[[int, dict[str, str]], Report]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="sim", description="Run seeds of the deterministic world.")
    parser.add_argument("--scenario", default=DEFAULT, help="module:function that runs one seed")
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, one after the other")
    known, more = parser.parse_known_args(words)
    scenario: Scenario = resolve_name(known.scenario)
    options = _options(more)
    for seed in range(known.seed, known.seed + known.seeds):
        try:
            report = scenario(seed, options)
        except BadOption as error:
            raise SystemExit(str(error)) from None
        if not report.ok or known.seeds == 1:
            sys.stdout.write(f"{report}\n")
        if not report.ok:
            return 1
        if (done := seed + 1 - known.seed) % TOLD_SEEDS == 0 and done < known.seeds:
            sys.stderr.write(f"{done} of {known.seeds} seeds\n")
    if known.seeds > 1:
        sys.stdout.write(f"{known.seeds} seeds, from {known.seed} on: nothing violated\n")
    return 0


def _options(words: Sequence[str]) -> dict[str, str]:
    """--name value, in pairs."""
    if len(words) % 2 or any(not name.startswith("--") for name in words[::2]):
        raise SystemExit(f"options come as --name value, not as {' '.join(words)}")
    names = [name.removeprefix("--").replace("-", "_") for name in words[::2]]
    return dict(zip(names, words[1::2], strict=True))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
