"""The rules for one node on its own, kind by kind. What needs the graph is in `validation.py`."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from tickwork.core.base.errors import InvalidDefinition, Refused
from tickwork.core.base.names import check_line, check_name
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.definition.cel import HTTP_VARIABLES, Condition
from tickwork.core.definition.model import (
    HTTP_BODY_BYTES_MAX,
    ITERATIONS_MAX,
    MAP_LISTS_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    ApprovalNode,
    Argument,
    BranchNode,
    Combine,
    Defaults,
    Definition,
    EventNode,
    FirstNode,
    HttpNode,
    MapNode,
    Node,
    RepeatNode,
    Resources,
    Retry,
    SendNode,
    ShellNode,
    Sla,
    TaskNode,
    Timeout,
    Trigger,
    WaitNode,
    WorkflowNode,
    WorkNode,
)
from tickwork.core.definition.problems import Problems, join
from tickwork.core.definition.references import is_reference

# ---- Requests that can be written down and never be sent: refused when a document is put.


# They say where a message ends and what becomes of its connection, which only the sender knows.
_OF_THE_CONNECTION = frozenset((
    "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
    "upgrade",
))  # fmt: skip


def check_requests(definition: Definition) -> None:
    """Raises `InvalidDefinition` with every problem found."""
    problems = Problems()
    for position, node in enumerate(definition.nodes):
        for path, request in _requests(node, f"nodes[{position}]"):
            _check(request, path, problems)
    if problems:
        raise InvalidDefinition(problems.listed())


def header_reason(name: str, value: str) -> str:
    """Why a header cannot be sent; "" if it can."""
    if name.lower() in _OF_THE_CONNECTION:
        return "this header belongs to the connection and is set by whoever sends the request; leave it out"
    if not value.isascii() or value != value.strip():
        return "write the value of a header in ASCII, without spaces around it"
    return ""


def _requests(node: Node, path: str) -> Iterator[tuple[str, HttpNode]]:
    if isinstance(node, HttpNode):
        yield path, node
    elif isinstance(node, MapNode | RepeatNode):
        yield from _requests(node.body, f"{path}.body")


def _check(node: HttpNode, path: str, problems: Problems) -> None:
    seen: dict[str, None] = {}
    for name, value in node.headers.items():
        reason = header_reason(name, value)
        if not reason and name.lower() in seen:
            reason = "this header is given twice; large and small letters make no difference"
        if reason:
            problems.add(join(f"{path}.headers", name), "header", reason)
        seen[name.lower()] = None
    if node.success is not None:
        _check_success(node.success, f"{path}.success", problems)


def _check_success(text: str, path: str, problems: Problems) -> None:
    try:
        gives = Condition.compile(text, allowed=HTTP_VARIABLES).gives
    except Refused as refused:
        problems.add(path, "condition", refused.message)
        return
    if gives not in ("BOOL", "DYN"):  # of what an answer holds, only the answer tells
        problems.add(path, "condition", f"it gives {gives}, not true or false; compare it with something")


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ATTEMPTS_MAX = 1_000
LABELS_MAX = 64
POLICIES_MAX = 64
CONDITION_CHARACTERS_MAX = 4_096
TEXT_CHARACTERS_MAX = 10_000
ARGUMENTS_MAX = 1_000
PRODUCES_MAX = 100
COST_MAX = 10**15  # of one step, and of a budget
QUANTITY_MAX = 2**31 - 1  # of slots, memory and the like: fits every store

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_URL = re.compile(
    r"(?i:https?)://(?P<user>[^/?#@\\ ]*@)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?:[/?#][!#-;=?-\[\]_a-z~]*)?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


@dataclass(frozen=True, slots=True)
class NodeValidator:
    """Where findings go, and who understands conditions."""

    problems: Problems
    check_condition: Callable[[str], str | None]

    def condition(self, path: str, text: str | None) -> None:
        if text is None:
            return
        if not text.strip():
            self.problems.add(path, "condition", "the condition is empty; write one or leave the field out")
        elif len(text) > CONDITION_CHARACTERS_MAX:
            message = f"the condition has {len(text)} characters; at most {CONDITION_CHARACTERS_MAX} are accepted"
            self.problems.add(path, "condition", message)
        elif reason := self.check_condition(text):
            self.problems.add(path, "condition", reason)

    def name(self, path: str, text: str | None, kind: str) -> None:
        if text is not None:
            self.problems.attempt(check_name, text, path=path, kind=kind)

    def one_source(self, path: str, name: str, constant: object, reference: str | None) -> None:
        if constant is not None and reference is not None:
            message = f"{name} and {name}_from say the same; keep one of them"
            self.problems.add(f"{path}.{name}_from", "given_twice", message)

    def line(self, path: str, text: str, kind: str, *, characters_max: int = 256) -> None:
        self.problems.attempt(check_line, text, path=path, kind=kind, characters_max=characters_max)


def check_node(node: Node, path: str, rules: NodeValidator) -> None:
    """Everything but its id and its place in the graph."""
    rules.condition(f"{path}.when", node.when)
    check_policy(node.policy, path, rules)
    check_sla(node.sla, path, rules.problems)
    rules.problems.length(f"{path}.description", node.description, high=TEXT_CHARACTERS_MAX)
    if isinstance(node, WorkNode):
        _check_work(node, path, rules)
    _BY_KIND[type(node)](node, path, rules)


def check_defaults(defaults: Defaults, rules: NodeValidator) -> None:
    rules.name("defaults.queue", defaults.queue, "queue")
    rules.problems.between("defaults.priority", defaults.priority, low=PRIORITY_MIN, high=PRIORITY_MAX)
    _check_labels(defaults.labels, "defaults.labels", rules)
    check_retry(defaults.retry, "defaults.retry", rules)
    _check_timeout(defaults.timeout, "defaults.timeout", rules.problems)


def check_policy(policy: tuple[str, ...], path: str, rules: NodeValidator) -> None:
    where = join(path, "policy")
    if rules.problems.count(where, len(policy), high=POLICIES_MAX, what="policies"):
        for index, name in enumerate(policy):
            rules.name(f"{where}[{index}]", name, "policy")


def check_sla(sla: Sla | None, path: str, problems: Problems) -> None:
    if sla is None:
        return
    where = join(path, "sla")
    problems.duration(f"{where}.breach_ms", sla.breach_ms)
    problems.duration(f"{where}.warn_ms", sla.warn_ms)
    if sla.warn_ms is not None and sla.warn_ms >= sla.breach_ms:
        problems.add(f"{where}.warn_ms", "out_of_range", "the warning comes at or after the breach; make it earlier")


def _check_work(node: WorkNode, path: str, rules: NodeValidator) -> None:
    _check_arguments(node.args, path, rules)
    check_retry(node.retry, f"{path}.retry", rules)
    _check_timeout(node.timeout, f"{path}.timeout", rules.problems)
    _check_resources(node.resources, f"{path}.resources", rules.problems)
    _check_labels(node.labels, f"{path}.labels", rules)
    rules.name(f"{path}.queue", node.queue, "queue")
    rules.one_source(path, "queue", node.queue, node.queue_from)
    _check_label_references(node, path, rules)
    rules.name(f"{path}.dependency", node.dependency, "dependency")
    rules.problems.between(f"{path}.priority", node.priority, low=PRIORITY_MIN, high=PRIORITY_MAX)
    rules.problems.one_of(f"{path}.on_worker_loss", node.on_worker_loss, ("fail", "retry"))
    if rules.problems.count(f"{path}.produces", len(node.produces), high=PRODUCES_MAX, what="assets"):
        for index, asset in enumerate(node.produces):
            rules.problems.attempt(check_name, asset, path=f"{path}.produces[{index}]", kind="asset")
    if node.cache is not None:
        rules.problems.duration(f"{path}.cache.ttl_ms", node.cache.ttl_ms)


def _check_arguments(args: Mapping[str, Argument], path: str, rules: NodeValidator) -> None:
    if not args or not rules.problems.count(f"{path}.args", len(args), high=ARGUMENTS_MAX, what="arguments"):
        return
    for name, argument in args.items():
        where = join(f"{path}.args", name)
        rules.name(where, name, "argument")
        if (argument.source is None) == (argument.value is msgspec.UNSET):
            rules.problems.add(where, "argument_source", 'give exactly one of "from" and "value"')


def check_retry(retry: Retry | None, path: str, rules: NodeValidator) -> None:
    if retry is None:
        return
    problems = rules.problems
    problems.between(f"{path}.attempts", retry.attempts, low=1, high=ATTEMPTS_MAX)
    problems.between(f"{path}.factor", retry.factor, low=1, high=10)
    problems.between(f"{path}.jitter_percent", retry.jitter_percent, low=0, high=100)
    problems.duration(f"{path}.delay_ms", retry.delay_ms, low_ms=0)
    problems.duration(f"{path}.delay_ms_max", retry.delay_ms_max, low_ms=0)
    if problems.count(f"{path}.rules", len(retry.rules), high=100, what="rules"):
        for index, rule in enumerate(retry.rules):
            where = f"{path}.rules[{index}]"
            rules.line(f"{where}.error", rule.error, "error")
            problems.between(f"{where}.attempts", rule.attempts, low=1, high=ATTEMPTS_MAX)
            problems.duration(f"{where}.delay_ms", rule.delay_ms, low_ms=0)


def _check_timeout(timeout: Timeout | None, path: str, problems: Problems) -> None:
    if timeout is not None:
        problems.duration(f"{path}.queued_ms", timeout.queued_ms)
        problems.duration(f"{path}.running_ms", timeout.running_ms)
        problems.duration(f"{path}.silent_ms", timeout.silent_ms)


def _check_resources(resources: Resources | None, path: str, problems: Problems) -> None:
    if resources is not None:
        problems.between(f"{path}.slots", resources.slots, low=1, high=QUANTITY_MAX)
        problems.between(f"{path}.cpu_milli", resources.cpu_milli, low=0, high=QUANTITY_MAX)
        problems.between(f"{path}.memory_mb", resources.memory_mb, low=0, high=QUANTITY_MAX)
        problems.between(f"{path}.gpu", resources.gpu, low=0, high=QUANTITY_MAX)


def _check_labels(labels: Mapping[str, str], path: str, rules: NodeValidator) -> None:
    if labels and rules.problems.count(path, len(labels), high=LABELS_MAX, what="labels"):
        for name, value in labels.items():
            rules.name(join(path, name), name, "label")
            rules.name(join(path, name), value, "label value")


def _check_label_references(node: WorkNode, path: str, rules: NodeValidator) -> None:
    where = f"{path}.labels_from"
    if node.labels_from and rules.problems.count(where, len(node.labels_from), high=LABELS_MAX, what="labels"):
        for name in node.labels_from:
            rules.name(join(where, name), name, "label")
            if name in node.labels:
                rules.problems.add(join(where, name), "given_twice", f"the label {name} stands in labels too; keep one")


def _check_task(node: TaskNode, path: str, rules: NodeValidator) -> None:
    rules.line(f"{path}.handler", node.handler, "handler")
    if node.handler_version:
        rules.line(f"{path}.handler_version", node.handler_version, "version")
    if node.durable and node.cache is not None:
        message = "the steps of a durable function are recorded; leave the cache out"
        rules.problems.add(f"{path}.cache", "durable", message)
    if node.budget and not node.durable:
        rules.problems.add(f"{path}.budget", "not_durable", "only the steps of a durable function have a cost")
    if not 0 <= node.budget <= COST_MAX:
        rules.problems.add(f"{path}.budget", "out_of_range", f"a budget is 1 to {COST_MAX}")


def _check_http(node: HttpNode, path: str, rules: NodeValidator) -> None:
    rules.problems.length(f"{path}.url", node.url, high=8_192)
    rules.problems.one_of(f"{path}.method", node.method, METHODS)
    rules.condition(f"{path}.success", node.success)
    rules.problems.between(f"{path}.body_limit", node.body_limit, low=1, high=HTTP_BODY_BYTES_MAX)
    rules.name(f"{path}.sign", node.sign, "secret")
    if reason := _url_reason(node.url):
        rules.problems.add(f"{path}.url", "url", reason)
    for name, value in node.headers.items():
        where = join(f"{path}.headers", name)
        if not _HEADER.fullmatch(name):
            rules.problems.add(where, "header", "the name of the header has characters that HTTP does not allow")
        if value:
            rules.line(where, value, "header value", characters_max=8_192)


def _url_reason(url: str) -> str | None:
    """A pattern and not a parser: what two parsers read differently is refused."""
    match = _URL.fullmatch(url)
    if match is None:
        return "write a whole URL that starts with http:// or https://, in ASCII, other characters as %XX"
    if match["user"]:
        return "a URL holds no user or password; use a header with a secret instead"
    if match["port"] and not 1 <= int(match["port"]) <= 65_535:
        return "the port of the URL is out of range; use 1 to 65535"
    return None


def _check_shell(node: ShellNode, path: str, rules: NodeValidator) -> None:
    if not node.argv or not node.argv[0].strip():
        rules.problems.add(f"{path}.argv", "argv_empty", "name the program to run as the first of the list")
    rules.problems.count(f"{path}.argv", len(node.argv), high=ARGUMENTS_MAX, what="arguments")
    for name in node.env:
        if not _VARIABLE.fullmatch(name):
            message = "a variable's name has letters, digits and '_' and starts with no digit"
            rules.problems.add(join(f"{path}.env", name), "name_characters", message)


def _check_send(node: SendNode, path: str, rules: NodeValidator) -> None:
    rules.name(f"{path}.channel", node.channel, "channel")


def _check_wait(node: WaitNode, path: str, rules: NodeValidator) -> None:
    if sum(part is not None for part in (node.duration_ms, node.until, node.duration_from)) != 1:
        rules.problems.add(path, "wait_choice", 'give exactly one of "duration", "until" and "duration_from"')
    rules.problems.duration(f"{path}.duration_ms", node.duration_ms)
    if node.until is not None and not is_reference(node.until):
        rules.problems.attempt(instant_ms, node.until, path=f"{path}.until")


def _check_branch(node: BranchNode, path: str, rules: NodeValidator) -> None:
    if not node.cases:
        rules.problems.add(f"{path}.cases", "branch_without_case", "a branch has at least one case")
    for index, case in enumerate(node.cases):
        rules.condition(f"{path}.cases[{index}].when", case.when)


def _check_event(node: EventNode, path: str, rules: NodeValidator) -> None:
    rules.name(f"{path}.event", node.event, "event")
    rules.problems.duration(f"{path}.timeout_ms", node.timeout_ms)
    rules.one_source(path, "timeout", node.timeout_ms, node.timeout_from)
    rules.problems.one_of(f"{path}.on_timeout", node.on_timeout, ("fail", "continue"))


def _check_approval(node: ApprovalNode, path: str, rules: NodeValidator) -> None:
    rules.problems.duration(f"{path}.timeout_ms", node.timeout_ms)
    rules.one_source(path, "timeout", node.timeout_ms, node.timeout_from)
    rules.problems.one_of(f"{path}.on_timeout", node.on_timeout, ("fail", "continue"))
    rules.problems.length(f"{path}.message", node.message, high=TEXT_CHARACTERS_MAX)
    if rules.problems.count(f"{path}.approvers", len(node.approvers), high=ARGUMENTS_MAX, what="approvers"):
        for index, approver in enumerate(node.approvers):
            rules.line(f"{path}.approvers[{index}]", approver, "approver")


def _check_workflow(node: WorkflowNode, path: str, rules: NodeValidator) -> None:
    rules.name(f"{path}.workflow", node.workflow, "workflow")
    rules.problems.one_of(f"{path}.on_cancel", node.on_cancel, ("abandon", "cancel"))
    _check_arguments(node.args, path, rules)
    check_retry(node.retry, f"{path}.retry", rules)


def _check_first(node: FirstNode, path: str, rules: NodeValidator) -> None:
    if len(node.of) < 2:
        rules.problems.add(f"{path}.of", "first_of_one", "name at least two nodes, of which the first to end counts")
    for number, name in enumerate(node.of):
        if name not in node.needs:
            message = f"the node {name[:128]!a} is not among the needs of this one; add it"
            rules.problems.add(f"{path}.of[{number}]", "unknown_need", message)
    if node.trigger is not Trigger.ALL_SUCCEEDED:
        rules.problems.add(f"{path}.trigger", "first_trigger", "it starts with the first one that ends; leave this out")


def _check_map(node: MapNode, path: str, rules: NodeValidator) -> None:
    combined = node.combine in (Combine.ZIP, Combine.PRODUCT)
    if combined != bool(node.others):
        message = "zip and product go over `over` and at least one of `others`, and nothing else has others"
        rules.problems.add(f"{path}.others", "map_lists", message)
    rules.problems.count(f"{path}.others", len(node.others), high=MAP_LISTS_MAX - 1, what="further lists")
    rules.problems.between(f"{path}.max_parallel", node.max_parallel, low=1, high=QUANTITY_MAX)
    rules.one_source(path, "max_parallel", node.max_parallel, node.max_parallel_from)
    rules.problems.between(f"{path}.tolerate", node.tolerate, low=0, high=QUANTITY_MAX)
    _check_body(node.body, f"{path}.body", rules)


def _check_repeat(node: RepeatNode, path: str, rules: NodeValidator) -> None:
    rules.condition(f"{path}.until", node.until)
    rules.problems.between(f"{path}.max_iterations", node.max_iterations, low=1, high=ITERATIONS_MAX)
    rules.problems.duration(f"{path}.delay_ms", node.delay_ms, low_ms=0)
    rules.problems.duration(f"{path}.timeout_ms", node.timeout_ms)
    rules.one_source(path, "timeout", node.timeout_ms, node.timeout_from)
    rules.problems.between(f"{path}.tolerate", node.tolerate, low=0, high=QUANTITY_MAX)
    rules.problems.one_of(f"{path}.on_max", node.on_max, ("fail", "continue"))
    _check_body(node.body, f"{path}.body", rules)


def _check_body(body: Node, path: str, rules: NodeValidator) -> None:
    """A body has no place of its own in the graph, so the fields of a place mean nothing there."""
    bare = Node()
    for name in ("id", "needs", "trigger", "when", "sla", "policy", "teardown"):
        if getattr(body, name) != getattr(bare, name):
            message = f"a body has no {name} of its own; put it on the node around it"
            rules.problems.add(f"{path}.{name}", "body_field", message)
    if isinstance(body, WorkNode) and body.cache is not None:
        rules.problems.add(f"{path}.cache", "body_field", "results of a body are not cached; cache a node of its own")
    if isinstance(body, WorkflowNode) and body.retry is not None:
        message = "a workflow in a body is not tried again as a whole; put the retry on the nodes of that workflow"
        rules.problems.add(f"{path}.retry", "body_field", message)
    check_node(body, path, rules)


_BY_KIND: Mapping[type[Node], Callable[..., None]] = {
    TaskNode: _check_task,
    HttpNode: _check_http,
    ShellNode: _check_shell,
    SendNode: _check_send,
    WaitNode: _check_wait,
    BranchNode: _check_branch,
    EventNode: _check_event,
    ApprovalNode: _check_approval,
    WorkflowNode: _check_workflow,
    FirstNode: _check_first,
    MapNode: _check_map,
    RepeatNode: _check_repeat,
}
