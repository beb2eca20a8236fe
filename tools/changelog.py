"""Moves the fragments of changelog.d/ into CHANGELOG.md, under the section of the current version.

A fragment is a Markdown list. A line `### Added`, `### Changed`, `### Fixed`, `### Removed` or `### Security` gives the
kind of the entries below it; entries without such a line count as `Changed`. The tool may run at any time: entries of a
version that already has a section are appended to it, and only the fragments that were collected are deleted.

`--check` changes nothing and reports fragments that are not well-formed.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tickwork.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("Added", "Changed", "Fixed", "Removed", "Security")
DEFAULT_KIND = "Changed"
SECTION = re.compile(r"^## ", re.MULTILINE)
GUIDE = "README.md"  # in changelog.d/, and not a fragment


class Malformed(Exception):
    """A fragment that cannot be collected. The message names the file and the line."""


class Entry(NamedTuple):
    kind: str
    text: str  # the list item, with its continuation lines


def main(arguments: list[str], root: Path = ROOT) -> int:
    paths = fragments(root)
    try:
        entries = [entry for path in paths for entry in parse(path.read_text(), path.name)]
    except Malformed as error:
        print(error, file=sys.stderr)
        return 1
    if "--check" in arguments:
        return 0
    page = root / "CHANGELOG.md"
    page.write_text(collect(page.read_text(), entries, version=VERSION, date=datetime.now(UTC).date().isoformat()))
    for path in paths:
        path.unlink()
    print(f"{page.name}: {len(entries)} entries of {len(paths)} fragments")
    return 0


def fragments(root: Path) -> list[Path]:
    return sorted(path for path in (root / "changelog.d").glob("*.md") if path.name != GUIDE)


def parse(text: str, name: str) -> list[Entry]:
    """Return the entries of one fragment."""
    kind, entries = DEFAULT_KIND, list[Entry]()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        if line.startswith("#"):
            kind = _kind(line, f"{name}:{number}")
        elif line.startswith("- "):
            entries.append(Entry(kind, line.rstrip()))
        elif line.startswith("  ") and entries and entries[-1].kind == kind:
            entries[-1] = Entry(kind, f"{entries[-1].text}\n{line.rstrip()}")
        else:
            raise Malformed(f"{name}:{number}: write a list: `- ` begins an entry, two spaces continue it")
    if not entries:
        raise Malformed(f"{name}: the fragment has no entry")
    return entries


def _kind(line: str, where: str) -> str:
    kind = line.removeprefix("### ").strip()
    if kind not in KINDS:
        raise Malformed(f"{where}: write one of {', '.join(f'`### {known}`' for known in KINDS)}")
    return kind


def collect(page: str, entries: list[Entry], *, version: str, date: str) -> str:
    """Return the page with the entries in the section of the version. A new section is put before the others."""
    if not entries:
        return page
    head = re.search(rf"^## {re.escape(version)}(?= |$).*\n", page, re.MULTILINE)
    following = SECTION.search(page, head.end() if head else 0)
    end = following.start() if following else len(page)
    before = page[: head.end()] if head else f"{page[:end].rstrip()}\n\n## {version} ({date})\n"
    section = merged(page[head.end() : end] if head else "", entries)
    return f"{before}\n{section}\n" + (f"\n{page[end:]}" if following else "")


def merged(section: str, entries: list[Entry]) -> str:
    """Return the section with the new entries at the end of their kinds. Its introduction stays first."""
    introduction, *parts = re.split(r"^### (.+)\n", section, flags=re.MULTILINE)
    bodies = {kind: body.strip() for kind, body in zip(parts[::2], parts[1::2], strict=True)}
    for kind in KINDS:
        added = [entry.text for entry in entries if entry.kind == kind]
        if added:
            bodies[kind] = "\n".join(filter(None, [bodies.get(kind, ""), *added]))
    ordered = [*(kind for kind in KINDS if kind in bodies), *(kind for kind in bodies if kind not in KINDS)]
    return "\n\n".join(filter(None, [introduction.strip(), *(f"### {kind}\n\n{bodies[kind]}" for kind in ordered)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
