"""Graphs of nodes by number: order, cycles, ancestry.

Everything is iterative, so depth costs nothing, and linear in nodes and edges except where a bound
is written beside it. Nodes are positions in the document; the same graph gives the same answer.
"""

from collections import deque
from collections.abc import Iterable, Sequence

EXACT_EDGES_MAX = 2_000  # of the cyclic core: up to here the shortest cycle is exact
SEARCH_STEPS_MAX = 2_000_000  # edges looked at for a short cycle in a larger core
TARGETS_PER_PASS = 4_096  # bits carried along each edge in one pass over the graph

Edges = Sequence[Sequence[int]]  # for each node, the nodes on the other end


def children_of(parents: Edges) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parents]
    for node, above in enumerate(parents):
        for parent in above:
            children[parent].append(node)
    return children


def order_of(parents: Edges, children: Edges) -> list[int]:
    """Parents before children. Nodes on a cycle, or below one, are left out."""
    waiting = [len(above) for above in parents]
    order = [node for node, count in enumerate(waiting) if count == 0]
    for node in order:  # grows while we walk it
        for child in children[node]:
            waiting[child] -= 1
            if waiting[child] == 0:
                order.append(child)
    return order


def shortest_cycle(parents: Edges, children: Edges) -> list[int]:
    """The nodes of a cycle, each before its child, from the one that comes first in the document.

    It is the shortest of all when it has two nodes, or the cyclic core has at most EXACT_EDGES_MAX
    edges; in a larger core it is the shortest through the nodes that the budget allowed to try.
    Empty when there is none.
    """
    core = _cyclic_core(parents, children)
    if not core:
        return []
    best = _pair(core) or _any_cycle(core)
    steps_left = SEARCH_STEPS_MAX
    exact = sum(len(below) for below in core.values()) <= EXACT_EDGES_MAX
    for start in core:
        if len(best) == 2 or (steps_left <= 0 and not exact):
            break
        cycle, steps = _shortest_through(start, core, len(best))
        steps_left -= steps
        best = cycle or best
    first = best.index(min(best))
    return best[first:] + best[:first]


def unrelated(parents: Edges, order: Sequence[int], pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of (node, other): the pairs whose other is no ancestor of the node. For graphs without a cycle.

    Every node carries one bit for each of its ancestors that matters; a bounded number of
    them travels down the graph at a time, so many questions cost little more than one.
    """
    indirect = _not_direct(parents, pairs)
    targets, failed = sorted(indirect), []
    for start in range(0, len(targets), TARGETS_PER_PASS):
        batch = targets[start : start + TARGETS_PER_PASS]
        above = _ancestor_bits(parents, order, batch)
        failed += [
            (node, other) for bit, other in enumerate(batch) for node in indirect[other] if not above[node] >> bit & 1
        ]
    return sorted(failed)


def _cyclic_core(parents: Edges, children: Edges) -> dict[int, list[int]]:
    """Children by node, without everything that lies above all cycles or below them."""
    above = dict.fromkeys(order_of(parents, children))
    below = dict.fromkeys(order_of(children, parents))
    kept = {node: children[node] for node in range(len(parents)) if node not in above and node not in below}
    return {node: [child for child in under if child in kept] for node, under in kept.items()}


def _pair(core: dict[int, list[int]]) -> list[int]:
    edges = {(node, child) for node, below in core.items() for child in below}
    for node, below in core.items():
        for child in below:
            if (child, node) in edges:
                return [node, child]
    return []


def _any_cycle(core: dict[int, list[int]]) -> list[int]:
    """Every node of the core has a child in it, so a walk along children comes back to its start."""
    path: dict[int, int] = {}
    node = next(iter(core))
    while node not in path:
        path[node] = len(path)
        node = core[node][0]
    return list(path)[path[node] :]


def _shortest_through(start: int, core: dict[int, list[int]], length_max: int) -> tuple[list[int], int]:
    """The shortest cycle through `start` if it is shorter than `length_max`, and the edges looked at."""
    came_from: dict[int, int] = {start: start}
    depth = {start: 1}
    todo, steps = deque([start]), 0
    while todo and depth[todo[0]] < length_max:
        node = todo.popleft()
        for child in core[node]:
            steps += 1
            if child == start:
                return _path_back(node, came_from), steps
            if child not in came_from:
                came_from[child], depth[child] = node, depth[node] + 1
                todo.append(child)
    return [], steps


def _path_back(node: int, came_from: dict[int, int]) -> list[int]:
    path = [node]
    while came_from[path[-1]] != path[-1]:
        path.append(came_from[path[-1]])
    return path[::-1]


def _not_direct(parents: Edges, pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Map each other to its nodes, leaving out direct parents, which need no search."""
    direct: dict[int, frozenset[int]] = {}
    indirect: dict[int, list[int]] = {}
    for node, other in pairs:
        if node not in direct:
            direct[node] = frozenset(parents[node])
        if other not in direct[node]:
            indirect.setdefault(other, []).append(node)
    return indirect


def _ancestor_bits(parents: Edges, order: Sequence[int], targets: list[int]) -> list[int]:
    own = {target: 1 << bit for bit, target in enumerate(targets)}
    bits = [0] * len(parents)
    for node in order:
        mine = 0
        for parent in parents[node]:
            mine |= bits[parent] | own.get(parent, 0)
        bits[node] = mine
    return bits
