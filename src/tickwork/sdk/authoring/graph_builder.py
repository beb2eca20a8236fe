"""Building a definition: the function of a workflow is called once, and each call in it becomes a record.

Ids are settled at the end, so a node may be named after it was used. Reading order is kept where data says
nothing: what stands after a wait, an event or an approval waits for it, and these wait for what stands
before them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.definition.model import VALUE_HANDLER, Combine, Trigger
from tickwork.sdk.authoring.maps import parameters_for, parts_of
from tickwork.sdk.authoring.options import Options
from tickwork.sdk.authoring.placeholders import Condition, Node, Value, refuse_future
from tickwork.sdk.authoring.required_approvals import asked_before
from tickwork.sdk.authoring.source_location import SourceLocation, at_place, here, placed
from tickwork.sdk.values.encode import plain

if TYPE_CHECKING:
    from tickwork.sdk.authoring.tasks import Task
    from tickwork.sdk.authoring.workflows import ChildOptions, Workflow
    from tickwork.sdk.values.signature_codec import Codec

_active: ContextVar["Builder | None"] = ContextVar("tickwork_build", default=None)
_DICT_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)


def active() -> "Builder | None":
    return _active.get()


def building(what: str) -> "Builder":
    """The builder; refused outside of a workflow."""
    builder = _active.get()
    if builder is None:
        message = f"tw.{what} describes a node, so it is only for the function of a @tw.workflow"
        raise placed("not_building", message)
    return builder


OWN_PARENTS = (Trigger.ANY_SUCCEEDED, Trigger.ONE_DONE, Trigger.ALL_FAILED)


@dataclass(eq=False, slots=True)
class NodeRecord:
    """One node to be."""

    kind: str
    base: str
    location: SourceLocation
    scope: "Scope"
    fields: dict[str, Any] = field(default_factory=dict)  # what the kind has, rendered at the end
    args: dict[str, Any] = field(default_factory=dict)  # name to Value, or to Constant
    options: Options = field(default_factory=Options)
    needs: list["NodeRecord"] = field(default_factory=list)
    before: list["NodeRecord"] = field(default_factory=list)  # of a barrier: what stands above it in the function
    is_barrier: bool = False
    branches: list["NodeRecord"] = field(default_factory=list)
    barrier: "NodeRecord | None" = None  # the wait, event or approval that stands before it in the function
    condition: Condition | None = None
    trigger: str = ""
    named: bool = False
    id: str = ""
    body: "NodeRecord | None" = None
    torn_down: "NodeRecord | None" = None  # of a teardown: its set-up
    fails: bool = False  # the run fails where this teardown does
    asks: dict[str, Any] | None = None  # fields of the approval that comes before it
    approval: "NodeRecord | None" = None  # that approval

    def __repr__(self) -> str:
        return self.id or self.base

    def start_after(self, *others: Any) -> None:
        for other in others:
            if isinstance(other, list | tuple):
                self.start_after(*other)
            else:
                for end in ends_of(other):
                    self._release(end)
                    self.needs.append(end)

    def _release(self, other: "NodeRecord") -> None:
        """In `tw.wait("1h").after(fetch())` the call stands behind the wait, and is meant to come before it."""
        todo = [other]
        seen = {other}
        for record in todo:  # grows while we walk it
            if record.barrier is self:
                record.barrier = self.barrier
            todo += [parent for parent in record.parents() if parent not in seen]
            seen.update(todo)

    def rename(self, name: str) -> None:
        at_place(check_name, name, path="named", kind="node")
        self.base, self.named, self.location = name, True, self.location

    def only_when(self, condition: Condition) -> None:
        self.condition = condition if self.condition is None else self.condition & condition

    def trigger_on(self, trigger: str) -> None:
        choices = [choice.value for choice in Trigger]
        if trigger not in choices:
            raise placed("bad_trigger", f"{trigger!r} is not a trigger rule; use one of {', '.join(choices)}")
        self.trigger = trigger

    def values(self) -> Iterator[Value]:
        """Everything it reads."""
        for argument in (*self.args.values(), *self.fields.values()):
            for part in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(part, Value):
                    yield part
                elif isinstance(part, Condition | Message):
                    yield from part.values()
        yield from self.options.values()
        if self.condition is not None:
            yield from self.condition.values()
        if self.body is not None:
            yield from self.body.values()

    def parents(self) -> "list[NodeRecord]":
        """Without repetition, in a stable order."""
        read = [root for value in self.values() if isinstance(root := value._tw_root, NodeRecord)]
        before = self.before if self.barrier is None else [*self.before, self.barrier]
        own = [*self.branches, *read, *self.needs]
        if self.trigger in OWN_PARENTS and len(own) > len(self.branches):
            before = []  # the rule is about these parents, and not about what happens to stand above
        return list(dict.fromkeys([*own, *before]))


@dataclass(frozen=True, slots=True)
class Message:
    """A text for people, with values to come in it."""

    parts: tuple[Any, ...]

    def values(self) -> list[Value]:
        return [part for part in self.parts if isinstance(part, Value)]

    def text(self) -> str:
        """Ids must be settled by now."""
        return "".join(f"${{{part._tw_reference()}}}" if isinstance(part, Value) else part for part in self.parts)


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any


class Scope:
    """A stretch of the function: all of it, or one side of a branch."""

    def __init__(self, outer: "Scope | None" = None, branch: NodeRecord | None = None) -> None:
        self.outer = outer
        self.branch = branch
        self.records: list[NodeRecord] = []
        self.inside: list[NodeRecord] = []  # those of the stretches within it too
        self.choices: list[BranchResult] = []
        self.barrier: NodeRecord | None = None
        self.capture: list[NodeRecord] | None = None

    def branches(self) -> list[NodeRecord]:
        around = self.outer.branches() if self.outer is not None else []
        return around if self.branch is None else [*around, self.branch]


class BranchSide:
    """One side of a branch. The node that stands for all of it is made on demand."""

    def __init__(self, builder: "Builder", scope: Scope, result: Any) -> None:
        self._builder = builder
        self._scope = scope
        self._result = result
        self._end: NodeRecord | None = None

    def end(self) -> NodeRecord:
        if self._end is None:
            result = self._result
            leaves = self._builder.leaves(self._scope)
            whole = isinstance(result, Node) and not isinstance(result, BranchResult) and result._tw_record() in leaves
            if whole and len(leaves) == 1:
                self._end = leaves[0]
            else:
                self._end = self._builder.value(result, scope=self._scope, base="side")
                self._end.needs += leaves
        return self._end


class BranchResult(Node):
    """The result of whichever side of a branch is taken."""

    __slots__ = ("_tw_builder", "_tw_joined", "_tw_scope", "_tw_sides")

    def __init__(self, branch: NodeRecord, builder: "Builder", scope: Scope, sides: list[BranchSide]) -> None:
        super().__init__(branch)
        self._tw_builder = builder
        self._tw_scope = scope
        self._tw_sides = sides
        self._tw_joined: NodeRecord | None = None

    @property
    def _tw_root(self) -> NodeRecord:
        if self._tw_joined is None:
            self._tw_joined = self._tw_builder.value(
                self, scope=self._tw_scope, base=f"{self._tw_own_root.base}_result"
            )
        return self._tw_joined

    def _tw_ends(self) -> list[NodeRecord]:
        return [side.end() for side in self._tw_sides]


def ends_of(value: Any) -> list[NodeRecord]:
    if isinstance(value, BranchResult):
        return value._tw_ends()
    if isinstance(value, Value) and isinstance(value._tw_root, NodeRecord):
        return [value._tw_root]
    raise placed("bad_after", f"after(...) takes results of nodes, not {value!r}")


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Ends a run before its nodes have ended."""

    condition: Condition
    outcome: str
    reason: str

    def text(self) -> str:
        """As CEL. It holds only if what it reads is there: it is evaluated before every step."""
        read = [root for value in self.condition.values() if isinstance(root := value._tw_root, NodeRecord)]
        known = [f"outcome[{json.dumps(record.id)}] == 'succeeded' && " for record in dict.fromkeys(read)]
        return f"{''.join(known)}({self.condition.text()})" if known else self.condition.text()


class Builder:
    """Gathers the records of one workflow."""

    def __init__(self, workflow: "Workflow[..., Any]") -> None:
        self.workflow = workflow
        self.records: list[NodeRecord] = []
        self.scope = Scope()
        self.tasks: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.children: dict[str, Workflow[..., Any]] = {}
        self.output: Value | None = None
        self.exits: list[EarlyExit] = []
        self.published: dict[str, list[Value]] = {}
        self.location: SourceLocation | None = None  # where there is no line of the user's to point at

    @contextmanager
    def active(self) -> Iterator[None]:
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    # ---- records

    def add(
        self, kind: str, base: str, *, scope: Scope | None = None, location: SourceLocation | None = None, **parts: Any
    ) -> NodeRecord:
        scope = scope or self.scope
        record = NodeRecord(kind, base, location or self.location or here(), scope, **parts)
        if scope.capture is not None:
            scope.capture.append(record)
            return record
        record.branches = scope.branches()
        record.barrier = scope.barrier
        scope.records.append(record)
        self.records.append(record)
        around: Scope | None = scope
        while around is not None:
            around.inside.append(record)
            around = around.outer
        return record

    def barrier(self, record: NodeRecord) -> None:
        """Everything before it in this stretch comes first, everything after it comes later."""
        if record.scope.capture is None:
            record.before += [leaf for leaf in self.leaves(record.scope) if leaf is not record]
            record.scope.barrier, record.is_barrier = record, True

    def leaves(self, scope: Scope) -> list[NodeRecord]:
        """What nothing else in this stretch waits for; a branch is left by the ends of its sides."""
        ends = [end for choice in scope.choices for end in choice._tw_ends()]
        # A side's end belongs to its own stretch, so it is looked for among all records.
        needed = {parent for record in self.records for parent in record.parents()}
        own = [record for record in scope.records if record.kind != "branch"]
        return [record for record in dict.fromkeys([*own, *ends]) if record not in needed]

    # ---- calls

    def task(self, task: "Task[..., Any]", owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        if owner is None and task.kind != "plain":
            if not args:
                raise placed("bad_call", f"{task.name} is a method; call it on its class or a registered object")
            owner, args = args[0], args[1:]
        codec = task.codec
        given = at_place(codec.bind, args, kwargs)
        record = self._task_record(task, owner, given)
        if record.scope.capture is None:
            task.extras.apply(record)
        return Node(record)

    def map_task(
        self,
        task: "Task[..., Any]",
        owner: Any,
        over: Any,
        constants: dict[str, Any],
        *,
        max_parallel: Any,
        tolerate: Any,
    ) -> Node:
        codec = task.codec
        given = self._with_item(codec, constants, over)
        body = self._body(lambda: self._task_record(task, owner, given))
        self._check_items(codec, given, over)
        node = self._map(body, over, max_parallel, tolerate)
        task.extras.apply(node._tw_record())
        return node

    def child(
        self,
        workflow: "Workflow[..., Any]",
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: "ChildOptions | None" = None,
    ) -> Node:
        given = at_place(workflow.codec.bind, args, kwargs)
        record = self._child_record(workflow, given, options)
        if options is not None and record.scope.capture is None:
            options.call.apply(record)
        return Node(record)

    def map_child(
        self,
        workflow: "Workflow[..., Any]",
        over: Any,
        constants: dict[str, Any],
        *,
        max_parallel: Any,
        tolerate: Any,
        options: "ChildOptions | None" = None,
    ) -> Node:
        given = self._with_item(workflow.codec, constants, over)
        body = self._body(lambda: self._child_record(workflow, given, options))
        self._check_items(workflow.codec, given, over)
        node = self._map(body, over, max_parallel, tolerate)
        if options is not None:
            options.call.apply(node._tw_record())
        return node

    def _check_items(self, codec: "Codec", given: dict[str, Any], over: Any) -> None:
        """What a map goes over. Where that is known already, its items fit."""
        combine, lists, _, _ = parts_of(over)
        for number, known in enumerate(lists):
            if isinstance(known, Value | Condition) or _mixed(known):
                continue
            value = at_place(plain, known, what=f"{codec.name}: the list of a map")
            if combine is Combine.ENTRIES:
                self._check_parts(codec, given, (0,), list(value))
                self._check_parts(codec, given, (1,), list(value.values()))
                continue
            if not isinstance(value, list):
                advice = "tw.entries(...) gives keys and values" if isinstance(value, dict) else "make it one"
                message = f"a map goes over a list, not over {_kind_of(known)}"
                raise placed("bad_map", f"{message}; {advice}, or let a task make it")
            self._check_parts(codec, given, () if combine is Combine.EACH else (number,), value)

    def _check_parts(self, codec: "Codec", given: dict[str, Any], walk: tuple[int, ...], items: list[Any]) -> None:
        for name, value in given.items():
            if isinstance(value, Value) and value._tw_own_root == "item" and value._tw_walk == walk:
                for item in items:
                    at_place(codec.check_constant, name, item)

    def _with_item(self, codec: "Codec", constants: dict[str, Any], over: Any) -> dict[str, Any]:
        if any(isinstance(value, Value) and value._tw_own_root == "item" for value in _flat(constants)):
            return at_place(codec.bind, (), dict(constants))
        names = at_place(parameters_for, over, constants, codec.item_name)
        if parts_of(over)[0] is Combine.EACH:
            return at_place(codec.bind, (), {names[0]: Value("item"), **constants})
        parts = {name: Value("item", (number,)) for number, name in enumerate(names)}
        return at_place(codec.bind, (), {**parts, **constants})

    def _task_record(self, task: "Task[..., Any]", owner: Any, given: dict[str, Any]) -> NodeRecord:
        args, asks = self.arguments(task.codec, given), at_place(asked_before, self, task, given)
        handler = at_place(task.handler_name, owner)
        self.tasks[id(task.function), id(owner)] = (task, owner)
        fields = {"handler": handler, "handler_version": task.options.version}
        options = self._settled(task.options)
        return self.add("task", id_base(task.function, task.name), fields=fields, args=args, options=options, asks=asks)

    def _child_record(
        self, workflow: "Workflow[..., Any]", given: dict[str, Any], options: "ChildOptions | None"
    ) -> NodeRecord:
        self.children[workflow.name] = workflow
        args: dict[str, Any] = {}
        for name, value in given.items():
            whole = self.whole(value) if _mixed(value) else value
            args[name] = whole if isinstance(whole, Value) else self._constant(workflow.codec, name, whole)
        fields: dict[str, Any] = {"workflow": workflow.name}
        if options is not None:
            fields |= {"retry": options.retry, "on_cancel": options.on_cancel}
        return self.add("workflow", id_base(workflow.function, workflow.name), fields=fields, args=args)

    def _body(self, make: Callable[[], NodeRecord]) -> NodeRecord:
        """A record without a place of its own. Values that need a node get one before it."""
        return make_captured(self, make)

    def _settled(self, options: Options) -> Options:
        """The same options, with a node for each value to come that has none yet."""
        if not options.values():
            return options
        queue, labels = options.queue, options.labels
        return replace(
            options,
            queue=self.whole(queue) if isinstance(queue, Value) else queue,
            labels={name: self.whole(value) if isinstance(value, Value) else value for name, value in labels.items()}
            if labels
            else labels,
        )

    def _map(self, body: NodeRecord, over: Any, max_parallel: Any, tolerate: Any) -> Node:
        refuse_future("tolerate", tolerate)
        most = self.whole(max_parallel) if isinstance(max_parallel, Value | Condition) else max_parallel
        name = "max_parallel_from" if isinstance(most, Value) else "max_parallel"
        combine, lists, _, _ = parts_of(over)
        first, *others = [self.whole(items) for items in lists]
        fields = {"over": first, "others": tuple(others), "combine": combine, name: most, "tolerate": tolerate}
        return Node(self.add("map", body.base, fields=fields, body=body))

    # ---- arguments

    def arguments(self, codec: "Codec", given: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in given.items():
            if _mixed(value):
                self._spread(name, value, result)
            elif isinstance(value, Value):
                result[name] = value
            else:
                result[name] = self._constant(codec, name, value)
        return result

    def whole(self, value: Any) -> Value:
        """A value that one reference can name; where there is none, a node that makes it."""
        if isinstance(value, Condition):
            message = "a condition is evaluated by the server and is not a value; compute it in a task"
            raise placed("bad_value", message, self.location)
        if isinstance(value, Value):
            value._tw_root  # noqa: B018 - the result of a branch gets its node here
            return value
        return Node(self.value(value))

    def value(self, value: Any, *, scope: Scope | None = None, base: str = "value") -> NodeRecord:
        """A node whose result is `value`."""
        args: dict[str, Any] = {}
        if _mixed(value):
            self._spread("value", value, args)
        else:
            constant = not isinstance(value, Value)
            args["value"] = (
                Constant(at_place(plain, value, what="value", location=self.location)) if constant else value
            )
        scope = scope or self.scope
        while scope.capture is not None and scope.outer is not None:
            scope = scope.outer
        record = self.add(
            "task", base, scope=scope, fields={"handler": VALUE_HANDLER, "handler_version": ""}, args=args
        )
        record.options = _like(record)
        return record

    def _constant(self, codec: "Codec", name: str, value: Any) -> Constant:
        sent = at_place(plain, value, what=f"{codec.name}: {name}")
        at_place(codec.check_constant, name, sent)
        return Constant(sent)

    def _spread(self, name: str, value: Any, result: dict[str, Any]) -> None:
        """A list or dict with placeholders inside travels as one argument per part; the worker joins them."""
        value = _opened(value)
        if isinstance(value, BranchResult) and value._tw_joined is None:
            for number, end in enumerate(value._tw_ends()):
                result[f"{name}.-{number}"] = Node(end)
        elif isinstance(value, dict) and _mixed(value):
            for key, part in value.items():
                if not isinstance(key, str) or not _DICT_KEY.fullmatch(key):
                    message = (
                        f"the key {key!r} stands beside a result that is not known yet, so it must be a plain name"
                    )
                    raise placed("bad_key", f"{message}; use letters, digits and '_', or make the dict in a task")
                self._spread(f"{name}.{key}", part, result)
        elif isinstance(value, list | tuple) and _mixed(value):
            for number, part in enumerate(value):
                self._spread(f"{name}.{number}", part, result)
        else:
            result[name] = (
                value
                if isinstance(value, Value)
                else Constant(at_place(plain, value, what=name, location=self.location))
            )


def make_captured(builder: Builder, make: Callable[[], Any]) -> NodeRecord:
    """The one record that `make` adds, kept out of the graph: the body of a map or repeat."""
    outer = builder.scope
    builder.scope = Scope(outer)
    builder.scope.capture = []
    captured = builder.scope.capture
    try:
        make()
    finally:
        builder.scope = outer
    if len(captured) != 1 or captured[0].kind not in ("task", "http", "shell", "workflow"):
        names = ", ".join(repr(key) for key in captured) or "none"
        message = f"the body is one task, http, shell or workflow call, but here it is: {names}"
        raise placed("bad_body", f"{message}; put more steps into a workflow of their own")
    return captured[0]


def id_base(function: Callable[..., Any], known_as: str) -> str:
    name = getattr(function, "__name__", "") or known_as.rpartition(".")[2]
    if name == "<lambda>":
        name = known_as.rpartition(".")[2]
    plain_name = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")[:100]
    return plain_name or "task"


def _kind_of(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _mixed(value: Any) -> bool:
    """Tell whether the value holds placeholders, so that it is neither a single reference nor a constant."""
    if isinstance(value, BranchResult):
        return value._tw_joined is None
    value = _opened(value)
    if isinstance(value, dict):
        return any(isinstance(item, Value) or _mixed(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(isinstance(item, Value) or _mixed(item) for item in value)
    return False


def _opened(value: Any) -> Any:
    """The fields of a dataclass: placeholders may stand in them too."""
    if isinstance(value, Message):
        message = "tw.text(...) is shown to people, as the message of an approval"
        raise placed("bad_value", f"{message}; a text that tasks or conditions use is made by a task")
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: getattr(value, name) for name in type(value).__dataclass_fields__ if hasattr(value, name)}
    return value


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _like(record: NodeRecord) -> Options:
    """Made where its values come from: the same queue and labels, so that some worker surely serves it."""
    for parent in record.parents():
        source = parent.body or parent
        if source.options.queue or source.options.labels:
            return Options(queue=source.options.queue, labels=source.options.labels)
    return Options()


def refuse_async(function: Any, what: str) -> Refused:
    message = f"{what} describes a graph and is called once, before anything runs, so it cannot be asynchronous"
    advice = "write def, and async def for its tasks, or make it a @tw.durable function"
    return placed("bad_workflow", f"{message}; {advice}: {function.__qualname__}")
