"""The results of a map, gathered while rows are being written."""

import asyncio

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.base.values import Ref
from tickwork.core.definition.model import Combine
from tickwork.core.state.state import LogicalClock
from tickwork.runtime.partition.task_assignment import (
    ArgumentSource,
    ArgumentTemplate,
    AssignmentBuilder,
    ItemList,
    ItemSource,
)
from tickwork.runtime.storage.payloads import PayloadStore, encode_value


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
    vault = PayloadStore(store, None)
    vault.unwritten_children = lambda _run, _step: dict(store.unwritten)

    assert await vault.bytes_of(Ref("1/0", 0, 1, "gather")) == b"\x91\x07"


PART = ArgumentTemplate("x", b"\xa1x", "item")


def item_of(ref: Ref, index: int) -> ArgumentSource:
    return ArgumentSource(PART, None, ItemSource(index, Combine.ZIP, (ItemList(ref, None),)))


class CountsReads:
    """A store of one large payload."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads = data, 0

    async def read_payloads(self, digests: list[str]) -> dict[str, bytes]:
        self.reads += 1
        await asyncio.sleep(0)
        return dict.fromkeys(digests, self.data)


async def test_children_of_a_wide_map_that_start_together_share_the_read_of_their_list(monkeypatch):
    items = list(range(30_000))
    data = msgspec.msgpack.encode(items)
    store = CountsReads(data)
    assigner = AssignmentBuilder(PayloadStore(store, None, children=store.read_payloads), LogicalClock())
    decoded = []
    take_apart = assigner._take_apart
    monkeypatch.setattr(assigner, "_take_apart", lambda *given: decoded.append(1) or take_apart(*given))
    ref = Ref("digest", len(data), len(items), "payload")

    made = await asyncio.gather(*(assigner.assemble([item_of(ref, child)]) for child in range(1_000)))

    assert [msgspec.msgpack.decode(args) for args, _ in made] == [{"x": item} for item in items[:1_000]]
    assert (store.reads, len(decoded)) == (1, 1)


async def test_a_list_that_could_not_be_loaded_is_loaded_again_for_those_who_ask_again():
    data = msgspec.msgpack.encode(list(range(30_000)))
    store = CountsReads(data)
    assigner = AssignmentBuilder(PayloadStore(store, None, children=store.read_payloads), LogicalClock())
    source = item_of(Ref("digest", len(data), 30_000, "payload"), 7)
    store.data = None
    failed = await asyncio.gather(*(assigner.assemble([source]) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in failed] == [Corrupt] * 3

    store.data = data
    args, _ = await assigner.assemble([source])
    assert msgspec.msgpack.decode(args) == {"x": 7}


async def test_others_have_their_turn_while_the_results_of_a_wide_map_are_gathered():
    total = 50_000
    vault = PayloadStore(WritesMeanwhile(), None)
    vault.unwritten_children = lambda _run, _step: dict.fromkeys(range(total), b"\x07")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.get_running_loop().create_task(count_turns())
    data = await vault.bytes_of(Ref("1/0", 0, total, "gather"))
    others.cancel()

    assert len(data) == total + 3
    assert turns >= 10
