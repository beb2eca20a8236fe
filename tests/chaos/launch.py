"""`tickwork …` whose wall clock a test can set: `python launch.py server …`, with CHAOS_CLOCK naming a file of 8 bytes.

They hold how many milliseconds the clock is off, and may change at any moment. The product has no such switch: it
reads the wall clock in one module, and here that module sees another one.
"""

import mmap
import os
import struct
import sys
import time
from types import SimpleNamespace


def main() -> None:
    from tickwork.cli.main import main as tickwork
    from tickwork.system import clock as system

    with open(os.environ["CHAOS_CLOCK"], "r+b") as file:
        offset = mmap.mmap(file.fileno(), 8)

    def time_ns() -> int:
        return time.time_ns() + struct.unpack_from("<q", offset)[0] * 1_000_000

    system.time = SimpleNamespace(time_ns=time_ns, monotonic_ns=time.monotonic_ns)
    sys.argv[0] = "tickwork"
    sys.exit(tickwork())


if __name__ == "__main__":
    main()
