"""Whether a definition makes sense: every problem found, in the order of the document.

Takes what `document.parse` made, so types are right already. Looks at the nodes one by one first,
then at the graph. If the graph is broken, checks that need it are left out.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from tickwork.core.base.errors import Problem, Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.definition import graph
from tickwork.core.definition.forms import check_form
from tickwork.core.definition.input_fields import check_declaration
from tickwork.core.definition.model import (
    FORMAT,
    ApprovalNode,
    BranchNode,
    Definition,
    FirstNode,
    MapNode,
    RepeatNode,
    Second,
    TaskNode,
    Trigger,
    WorkflowNode,
    WorkNode,
)
from tickwork.core.definition.node_validation import (
    QUANTITY_MAX,
    TEXT_CHARACTERS_MAX,
    NodeValidator,
    check_defaults,
    check_node,
    check_policy,
    check_sla,
)
from tickwork.core.definition.problems import Problems, join
from tickwork.core.definition.references import ReferenceScope, output_place, places_of, published_places, resolve
from tickwork.core.definition.run_labels import check_search, check_tags

CYCLE_NAMES_MAX = 20

PUBLISHED_MAX = 100  # values of one workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one definition may hold; a tenant can have tighter ones."""

    nodes: int = 100_000
    edges: int = 1_000_000
    inputs: int = 1_000
    exits: int = 100


def plain_condition(_text: str) -> str | None:
    """For callers without an expression language: checks length and emptiness only."""
    return None


def validate(
    definition: Definition,
    *,
    limits: Limits | None = None,
    check_condition: Callable[[str], str | None] = plain_condition,
) -> list[Problem]:
    """Empty when it may run. `check_condition` answers why a condition is not valid, or None."""
    rules = NodeValidator(Problems(), check_condition)
    if _fits(definition, limits or Limits(), rules.problems):
        _check_whole(definition, rules)
        index = _index(definition, rules.problems)
        for position, node in enumerate(definition.nodes):
            check_node(node, f"nodes[{position}]", rules)
            if isinstance(node, ApprovalNode):
                check_form(node.fields, node.default, f"nodes[{position}]", rules.problems)
        _check_durable(definition, rules.problems)
        _check_graph(definition, index, rules.problems)
    return rules.problems.listed()


def _fits(definition: Definition, limits: Limits, problems: Problems) -> bool:
    """Counted before anything else, so that nothing later grows beyond the limits."""
    if not definition.nodes:
        problems.add("nodes", "empty_graph", "the workflow has no nodes; give it at least one")
    edges = sum(len(node.needs) for node in definition.nodes)
    problems.count("nodes", len(definition.nodes), high=limits.nodes, what="nodes")
    problems.count("nodes", edges, high=limits.edges, what="edges")
    problems.count("inputs", len(definition.inputs), high=limits.inputs, what="inputs")
    problems.count("exits", len(definition.exits), high=limits.exits, what="exits")
    return not problems


def _check_whole(definition: Definition, rules: NodeValidator) -> None:
    problems = rules.problems
    if definition.format != FORMAT:
        problems.add("format", "format_unknown", f"this format is not known here; use {FORMAT}")
    rules.name("name", definition.name, "workflow")
    problems.length("description", definition.description, high=TEXT_CHARACTERS_MAX)
    problems.duration("timeout_ms", definition.timeout_ms)
    check_sla(definition.sla, "", problems)
    check_policy(definition.policy, "", rules)
    check_defaults(definition.defaults, rules)
    for name, field in definition.inputs.items():
        check_declaration(name, field, problems, path=join("inputs", name))
    for position, way in enumerate(definition.exits):
        rules.condition(f"exits[{position}].when", way.when)
        problems.one_of(f"exits[{position}].outcome", way.outcome, ("completed", "cancelled"))
        problems.length(f"exits[{position}].reason", way.reason, high=1_000)
    problems.count("publish", sum(map(len, definition.publish.values())), high=PUBLISHED_MAX, what="published values")
    for name in definition.publish:
        rules.name(join("publish", name), name, "value")
    for option, follow_up in (("on_failure", definition.on_failure), ("on_success", definition.on_success)):
        if follow_up is not None:
            rules.name(f"{option}.workflow", follow_up.workflow, "workflow")
            rules.name(f"{option}.input", follow_up.input or None, "input")
    problems.attempt(check_tags, definition.tags, path="tags")
    check_search(definition, problems)
    if definition.concurrency is not None:
        problems.between("concurrency.limit", definition.concurrency.limit, low=1, high=QUANTITY_MAX)
        rules.condition("concurrency.key", definition.concurrency.key or None)
        if definition.concurrency.second is Second.REPLACE and definition.concurrency.limit != 1:
            message = "a run can only replace another one where one has the key at a time: set limit to 1"
            problems.add("concurrency.second", "replace_limit", message)
    if definition.rate is not None:
        problems.between("rate.limit", definition.rate.limit, low=1, high=QUANTITY_MAX)
        problems.duration("rate.per_ms", definition.rate.per_ms)
        rules.condition("rate.key", definition.rate.key or None)


def _check_durable(definition: Definition, problems: Problems) -> None:
    """A durable function is a workflow of its own: its code is what a graph says elsewhere."""
    for position, node in enumerate(definition.nodes):
        body = node.body if isinstance(node, MapNode | RepeatNode) else None
        if isinstance(body, TaskNode) and body.durable:
            message = "a durable function cannot be the body of a map or repeat; call its workflow there"
            problems.add(f"nodes[{position}].body.durable", "durable", message)
        if not isinstance(node, TaskNode) or not node.durable:
            continue
        if len(definition.nodes) > 1:
            message = "a durable function is the only node of its workflow; call it as a workflow from another one"
            problems.add(f"nodes[{position}].durable", "durable", message)
        if node.when is not None or node.policy:
            message = "a durable function starts with its run; leave its condition and policies out"
            problems.add(f"nodes[{position}].durable", "durable", message)


def _index(definition: Definition, problems: Problems) -> dict[str, int]:
    """Positions by id; of twins, the first counts."""
    index: dict[str, int] = {}
    folded: dict[str, str] = {}
    for position, node in enumerate(definition.nodes):
        path = f"nodes[{position}].id"
        problems.attempt(check_name, node.id, path=path, kind="node")
        twin = folded.setdefault(node.id.casefold(), node.id)
        if node.id in index:
            problems.add(
                path, "duplicate_id", f"the id {shortened(node.id, 128)!a} is taken by nodes[{index[node.id]}]"
            )
        elif twin != node.id:
            message = (
                f"the ids {shortened(twin, 128)!a} and {shortened(node.id, 128)!a} differ only by case; rename one"
            )
            problems.add(path, "case_twin", message)
        index.setdefault(node.id, position)
    return index


def _check_graph(definition: Definition, index: dict[str, int], problems: Problems) -> None:
    parents = _parents(definition, index, problems)
    children = graph.children_of(parents)
    order = graph.order_of(parents, children)
    _check_branches(definition, index, problems)
    _check_teardowns(definition, problems)
    whole = len(order) == len(parents)
    if not whole:
        _name_cycle(definition, graph.shortest_cycle(parents, children), problems)
    _check_references(definition, index, parents, order if whole else None, problems)


def _parents(definition: Definition, index: dict[str, int], problems: Problems) -> list[list[int]]:
    parents: list[list[int]] = []
    for position, node in enumerate(definition.nodes):
        known: dict[int, None] = {}
        for number, name in enumerate(node.needs):
            parent = index.get(name)
            if parent is None or parent == position or parent in known:
                problems.add(f"nodes[{position}].needs[{number}]", *_wrong_need(name, parent, position))
            else:
                known[parent] = None
        parents.append(list(known))
    return parents


def _wrong_need(name: str, parent: int | None, position: int) -> tuple[str, str]:
    if parent is None:
        return "unknown_need", f"there is no node {shortened(name, 128)!a}; mend the id or add the node"
    if parent == position:
        return "self_edge", f"the node {name!a} needs itself: {name} -> {name}; remove this"
    return "duplicate_need", f"the node {name!a} is listed twice; keep one"


def _name_cycle(definition: Definition, cycle: Sequence[int], problems: Problems) -> None:
    names = [definition.nodes[position].id for position in [*cycle, cycle[0]]]
    if len(names) > CYCLE_NAMES_MAX:
        hidden = len(names) - CYCLE_NAMES_MAX
        names = [*names[: CYCLE_NAMES_MAX - 1], f"({hidden} more)", names[-1]]
    message = f"these nodes wait for each other: {' -> '.join(names)}; remove one of these needs"
    problems.add(f"nodes[{cycle[0]}].needs", "cycle", message)


def _check_branches(definition: Definition, index: dict[str, int], problems: Problems) -> None:
    """Who is named by a branch needs it, and who needs a branch is named by it."""
    named: dict[str, dict[str, None]] = {}
    needing: dict[str, dict[str, None]] = {node.id: {} for node in definition.nodes if isinstance(node, BranchNode)}
    for node in definition.nodes if needing else ():
        for name in node.needs:
            if name in needing:
                needing[name][node.id] = None
    for position, node in enumerate(definition.nodes):
        if isinstance(node, BranchNode):
            lists = _target_lists(node, f"nodes[{position}]")
            named[node.id] = {name: None for _, names in lists for name in names}
            for where, names in lists:
                _check_targets(node.id, names, where, index, needing[node.id], problems)
    for position, node in enumerate(definition.nodes if named else ()):
        for number, name in enumerate(node.needs):
            if name in named and node.id not in named[name]:
                message = f"the branch {name!a} never leads here; add this node to a case or to its default"
                problems.add(f"nodes[{position}].needs[{number}]", "unreachable", message)


def _check_teardowns(definition: Definition, problems: Problems) -> None:
    """A teardown does work, needs its set-up, and is part of the same sides of the same branches."""
    sides = [names for node in definition.nodes if isinstance(node, BranchNode) for _, names in _target_lists(node, "")]
    raced = {name for node in definition.nodes if isinstance(node, FirstNode) for name in node.of}
    for position, node in enumerate(definition.nodes):
        if node.teardown is None:
            continue
        path, setup = f"nodes[{position}]", node.teardown.of
        if setup not in node.needs:
            message = f"the node {shortened(setup, 128)!a} is not among the needs of its teardown; add it"
            problems.add(f"{path}.teardown.of", "unknown_need", message)
        if not isinstance(node, WorkNode | WorkflowNode | MapNode | RepeatNode):
            message = "a teardown is a task, http, shell, send, workflow, map or repeat"
            problems.add(f"{path}.teardown", "teardown_kind", message)
        if node.trigger is not Trigger.ALL_SUCCEEDED:
            message = "a teardown starts where its set-up succeeded; leave the trigger out"
            problems.add(f"{path}.trigger", "teardown_trigger", message)
        if node.id in raced:
            problems.add(path, "teardown_raced", "a teardown is never cut short, so it is no racer of a `first`")
        if any((node.id in side) != (setup in side) for side in sides):
            message = f"{node.id} and its set-up {shortened(setup, 128)} are not in the same side of a branch"
            problems.add(f"{path}.teardown.of", "teardown_side", message)


def _target_lists(node: BranchNode, path: str) -> list[tuple[str, Sequence[str]]]:
    cases = [(f"{path}.cases[{number}].to", case.to) for number, case in enumerate(node.cases)]
    return [*cases, (f"{path}.default", node.default)]


def _check_targets(
    branch: str, names: Sequence[str], path: str, index: Container[str], needing: Container[str], problems: Problems
) -> None:
    for number, name in enumerate(names):
        where = f"{path}[{number}]"
        if name not in index:
            problems.add(
                where, "unknown_target", f"there is no node {shortened(name, 128)!a}; mend the id or add the node"
            )
        elif name not in needing:
            message = f"the node {name!a} does not need the branch {branch!a}; add it to the needs of the node"
            problems.add(where, "branch_target_not_downstream", message)


def _check_references(
    definition: Definition,
    index: dict[str, int],
    parents: graph.Edges,
    order: Sequence[int] | None,
    problems: Problems,
) -> None:
    """Declared and, where there is an order, upstream: otherwise there would be no value yet."""
    path_of: dict[tuple[int, int], str] = {}
    for scope in (*output_place(definition), *published_places(definition)):
        _target(scope, definition, index, problems)
    for position, node in enumerate(definition.nodes):
        for scope in places_of(node, f"nodes[{position}]"):
            target = _target(scope, definition, index, problems)
            if target is not None:
                path_of.setdefault((position, target), scope.path)
    if order is None:
        return
    for position, target in graph.unrelated(parents, order, path_of):
        name = definition.nodes[target].id
        message = f"the node {name!a} does not come before this one; add it to the needs of this node"
        problems.add(path_of[position, target], "reference_not_upstream", message)


def _target(scope: ReferenceScope, definition: Definition, index: dict[str, int], problems: Problems) -> int | None:
    try:
        reference = resolve(scope.text, path=scope.path, inputs=definition.inputs, nodes=index, words=scope.words)
    except Refused as refused:
        problems.add(refused.path, refused.code, refused.message)
        return None
    return index[reference.name] if reference.root == "nodes" else None
