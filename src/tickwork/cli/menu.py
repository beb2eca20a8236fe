"""All commands, as one table: the menu is drawn from it without loading any of them."""

from typing import NamedTuple


class Entry(NamedTuple):
    name: str
    does: str
    at: str  # module:function under tickwork.cli


GROUPS: dict[str, tuple[Entry, ...]] = {
    "Begin": (),
    "Processes": (
        Entry("server", "The engine and its API.", "processes:server"),
        Entry("worker", "A worker for an application.", "processes:worker"),
    ),
}


def entries() -> list[Entry]:
    return [entry for group in GROUPS.values() for entry in group]


def menu() -> str:
    """What `tickwork` and `tickwork --help` print."""
    lines = [
        "Usage: tickwork COMMAND [ARGUMENTS]",
        "",
        "A deterministic scheduler: every decision is recorded and can be replayed.",
    ]
    width = max(len(entry.name) for entry in entries()) + 2
    for title, group in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {one.name:<{width}}{one.does}" for one in group)]
    lines += [
        "",
        "  tickwork COMMAND --help       what a command takes",
        "  tickwork --version            the version",
        "  tickwork --install-completion completion for bash, zsh and fish",
        "",
        "Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 not found, 4 refused, 65 damaged data,",
        "69 no server, 75 try again, 78 wrong setting, 130 interrupted. Details: docs/cli.md.",
    ]
    return "\n".join(lines)
