"""A definition made ready to run: nodes by index, edges as tuples, conditions compiled.

Made once per definition and shared by all of its runs, so that the hot path follows
integers and never looks at the document again.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.cel_extracts import Need
from tickwork.core.definition.document import accept, content_hash
from tickwork.core.definition.graph import order_of, unrelated
from tickwork.core.definition.model import (
    NO_OUTPUT,
    ApprovalNode,
    BranchNode,
    Definition,
    EventNode,
    FirstNode,
    MapNode,
    Node,
    RepeatNode,
    Resources,
    Retry,
    TaskNode,
    Timeout,
    Trigger,
    WaitNode,
    WorkflowNode,
    WorkNode,
)
from tickwork.core.definition.node_validation import check_requests
from tickwork.core.definition.references import places_of, resolve

IN_DEFINITION, NOTHING = -1, -2  # outputs that are not the whole result of a node
INPUTS, EVENTS, RESULTS = -1, -2, -3  # sources of values beside nodes; RESULTS: of every node
READS_MAX = 1_000_000  # of nodes that are not parents, in one definition
_AFTER_FAILURES = (Trigger.ALL_DONE, Trigger.ANY_FAILED, Trigger.ALL_FAILED)
_OWN_PARENTS = (Trigger.ANY_SUCCEEDED, Trigger.ONE_DONE, Trigger.ALL_FAILED)  # rules that do not look at branches


class Kind(IntEnum):
    WORK = 0  # task, http, shell, send: a worker runs it
    WAIT = 1
    BRANCH = 2
    EVENT = 3
    APPROVAL = 4
    WORKFLOW = 5
    MAP = 6
    REPEAT = 7
    FIRST = 8


Requirement = tuple[str, int, tuple[tuple[str, str], ...], tuple[int, int, int, int], str]
"""What admission asks of a task: queue, priority, labels, resources, dependency."""


class Step(msgspec.Struct, eq=False):
    """One node, compiled. `body` is the compiled body of a map or repeat."""

    index: int
    id: str
    kind: Kind
    node: Node
    parents: tuple[int, ...]
    children: tuple[int, ...]  # the nodes that await it
    branches: tuple[int, ...]  # those of its parents that are branches: it is part of one side of each
    requirement: Requirement
    retry: Retry
    timeout: Timeout
    when: Condition | None
    until: Condition | None
    cases: tuple[tuple[Condition, tuple[int, ...]], ...]
    default: tuple[int, ...]
    policies: tuple[str, ...]
    body: "Step | None"
    timed: bool  # an attempt has a time limit of some kind
    plain: bool  # a worker's step with nothing to decide in front of it: condition, policy, cache, queue
    cache_version: str | None  # the handler's version where its results may be reused
    ends_with_worker: bool  # where its worker is lost, nothing of it begins again by itself
    cleans_up: bool = False  # it may also start when the time of its run is over
    chooses: bool = False  # its queue or labels come from values, and stand in the run
    durable: bool = False  # a function that records its steps and suspends
    weighed: tuple[int, ...] = ()  # those of its parents at whose outcomes its trigger rule looks
    racers: tuple[int, ...] = ()  # those of its parents of which one is enough for it to start
    race: Trigger | None = None  # how that one must have ended: ANY_SUCCEEDED or ONE_DONE; None: it waits for all
    awaited: tuple[int, ...] = ()  # its parents, and nodes above them that it reads and that may end after them
    tears_down: int = -1  # the node whose set-up this one tears down; -1: it is no teardown
    forgiven: bool = False  # a teardown whose failure is a warning
    forgives: bool = False  # it weighs such a teardown


class Plan(msgspec.Struct, eq=False):
    definition: Definition
    hash: str
    name: str
    steps: tuple[Step, ...]
    index: dict[str, int]
    roots: tuple[int, ...]
    parent_counts: bytes | tuple[int, ...]
    exits: tuple[Condition, ...]
    gate_key: Condition | None
    rate_key: Condition | None
    guarded: bool  # a run may have to wait before it starts, for a concurrency key or a rate
    sla_points: tuple[tuple[int, int, int], ...]  # (after ms, 0 warning or 1 breach, node or -1 for the run)
    events: tuple[str, ...] | None  # the names that a run may wait for; None: a condition reads whatever came
    needs: dict[int, Need]  # by source: what its conditions read of it, where it is not inline
    output: int  # the node whose whole result is the run's output; or IN_DEFINITION, or NOTHING
    races: bool  # some node may start before all of its parents have ended
    demanding: tuple[Step, ...]  # those that request processors, memory or graphics cards
    lone: Step | None  # its only node, where nothing but a worker stands between it and its result
    ends_itself: bool  # a run whose nodes have all succeeded is complete without another look at it
    teardowns: tuple[Step, ...]

    def fresh_counts(self) -> "bytearray | list[int]":
        """Unfinished parents of each node, to count down in one run."""
        return bytearray(self.parent_counts) if isinstance(self.parent_counts, bytes) else list(self.parent_counts)


def check_condition(text: str) -> str | None:
    try:
        Condition.compile(text)
    except Refused as error:
        return error.message
    return None


@lru_cache(maxsize=256)
def plan_of(document: bytes) -> Plan:
    """The plan of a document, or `InvalidDefinition` with every problem found."""
    return compile_plan(accept(document, check_condition=check_condition))


def new_plan(document: bytes) -> Plan:
    """The same for a document that comes in from outside."""
    plan = plan_of(document)
    check_requests(plan.definition)
    return plan


def compile_plan(definition: Definition) -> Plan:
    index = {node.id: position for position, node in enumerate(definition.nodes)}
    children: list[list[int]] = [[] for _ in definition.nodes]
    for position, node in enumerate(definition.nodes):
        for parent in dict.fromkeys(node.needs):
            children[index[parent]].append(position)
    steps = tuple(
        _compile_step(definition, node, position, index, tuple(children[position]))
        for position, node in enumerate(definition.nodes)
    )
    _await_reads(definition, steps, index)
    teardowns = _mark_teardowns(steps, index)
    _mark_clean_up(steps)
    counts = [len(step.awaited) for step in steps]
    exits = tuple(Condition.compile(way.when) for way in definition.exits)
    concurrency, rate = definition.concurrency, definition.rate
    output = _output(definition, index)
    return Plan(
        definition=definition,
        hash=content_hash(definition),
        name=definition.name,
        steps=steps,
        index=index,
        roots=tuple(position for position, count in enumerate(counts) if count == 0),
        parent_counts=bytes(counts) if max(counts) < 256 else tuple(counts),
        exits=exits,
        gate_key=Condition.compile(concurrency.key) if concurrency and concurrency.key else None,
        rate_key=Condition.compile(rate.key) if rate and rate.key else None,
        guarded=concurrency is not None or rate is not None,
        sla_points=_sla_points(definition),
        events=_events(definition, steps, exits),
        needs=_needs(definition, steps, index),
        output=output,
        races=any(step.race is not None for step in steps),
        demanding=tuple(step for step in steps if any((step.body or step).requirement[3][1:])),
        lone=steps[0] if len(steps) == 1 and steps[0].plain and not exits else None,
        ends_itself=not exits and output != IN_DEFINITION and definition.on_success is None,
        teardowns=teardowns,
    )


def _await_reads(definition: Definition, steps: tuple[Step, ...], index: dict[str, int]) -> None:
    """A node that a branch leaves out ends with the branch, maybe before its other parents, and a race ends before some
    of its racers. So the parents of a node can end while an ancestor still goes on; a node that reads such an ancestor
    waits for it too."""
    for step in steps:
        step.awaited = step.parents
    sides = {target for step in steps for side in (*(to for _, to in step.cases), step.default) for target in side}
    outlived = sorted(
        {parent for target in sides for parent in steps[target].parents}
        | _with_ancestors(steps, {racer for step in steps if step.race is not None for racer in step.racers})
    )
    if not sides and not outlived:
        return
    pairs = dict.fromkeys(
        (step.index, other)
        for step in steps
        for other in nodes_read(definition, step, index, outlived)
        if other not in step.parents
    )
    if len(pairs) > READS_MAX:
        message = f"its nodes read {len(pairs):,} results of nodes that are not their parents, at most {READS_MAX:,}"
        raise Refused("too_many_reads", f"{message}; write out the names of nodes in conditions", path="nodes")
    if not pairs:
        return
    parents = [step.parents for step in steps]
    beside = dict.fromkeys(unrelated(parents, order_of(parents, [step.children for step in steps]), pairs))
    awaited: dict[int, list[int]] = {}
    for reader, other in pairs:
        if (reader, other) not in beside:  # a condition may read any node, also one that comes later
            awaited.setdefault(reader, []).append(other)
    for reader, others in awaited.items():
        steps[reader].awaited += tuple(others)
        for other in others:
            steps[other].children += (reader,)


def _with_ancestors(steps: tuple[Step, ...], nodes: set[int]) -> set[int]:
    """A racer may not even have begun when the race is decided, so whatever leads to it may still go on."""
    known, left = set(nodes), sorted(nodes)
    while left:
        for parent in steps[left.pop()].parents:
            if parent not in known:
                known.add(parent)
                left.append(parent)
    return known


def nodes_read(definition: Definition, step: Step, index: dict[str, int], outlived: Iterable[int]) -> Iterator[int]:
    """The nodes that a step reads. Where only an evaluation can tell, any of `outlived`: those that can end after their
    children."""
    for condition in (step.when, step.until, *(case for case, _ in step.cases)):
        if condition is not None and condition.nodes is None:
            yield from outlived
        elif condition is not None:
            yield from (index[name] for name in condition.nodes or () if name in index)
    for template in places_of(step.node, step.id):
        reference = resolve(
            template.text, path=template.path, inputs=definition.inputs, nodes=index, words=template.words
        )
        if reference.root == "nodes":
            yield index[reference.name]


def _mark_teardowns(steps: tuple[Step, ...], index: dict[str, int]) -> tuple[Step, ...]:
    teardowns = tuple(step for step in steps if step.node.teardown is not None)
    for step in teardowns:
        assert step.node.teardown is not None
        step.tears_down, step.forgiven = index[step.node.teardown.of], not step.node.teardown.fail
    for step in steps if teardowns else ():
        step.forgives = any(steps[parent].forgiven for parent in step.weighed)
    return teardowns


def _mark_clean_up(steps: tuple[Step, ...]) -> None:
    """Clean-up is what starts after failures by its own trigger rule, and what needs nothing but such nodes."""
    if not any(step.node.trigger in _AFTER_FAILURES or step.tears_down >= 0 for step in steps):
        return
    for index in order_of([step.awaited for step in steps], [step.children for step in steps]):
        step = steps[index]
        asks = step.node.trigger in _AFTER_FAILURES or step.tears_down >= 0
        step.cleans_up = bool(step.parents) and (asks or all(steps[parent].cleans_up for parent in step.parents))


def _events(definition: Definition, steps: tuple[Step, ...], exits: tuple[Condition, ...]) -> tuple[str, ...] | None:
    conditions = [
        condition for step in steps for condition in (step.when, step.until, *(case for case, _ in step.cases))
    ]
    if any(condition is not None and "events" in condition.names for condition in (*conditions, *exits)):
        return None
    if definition.policy or any(node.policy for node in definition.nodes):
        return None  # a policy may read them, and can be changed while a run goes on
    if any(step.durable for step in steps):
        return None  # its code says what it waits for
    return tuple(dict.fromkeys(node.event for node in definition.nodes if isinstance(node, EventNode)))


def _needs(definition: Definition, steps: tuple[Step, ...], index: dict[str, int]) -> dict[int, Need]:
    """The needs of all conditions together, so that each value is decoded once."""
    conditions = [Condition.compile(way.when) for way in definition.exits]
    keys = [part.key for part in (definition.concurrency, definition.rate) if part is not None and part.key]
    conditions += [Condition.compile(key) for key in keys]
    for step in steps:
        conditions += [part for part in (step.when, step.until, *(case for case, _ in step.cases)) if part is not None]
    needs: dict[int, Need] = {}
    for condition in conditions:
        note_needs(needs, condition, index)
    return needs


def note_needs(needs: dict[int, Need], condition: Condition, index: dict[str, int]) -> None:
    """Add what this condition reads of the values of a run."""
    for name, need in condition.needs.items():
        match name:
            case "inputs":
                needs.setdefault(INPUTS, Need()).join(need)
            case "events":
                needs.setdefault(EVENTS, Need()).join(_of_payload(need))
            case "results":
                every = need.every
                for node, inner in need.keys.items():
                    if (step := index.get(str(node))) is not None:
                        needs.setdefault(step, Need()).join(inner)
                if need.whole or every is not None:
                    of_all = needs.setdefault(RESULTS, Need())
                    of_all.whole = of_all.whole or need.whole
                    if every is not None:
                        of_all.join(every)


def _of_payload(need: Need) -> Need:
    whole = Need()
    whole.whole = True
    if need.whole:
        return whole
    events = [item for item in (need.every, *need.keys.values()) if item is not None]
    joined = Need()
    for event in events:
        joined.join(whole if event.whole or event.every is not None else event.keys.get("payload", Need()))
    return joined


def _output(definition: Definition, index: dict[str, int]) -> int:
    source = definition.output
    if source is None:
        return len(definition.nodes) - 1
    if source == NO_OUTPUT:
        return NOTHING
    return index.get(source.removeprefix("nodes."), -1) if source.startswith("nodes.") else -1


def downstream(plan: Plan, start: int, among: Collection[int] | None = None) -> dict[int, None]:
    """Every node that depends on `start`, in breadth-first order. `among`: only by way of these."""
    seen: dict[int, None] = {}
    todo = deque(plan.steps[start].children)
    while todo:
        position = todo.popleft()
        if position not in seen and (among is None or position in among):
            seen[position] = None
            todo.extend(plan.steps[position].children)
    return seen


_KINDS: tuple[tuple[type[Node], Kind], ...] = (
    (WorkNode, Kind.WORK),
    (WaitNode, Kind.WAIT),
    (BranchNode, Kind.BRANCH),
    (EventNode, Kind.EVENT),
    (ApprovalNode, Kind.APPROVAL),
    (WorkflowNode, Kind.WORKFLOW),
    (MapNode, Kind.MAP),
    (RepeatNode, Kind.REPEAT),
    (FirstNode, Kind.FIRST),
)


def _compile_step(
    definition: Definition, node: Node, position: int, index: dict[str, int], children: tuple[int, ...]
) -> Step:
    kind = next(kind for cls, kind in _KINDS if isinstance(node, cls))
    nodes = definition.nodes
    policies = definition.policy + node.policy
    cached = isinstance(node, WorkNode) and node.cache is not None
    chooses = _chooses(node.body if isinstance(node, MapNode | RepeatNode) else node)
    body = _compile_step(definition, node.body, position, index, ()) if isinstance(node, MapNode | RepeatNode) else None
    cases: tuple[tuple[Condition, tuple[int, ...]], ...] = ()
    default: tuple[int, ...] = ()
    if isinstance(node, BranchNode):
        cases = tuple((Condition.compile(case.when), tuple(index[to] for to in case.to)) for case in node.cases)
        default = tuple(index[to] for to in node.default)
    parents = tuple(index[parent] for parent in dict.fromkeys(node.needs))
    branches = tuple(parent for parent in parents if isinstance(nodes[parent], BranchNode))
    racers, weighed = _racers(node, index, parents, branches)
    return Step(
        index=position,
        id=node.id,
        kind=kind,
        node=node,
        parents=parents,
        children=children,
        branches=branches,
        weighed=weighed,
        racers=racers,
        race=_race(node, racers),
        requirement=_requirement(definition, body.node if body else node),
        retry=_retry(definition, node),
        timeout=(timeout := _timeout(definition, node)),
        timed=timeout.running_ms is not None or timeout.silent_ms is not None,
        when=Condition.compile(node.when) if node.when is not None else None,
        until=Condition.compile(node.until) if isinstance(node, RepeatNode) else None,
        cases=cases,
        default=default,
        policies=policies,
        body=body,
        plain=kind is Kind.WORK and node.when is None and not policies and not cached and not chooses,
        chooses=chooses,
        cache_version=_cache_version(node) if cached else None,
        ends_with_worker=isinstance(node, WorkNode) and node.on_worker_loss == "fail",
        durable=isinstance(node, TaskNode) and node.durable,
    )


def _racers(
    node: Node, index: dict[str, int], parents: tuple[int, ...], branches: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The parents of which one is enough, and those that the trigger rule weighs. A branch around a node leads to it,
    and says nothing about what the node is to wait for."""
    if isinstance(node, FirstNode):
        racers = tuple(index[name] for name in node.of)
        return racers, tuple(parent for parent in parents if parent not in racers)
    if node.trigger not in _OWN_PARENTS:
        return (), parents
    own = tuple(parent for parent in parents if parent not in branches)
    return (own if node.trigger is not Trigger.ALL_FAILED else ()), own or parents


def _race(node: Node, racers: tuple[int, ...]) -> Trigger | None:
    if isinstance(node, FirstNode):
        return Trigger.ONE_DONE
    return node.trigger if racers else None


def _chooses(node: Node) -> bool:
    return isinstance(node, WorkNode) and (node.queue_from is not None or bool(node.labels_from))


def _requirement(definition: Definition, node: Node) -> Requirement:
    defaults = definition.defaults
    if not isinstance(node, WorkNode):
        return (defaults.queue, defaults.priority, (), (1, 0, 0, 0), "")
    resources = node.resources or Resources()
    labels = defaults.labels | node.labels
    return (
        node.queue or defaults.queue,
        defaults.priority if node.priority is None else node.priority,
        tuple(sorted(labels.items())),
        (resources.slots, resources.cpu_milli, resources.memory_mb, resources.gpu),
        node.dependency or "",
    )


def _sla_points(definition: Definition) -> tuple[tuple[int, int, int], ...]:
    watched = [(definition.sla, -1), *((node.sla, position) for position, node in enumerate(definition.nodes))]
    points: list[tuple[int, int, int]] = []
    for sla, position in watched:
        if sla is not None:
            points.append((sla.breach_ms, 1, position))
            if sla.warn_ms is not None:
                points.append((sla.warn_ms, 0, position))
    return tuple(sorted(points))


def _retry(definition: Definition, node: Node) -> Retry:
    own = node.retry if isinstance(node, WorkNode | WorkflowNode) else None
    return own or definition.defaults.retry


def _timeout(definition: Definition, node: Node) -> Timeout:
    own = node.timeout if isinstance(node, WorkNode) else None
    return own or definition.defaults.timeout


def _cache_version(node: Node) -> str:
    return node.handler_version if isinstance(node, TaskNode) else ""
