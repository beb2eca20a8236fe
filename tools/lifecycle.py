"""Write docs/lifecycle.md. With --check, only report whether it is current."""

import sys
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path

from tickwork.core.decide.runs.run_end import CLEAN_UP_MS_MAX, CLEAN_UP_MS_MIN
from tickwork.core.state import lifecycle

FILE = Path(__file__).parent.parent / "docs" / "lifecycle.md"

_HEAD = """# Lifecycles

`tools/lifecycle.py` generates this page from the tables in `src/tickwork/core/state/lifecycle.py`. Do not edit it.
Each cell of a table shows the next state, or *refused*.
"""

_CLEAN_UP = f"""If a run exceeds its `timeout` and has clean-up nodes, the transition `time_out` takes two steps. First,
all other nodes are cancelled, a pause ends, and the clean-up starts: nodes with the trigger rule `all_done` or
`any_failed`, and nodes that depend only on such nodes. The clean-up may take as long as `timeout`, at least
{CLEAN_UP_MS_MIN // 60_000} minute and at most {CLEAN_UP_MS_MAX // 60_000} minutes. When it has ended, or its time is
over, the run makes the transition `time_out`, whatever the result of the clean-up.

`cancel` ends a run and its clean-up at once, unless something that the run set up is still to be torn down. Then all
nodes but teardowns are cancelled, a pause ends, and the transition `cancel` follows when the teardowns have ended,
after at most {CLEAN_UP_MS_MAX // 60_000} minutes, or with the next `cancel`.
"""


def draw() -> str:
    return "\n".join(
        [
            _HEAD,
            *_part("Runs", lifecycle.RunState, lifecycle.RunTrigger, lifecycle.RUN_MOVES),
            _CLEAN_UP,
            *_part("Tasks", lifecycle.Phase, lifecycle.Cause, lifecycle.TASK_MOVES),
            *_part("Attempts", lifecycle.AttemptState, lifecycle.AttemptCause, lifecycle.ATTEMPT_MOVES),
        ]
    )


def _part(
    title: str, states: Iterable[IntEnum], causes: Iterable[IntEnum], moves: Mapping[tuple[int, int], IntEnum]
) -> list[str]:
    states, causes = list(states), list(causes)
    return [f"## {title}", "", *_diagram(states, causes, moves), "", *_table(states, causes, moves), ""]


def _diagram(states: list[IntEnum], causes: list[IntEnum], moves: Mapping[tuple[int, int], IntEnum]) -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {states[0].name}"]
    for before in states:
        for after in states:
            by = [cause.name.lower() for cause in causes if moves.get((before, cause)) is after]
            if by:
                lines.append(f"    {before.name} --> {after.name}: {', '.join(by)}")
    final = [state for state in states if not any((state, cause) in moves for cause in causes)]
    lines.extend(f"    {state.name} --> [*]" for state in final)
    return [*lines, "```"]


def _table(states: list[IntEnum], causes: list[IntEnum], moves: Mapping[tuple[int, int], IntEnum]) -> list[str]:
    lines = [f"| | {' | '.join(cause.name.lower() for cause in causes)} |", "|---" * (len(causes) + 1) + "|"]
    for state in states:
        cells = [moves[state, cause].name if (state, cause) in moves else "refused" for cause in causes]
        lines.append(f"| {state.name} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    if "--check" in sys.argv:
        return 0 if FILE.read_text() == draw() else 1
    FILE.write_text(draw())
    return 0


if __name__ == "__main__":
    sys.exit(main())
