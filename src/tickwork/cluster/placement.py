"""Which node should own which partition, and which partition a tenant or a run lives in. Pure functions.

Rendezvous hashing with room: each partition goes to the node that ranks highest for it among those that still have
room, and room is an equal share. So every node comes to the same answer by itself, the load is even, and a node
that comes or goes moves little more than its own share. While versions are mixed, a partition goes only to nodes that
are able to own it, with or without room.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from zlib import crc32

from tickwork.core.base.stable_hash import stable_hash
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.store import Route

Node = tuple[str, str]
"""Its lasting name, by which it ranks, and its session: two that claim one name are still two."""
END = 4  # digits at the end of a UUID that say where its run lives


def place(
    partitions: int, nodes: Sequence[Node], unable: Mapping[Node, Container[int]] = MappingProxyType({})
) -> dict[int, Node]:
    """Assign each partition to a node. A partition without an able node is left out."""
    if not nodes:
        return {}
    most = -(-partitions // len(nodes))
    room = dict.fromkeys(sorted(nodes), most)
    able = {
        partition: [node for node in room if partition not in unable.get(node, ())] for partition in range(partitions)
    }
    placed: dict[int, Node] = {}
    # Partitions with few able nodes choose first.
    for partition in sorted(able, key=lambda number: (len(able[number]), number)):
        some = [node for node in able[partition] if room[node] > 0] or able[partition]
        if some:
            best = max(some, key=lambda node: (stable_hash("place", node[0], partition), node))
            placed[partition] = best
            room[best] -= 1
    return placed


def home_of(tenant: str, partitions: int) -> int:
    return stable_hash("home", tenant) % partitions


def partitions_of(route: Route, partitions: int) -> tuple[int, ...]:
    """Where its runs may live: its home first."""
    return tuple((route.home + step) % partitions for step in range(min(max(route.spread, 1), partitions)))


def partition_of_run(route: Route, run_id: str, partitions: int) -> int:
    """For life. Runs with a key, and those of schedules, live at home instead."""
    return (route.home + _lot(route, run_id) % min(max(route.spread, 1), partitions)) % partitions


def partitions_of_run(route: Route, run_id: str, partitions: int) -> tuple[int, ...]:
    """Wherever a run of this id may live: at home, and where it was placed when the tenant was spread less widely."""
    lot, widest = _lot(route, run_id), min(max(route.spread, 1), partitions)
    return tuple(dict.fromkeys((route.home + lot % count) % partitions for count in range(1, widest + 1)))


def _lot(route: Route, run_id: str) -> int:
    """The last digits of a UUID of version 7 are random: a client that draws one can choose its partition, and ids that
    are drawn together stay together. Of any other id it is a checksum."""
    if _is_drawn(run_id):
        try:
            return int(run_id[-END:], 16)
        except ValueError:
            pass
    return crc32(f"{route.tenant}\0{run_id}".encode("utf-8", "surrogatepass"))


def _is_drawn(run_id: str) -> bool:
    return len(run_id) == 36 and run_id[14] == "7" and run_id[8] == "-" and run_id[13] == "-"


def drawn_ms(run_id: str) -> int:
    """When an id was drawn that has it in it, as those of clients have; 0 of any other."""
    if not _is_drawn(run_id):
        return 0
    try:
        return int(run_id[:8] + run_id[9:13], 16)
    except ValueError:
        return 0


def fitted_to(route: Route, partition: int, partitions: int) -> Callable[[str], str]:
    """The inverse: return the digits nearest to the last digits of a UUID that name this partition. They keep as much
    randomness as possible."""
    count, step = min(max(route.spread, 1), partitions), (partition - route.home) % partitions

    def fitted(end: str) -> str:
        number = int(end, 16)
        number += (step - number) % count
        return f"{number if number < 16**END else number - count:0{END}x}"

    return fitted


def ids_in(new: Callable[[], str], route: Route, partition: int, partitions: int) -> Callable[[], str]:
    """Return a maker of run ids that live in this partition. Ids of the same millisecond share their end, which is
    fitted once."""
    if min(route.spread, partitions) <= 1:
        return new  # every id lives there
    fitted = fitted_to(route, partition, partitions)
    drawn = end = ""

    def draw() -> str:
        nonlocal drawn, end
        run_id = new()
        if run_id[-END:] != drawn:
            drawn = run_id[-END:]
            end = fitted(drawn)
        return run_id[:-END] + end

    return draw


def partition_of_number(number: int, partitions: int) -> int:
    """Of a run, a task or a schedule."""
    return min(number >> NUMBER_BITS, partitions - 1)
