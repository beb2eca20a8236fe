"""Writes docs/definition.schema.json, or says with --check whether it is current."""

import sys
from pathlib import Path

import msgspec

from tickwork.core.definition.document import json_schema

FILE = Path(__file__).parent.parent / "docs" / "definition.schema.json"


def text() -> str:
    return msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode() + "\n"


def main() -> int:
    if "--check" in sys.argv:
        return 0 if FILE.read_text() == text() else 1
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
