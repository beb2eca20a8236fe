"""The results of a map, gathered while rows are being written."""

import asyncio

from tickwork.core.values import Ref
from tickwork.runtime.vault import Vault, encode_value


class WritesMeanwhile:
    """A store whose answer is older than the end of the write that goes on beside it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, bytes]] = []
        self.unwritten = {0: b"\x07"}

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        seen = list(self.rows)
        await asyncio.sleep(0)
        self.rows = [(child, encode_value(value)) for child, value in self.unwritten.items()]
        self.unwritten = {}
        return seen


async def test_a_result_that_is_written_while_it_is_looked_for_is_found():
    store = WritesMeanwhile()
    vault = Vault(store, None)
    vault.unwritten_children = lambda _run, _step: dict(store.unwritten)

    assert await vault.bytes_of(Ref("1/0", 0, 1, "gather")) == b"\x91\x07"
