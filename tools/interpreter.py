"""Prints the fastest Python 3.11 on the PATH: builds of one version differ by half. Without any, the one that asks.

An argument names another version (`3.13`); without such a Python on the PATH, the script fails.
"""

import os
import subprocess
import sys
from pathlib import Path

DEFAULT = "3.11"
TRIES = 3
WORK = """
import sys, time
assert "%d.%d" % sys.version_info[:2] == sys.argv[1] and sys.implementation.name == "cpython"
begun = time.process_time()
table = {}
for number in range(200_000):
    table[number & 1023] = (number, str(number))
print(time.process_time() - begun, sys.executable)
"""


def main(arguments: list[str]) -> int:
    version = arguments[0] if arguments else DEFAULT
    seconds: dict[str, float] = {}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for name in (f"python{version}", "python3"):
            file = Path(folder) / name
            if folder and file.is_file():
                for _ in range(TRIES):
                    measure(str(file), version, seconds)
    if not seconds and arguments:
        print(f"there is no Python {version} on the PATH; install it, or name another version", file=sys.stderr)
        return 1
    print(min(seconds, key=lambda file: seconds[file]) if seconds else sys.executable)
    return 0


def measure(file: str, version: str, seconds: dict[str, float]) -> None:
    """Record the time of this interpreter. One that does not start, or has another version, is left out."""
    run = subprocess.run([file, "-I", "-c", WORK, version], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        taken, executable = run.stdout.split(maxsplit=1)
        executable = executable.strip()
        seconds[executable] = min(seconds.get(executable, float("inf")), float(taken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
