"""Which requirements are proved by a test, decided in a document, or still open.

A test proves ids by `@pytest.mark.proves("S001-35", ...)`; `docs/contributing/deviations.md` decides ids in
the first column of its table, one id or a range (`S003-05..S003-12`) in each row. The ids come
from the requirements page beside the repository, else from `docs/contributing/requirements-ids.txt`.
`docs/open-requirements.txt` lists the open ones with the capability that each waits for; the exit code is 1 while an
open one is not listed, or an id does not exist.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Ids of the reliability page: valid names in a mark, and counted elsewhere.
RELIABILITY_MAX = {"B": 28, "F": 30, "I": 61, "L": 20, "P": 22, "S": 88, "mT": 6}
_PAGE_ROW = re.compile(r"^\| (S\d{3}-\d+) \| [^|]* \| ([\w-]+) \|", re.MULTILINE)
_LIST_ROW = re.compile(r"^(S\d{3}-\d+) ([\w-]+)$", re.MULTILINE)
_DECIDED_ROW = re.compile(r"^\| (S\d{3})-(\d+)(?:\.\.S\d{3}-(\d+))? \|", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    kinds: Mapping[str, str]  # id to kind, in the order of the page
    proved: tuple[str, ...]
    decided: tuple[str, ...]
    open: tuple[str, ...]
    waits_for: Mapping[str, str]  # id to capability, as listed
    unknown: tuple[str, ...]  # named by a test or a decision, but no such id exists


def report(root: Path) -> Report:
    kinds = requirement_kinds(root)
    marked = sorted({name for path in (root / "tests").rglob("*.py") for name in marked_ids(path.read_text())})
    named = sorted(decided_ids(_text(root / "docs" / "contributing" / "deviations.md")))
    listed = listed_capabilities(_text(root / "docs" / "open-requirements.txt"))
    proved = tuple(name for name in kinds if name in marked)
    decided = tuple(name for name in kinds if name in named and name not in marked)
    return Report(
        kinds=kinds,
        proved=proved,
        decided=decided,
        open=tuple(name for name in kinds if name not in marked and name not in named),
        waits_for=listed,
        unknown=tuple(name for name in [*marked, *named, *listed] if name not in kinds and not is_reliability_id(name)),
    )


def requirement_kinds(root: Path) -> dict[str, str]:
    page = root.parent / "shared" / "requirements.md"
    if page.exists():
        return dict(_PAGE_ROW.findall(page.read_text()))
    return dict(_LIST_ROW.findall(_text(root / "docs" / "contributing" / "requirements-ids.txt")))


def marked_ids(source: str) -> Iterator[str]:
    """The ids in every `pytest.mark.proves(...)`, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.proves"):
            yield from (str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))


def decided_ids(text: str) -> Iterator[str]:
    for seed, first, last in _DECIDED_ROW.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{seed}-{number:02}"


def listed_capabilities(text: str) -> dict[str, str]:
    """What each listed requirement waits for."""
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines}


def unlisted(result: Report) -> tuple[str, ...]:
    """Open requirements of which nothing says what they wait for."""
    return tuple(name for name in result.open if not result.waits_for.get(name))


def is_reliability_id(name: str) -> bool:
    found = re.fullmatch(r"([A-Za-z]+)([1-9]\d*)", name)
    return found is not None and int(found[2]) <= RELIABILITY_MAX.get(found[1], 0)


def as_text(result: Report) -> str:
    lines = [f"{name}: {len(ids)}" for name, ids in _groups(result).items()]
    for seed in sorted({name.partition("-")[0] for name in result.open}):
        ids = [name for name in result.open if name.startswith(f"{seed}-")]
        lines += ["", f"{seed}: {len(ids)} open"] + [
            f"  {name} {result.kinds[name]}: {result.waits_for.get(name) or 'NOT LISTED in docs/open-requirements.txt'}"
            for name in ids
        ]
    settled = [name for name in result.waits_for if name in result.kinds and name not in result.open]
    notes = [f"listed, but no longer open: {name}" for name in settled]
    return "\n".join([*lines, *notes, *(f"unknown id: {name}" for name in result.unknown)])


def as_json(result: Report) -> str:
    return json.dumps({name: list(ids) for name, ids in _groups(result).items()}, indent=2)


def _groups(result: Report) -> dict[str, tuple[str, ...]]:
    return {"proved": result.proved, "decided": result.decided, "open": result.open, "unknown": result.unknown}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Requirements: proved, decided, open.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(argv)
    result = report(root)
    sys.stdout.write((as_json(result) if options.json else as_text(result)) + "\n")
    return 1 if result.unknown or unlisted(result) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
