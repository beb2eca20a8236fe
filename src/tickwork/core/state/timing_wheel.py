"""The hierarchical timing wheel: which timers are due, in one total order.

A timer is one number, its mark: due tick, kind and number packed so that comparing marks is
comparing (due, kind, number). The wheel is a trie over the bits of the mark, eight to a
level, each node with a bitmap of its occupied slots. A slot holds a bucket of marks, and
becomes a node of a lower level once the bucket is full; only the earliest marks, a bucket or
some small neighbours, are ever sorted: they are the front.

Nothing cascades: a timer moves when its bucket splits and when its bucket becomes the front,
and either is a few hundred timers at most, so no operation is a long one, whether two million
timers lie in one tick or in a century. A jump over idle time is a look at a few bitmaps.
"""

from bisect import bisect_left
from collections.abc import Iterator

NUMBER_BITS, KIND_BITS = 53, 5
KEY_BITS = NUMBER_BITS + KIND_BITS
DUE_BITS = 48  # 8,900 years of milliseconds
DUE_MAX, KEY_MAX = (1 << DUE_BITS) - 1, (1 << KEY_BITS) - 1
KIND_MASK, NUMBER_MASK = (1 << KIND_BITS) - 1, (1 << NUMBER_BITS) - 1
WIDTH = 14  # bytes of a mark

# With 11 bits a step less is taken to the bucket, but nodes that are nearly empty made a full garbage
# collection over two million timers in one second take about 100 ms instead of 24 to 37.
SLOT_BITS = 8
SLOTS, SLOT_MASK = 1 << SLOT_BITS, (1 << SLOT_BITS) - 1
# Where each level's digit starts in the mark. What is left below the last one is four marks: it never splits.
SHIFTS = tuple(range(DUE_BITS + KEY_BITS - SLOT_BITS, 0, -SLOT_BITS))
BUCKET_MAX = 128  # marks
FRONT_MAX = 512

# Marks side by side in any order. Two million integers in dicts took five times the memory, and every
# operation on them waited for that memory: the fewer places a timer is spread over, the faster.
Bucket = bytearray


class _Node:
    __slots__ = ("occupied", "slots")

    def __init__(self) -> None:
        self.occupied = 0
        self.slots: list[_Node | Bucket | None] = [None] * SLOTS

    def put(self, slot: int, mark: int) -> int:
        """How many bytes the slot's bucket has then."""
        bucket = self.slots[slot]
        if bucket is not None:
            assert type(bucket) is Bucket
            bucket += mark.to_bytes(WIDTH, "big")
            return len(bucket)
        self.slots[slot] = Bucket(mark.to_bytes(WIDTH, "big"))
        self.occupied |= 1 << slot
        return WIDTH

    def split(self, slot: int, shift: int) -> None:
        """Down to the level where they differ: those between have one slot each, and nothing is moved through them."""
        bucket = self.slots[slot]
        assert isinstance(bucket, Bucket)
        marks = _marks_in(bucket)
        same = min(marks) ^ max(marks)
        node = self.slots[slot] = _Node()
        while shift > SLOT_BITS and not same >> shift:
            node = node.add_node(marks[0] >> shift & SLOT_MASK)
            shift -= SLOT_BITS
        for mark in marks:
            node.put(mark >> shift & SLOT_MASK, mark)

    def add_node(self, slot: int) -> "_Node":
        node = self.slots[slot] = _Node()
        self.occupied |= 1 << slot
        return node


class Wheel:
    """An owner's key is `number << 5 | kind`; it must know a timer's due tick to cancel it."""

    __slots__ = ("_front", "_front_end", "_near", "_near_mark", "_near_shift", "_root", "_size")

    def __init__(self) -> None:
        self._root = _Node()
        # Where the last timer went: the next one is likely to go there too. An empty node may be no part of the trie.
        self._near, self._near_mark, self._near_shift = self._root, 0, SHIFTS[0]
        self._front: list[int] = []  # sorted; every mark below _front_end is here, all others are in the trie
        self._front_end = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def insert(self, due: int, key: int) -> None:
        """A due in the past is first at once. Setting a timer twice is noticed when its bucket is opened."""
        assert 0 <= due <= DUE_MAX, "the owner caps a delay before it sets a timer"
        assert 0 <= key <= KEY_MAX, "a larger key would run into the due tick"
        mark = due << KEY_BITS | (key & KIND_MASK) << NUMBER_BITS | key >> KIND_BITS
        if mark < self._front_end:
            self._insert_in_front(mark)
        else:
            self._insert_in_trie(mark)
        self._size += 1

    def cancel(self, due: int, key: int) -> None:
        mark = due << KEY_BITS | (key & KIND_MASK) << NUMBER_BITS | key >> KIND_BITS
        if mark < self._front_end:
            front = self._front
            index = 0 if front and front[0] == mark else bisect_left(front, mark)
            assert index < len(front) and front[index] == mark, "this timer was never set, or it is gone"
            del front[index]
        else:
            self._cancel_in_trie(mark)
        self._size -= 1

    def move(self, due: int, later: int, key: int) -> None:
        """Cancel it and insert it again: most timers that have come are the first of all, and set again at once."""
        assert 0 <= later <= DUE_MAX, "the owner caps a delay before it sets a timer"
        low = (key & KIND_MASK) << NUMBER_BITS | key >> KIND_BITS
        front = self._front
        if not front or front[0] != due << KEY_BITS | low:
            self.cancel(due, key)
            self.insert(later, key)
            return
        del front[0]
        mark = later << KEY_BITS | low
        if mark < self._front_end:
            self._insert_in_front(mark)
        else:
            self._insert_in_trie(mark)

    def fill(self, marks: list[int]) -> None:
        """Many timers at once, each as its `mark_of`: a third of the time that inserting two million of them takes."""
        every = sorted([*marks, *self._front, *_marks(self._root)])
        self._front, self._front_end = [], 0
        self._root = self._near = _node_of(every, 0, 0, len(every))
        self._near_mark, self._near_shift = 0, SHIFTS[0]
        self._size = len(every)

    def next_due(self) -> int | None:
        """The earliest tick that holds a timer."""
        if self._front or self._open_front():
            return self._front[0] >> KEY_BITS
        return None

    def first(self, tick: int) -> tuple[int, int] | None:
        """The first timer due at `tick` or before, left where it is."""
        if self._front or self._open_front():
            mark = self._front[0]
            if mark >> KEY_BITS <= tick:
                return mark >> KEY_BITS, (mark & NUMBER_MASK) << KIND_BITS | mark >> NUMBER_BITS & KIND_MASK
        return None

    def items(self) -> list[tuple[int, int]]:
        """Every timer as (due, key), in the order in which they fire."""
        return [_timer(mark) for mark in (*self._front, *_marks(self._root))]

    def _insert_in_front(self, mark: int) -> None:
        front = self._front
        index = bisect_left(front, mark)
        assert front[index : index + 1] != [mark], "this timer is already set"
        front.insert(index, mark)
        if len(front) > FRONT_MAX:
            self._front_end = front[FRONT_MAX // 2]
            for late in front[FRONT_MAX // 2 :]:
                self._insert_in_trie(late)
            del front[FRONT_MAX // 2 :]

    def _insert_in_trie(self, mark: int) -> None:
        node, shift = self._near, self._near_shift
        if not node.occupied or (mark ^ self._near_mark) >> shift + SLOT_BITS:
            node, shift = self._root, SHIFTS[0]
        slot = mark >> shift & SLOT_MASK
        while type(child := node.slots[slot]) is _Node:
            node, shift = child, shift - SLOT_BITS
            slot = mark >> shift & SLOT_MASK
        if node.put(slot, mark) > BUCKET_MAX * WIDTH and shift > SLOT_BITS:
            node.split(slot, shift - SLOT_BITS)
        if node is not self._near:
            self._near, self._near_mark, self._near_shift = node, mark, shift

    def _cancel_in_trie(self, mark: int) -> None:
        node: _Node | Bucket | None = self._root
        for shift in SHIFTS:
            if not isinstance(node, _Node):
                break
            node = node.slots[mark >> shift & SLOT_MASK]
        assert isinstance(node, Bucket), "this timer was never set, or it is gone"
        if len(node) == WIDTH:
            assert _marks_in(node) == [mark], "this timer was never set, or it is gone"
            self._remove_bucket(mark)
        else:
            _remove(node, mark)

    def _open_front(self) -> bool:
        """Makes the earliest bucket the front, with as many of its neighbours as fit into one. False if nothing is
        left."""
        node, shift = self._root, SHIFTS[0]
        if not node.occupied:
            return False
        path: list[tuple[_Node, int]] = []
        while type(child := node.slots[slot := _lowest(node.occupied)]) is _Node:
            path.append((node, slot))
            node, shift = child, shift - SLOT_BITS
        bucket = Bucket()
        while type(child) is Bucket and (not bucket or len(bucket) + len(child) <= BUCKET_MAX * WIDTH):
            bucket += child
            node.slots[slot] = None
            node.occupied ^= 1 << slot
            if not node.occupied:
                break
            slot = _lowest(node.occupied)
            child = node.slots[slot]
        self._front = _sorted(bucket)
        self._front_end = (self._front[-1] >> shift) + 1 << shift
        if not node.occupied:
            _empty(path)
        return True

    def _remove_bucket(self, mark: int) -> None:
        """Empties the slot where the mark's bucket is, and every node that this leaves empty."""
        path: list[tuple[_Node, int]] = []
        node: _Node | Bucket | int | None = self._root
        for shift in SHIFTS:
            if not isinstance(node, _Node):
                break
            path.append((node, mark >> shift & SLOT_MASK))
            node = node.slots[path[-1][1]]
        _empty(path)


def mark_of(due: int, kind: int, number: int) -> int:
    assert 0 <= due <= DUE_MAX, "the owner caps a delay before it sets a timer"
    return due << KEY_BITS | kind << NUMBER_BITS | number


def _node_of(marks: list[int], level: int, at: int, end: int) -> _Node:
    """The node that these sorted marks have in common, with all that is below it."""
    node, shift = _Node(), SHIFTS[level]
    while at < end:
        prefix = marks[at] >> shift
        until = bisect_left(marks, prefix + 1 << shift, at, end)
        slot = prefix & SLOT_MASK
        if until - at > BUCKET_MAX and shift > SLOT_BITS:
            node.slots[slot] = _node_of(marks, level + 1, at, until)
        else:
            node.slots[slot] = Bucket(b"".join([mark.to_bytes(WIDTH, "big") for mark in marks[at:until]]))
        node.occupied |= 1 << slot
        at = until
    return node


def _empty(path: list[tuple[_Node, int]]) -> None:
    """Empties the last slot of a path, and every slot before it whose node this leaves empty."""
    for node, slot in reversed(path):
        node.slots[slot] = None
        node.occupied ^= 1 << slot
        if node.occupied:
            break


def _find(bucket: Bucket, mark: int) -> int:
    entry = mark.to_bytes(WIDTH, "big")
    at = bucket.find(entry)
    while at > 0 and at % WIDTH:  # the end of one mark and the start of the next may look like a third
        at = bucket.find(entry, at + 1)
    return at


def _remove(bucket: Bucket, mark: int) -> None:
    at = _find(bucket, mark)
    assert at >= 0, "this timer was never set, or it is gone"
    bucket[at : at + WIDTH] = bucket[-WIDTH:]
    del bucket[-WIDTH:]


def _marks_in(bucket: Bucket) -> list[int]:
    return [int.from_bytes(bucket[at : at + WIDTH], "big") for at in range(0, len(bucket), WIDTH)]


def _sorted(bucket: Bucket) -> list[int]:
    marks = sorted(_marks_in(bucket))
    # Looking for it at each insert would make that half as dear again; here it is still before the timer fires.
    assert len(marks) == len(set(marks)), "a timer was set twice"
    return marks


def _marks(node: _Node) -> Iterator[int]:
    for child in node.slots:
        if isinstance(child, _Node):
            yield from _marks(child)
        elif child is not None:
            yield from _sorted(child)


def _timer(mark: int) -> tuple[int, int]:
    return mark >> KEY_BITS, (mark & NUMBER_MASK) << KIND_BITS | mark >> NUMBER_BITS & KIND_MASK


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
