"""A process of its own that uses a store: the tests start it, watch it and kill it.

Arguments: what to do, the file, and for `write` whether a scribe is to help, and where to end itself, if anywhere. Each
acknowledged commit is told on standard output, in one write, after it was acknowledged.
"""

import asyncio
import os
import sys

from tickwork.core.base.errors import TickworkError
from tickwork.journal.record import Row, seal
from tickwork.ports.store import Payload, Rows
from tickwork.stores.sqlite.store import SqliteStore


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def hold(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    say(f"holding {os.getpid()}")
    await asyncio.sleep(60)


async def try_open(path: str) -> None:
    store = SqliteStore(path)
    try:
        await store.open()
    except TickworkError as error:
        say(f"{error.code}: {error}")
    else:
        await store.close()
        say("opened")


def payload(seq: int) -> bytes:
    """Every other one is more than a small tick has."""
    return b"%d" % seq * (100 if seq % 2 else 2_100)


async def write(path: str, place: str, failpoint: str, after: str) -> None:
    """Commits for ever, rows every third time. Ends itself at the failpoint when it is met for the nth time."""
    left = int(after)

    def end() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os._exit(137)

    store = SqliteStore(path, failpoints={failpoint: end} if failpoint else {}, apart=place == "apart")
    await store.open()
    head = await store.claim(0, owner=str(os.getpid()), settings=b"s")
    say(f"claimed {head.epoch}")
    seq, tick, before = head.seq, head.tick, head.hash
    while True:
        row = seal(Row(seq + 1, tick + 1, "rules", [], []), before)
        await store.commit(0, row, [Payload(f"d{row.seq}", payload(row.seq))], epoch=head.epoch)
        say(f"committed {row.seq}")
        seq, tick, before = row.seq, row.tick, row.hash
        if seq % 3 == 0:
            live = [(1 + seq % 50, b"run at %d" % seq)]
            rows = Rows(header=b"header at %d" % seq, live_runs=live, attempts=[(seq, b"attempt")])
            await store.write_rows(0, rows, epoch=head.epoch, through=seq, head=before)
            say(f"rows {seq}")


if __name__ == "__main__":
    deed, *arguments = sys.argv[1:]
    asyncio.run({"hold": hold, "open": try_open, "write": write}[deed](*arguments))
