"""The nodes of a workflow that are no tasks: waits, events, approvals, branches, repeats, http and shell."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from string import Formatter
from typing import Any, Literal, TypeVar, cast, overload

from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.definition.model import HTTP_BODY_BYTES, ITERATIONS_MAX
from tickwork.sdk.authoring.graph_builder import (
    OWN_PARENTS,
    BranchResult,
    BranchSide,
    Builder,
    Constant,
    EarlyExit,
    Message,
    NodeRecord,
    Scope,
    building,
    make_captured,
)
from tickwork.sdk.authoring.options import duration, task_options
from tickwork.sdk.authoring.placeholders import Condition, Node, Value, as_condition, condition_of, refuse_future
from tickwork.sdk.authoring.race_order import RaceOrder
from tickwork.sdk.authoring.source_location import at_place, placed
from tickwork.sdk.values.encode import plain
from tickwork.sdk.values.form_fields import declared_fields, default_values

T = TypeVar("T")
U = TypeVar("U")

Duration = str | timedelta


def wait(for_: Any = None, /, *, until: Any = None, barrier: bool = True) -> Node:
    """Waits for a time, `tw.wait("3d")`, or until an instant: a datetime, RFC 3339 text. Both may be values to come.

    What stands below it in the function comes after it, and it comes after what stands above it; with
    `barrier=False` only data and `.after(...)` order it. Nothing is held meanwhile, for minutes or years.
    """
    builder = building("wait")
    if (for_ is None) == (until is None):
        raise placed(
            "bad_wait", 'a wait has a length, tw.wait("3d"), or an end, tw.wait(until=...): exactly one of them'
        )
    if isinstance(for_, Value):
        fields: dict[str, Any] = {"duration_from": builder.whole(for_)}
    elif for_ is not None:
        fields = {"duration_ms": at_place(duration, for_, path="wait", minimum_ms=1)}
    elif isinstance(until, Value):
        fields = {"until": builder.whole(until)}
    else:
        text = at_place(plain, until, what="until") if isinstance(until, datetime) else until
        at_place(instant_ms, text, path="until")
        fields = {"until": text}
    return _ordered(builder, builder.add("wait", "wait", fields=fields), barrier=barrier)


def event(name: str, /, *, key: Any = None, timeout: Any = None, on_timeout: str = "fail", barrier: bool = True) -> Any:
    """Waits for an event from outside (`client.signal`) and gives its payload.

    `key` is an input or a result: only events with that key count. Where the time runs out, the run fails, or
    goes on with None for `on_timeout="continue"`. `timeout` is a duration, or a value to come: text such as "5m".
    """
    builder = building("event")
    fields = {"event": name, "on_timeout": on_timeout, **_timeout(builder, timeout, "event")}
    if key is not None:
        if not isinstance(key, Value):
            message = f"the key of an event is an input or a result of the workflow, not the constant {key!r}"
            raise placed("bad_key", f"{message}; put it into the name of the event, or make it an input")
        fields["key"] = builder.whole(key)
    return _ordered(builder, builder.add("event", _base(name, "event"), fields=fields), barrier=barrier)


def approval(
    name: str = "approval",
    /,
    *,
    approvers: Sequence[str] = (),
    four_eyes: bool = False,
    timeout: Any = None,
    on_timeout: str = "fail",
    message: Any = "",
    barrier: bool = True,
) -> Any:
    """Waits for a person to approve; rejected, the node fails. `four_eyes`: not by the person who submitted the run.

    `message` is the question: a text, a result, or a text with values in it: `message=tw.text("Ship {n} parcels?",
    n=order["count"])`. It is shown by `tickwork show` and `why`, on the page and in the API. `timeout` is a duration,
    or a value to come: text such as "5m".
    """
    builder = building("approval")
    if isinstance(approvers, str):
        raise placed("bad_approvers", f"approvers is a list: approvers=[{approvers!r}]")
    fields = {
        "approvers": tuple(approvers),
        "four_eyes": four_eyes,
        "on_timeout": on_timeout,
        "message": Message(tuple(part for given in _parts(message) for part in _message_parts(builder, given))),
        **_timeout(builder, timeout, "approval"),
    }
    return _ordered(builder, builder.add("approval", _base(name, "approval"), fields=fields), barrier=barrier)


def form(
    name: str = "form",
    /,
    *,
    fields: Mapping[str, Any],
    text: Any = "",
    approvers: Sequence[str] = (),
    four_eyes: bool = False,
    timeout: Any = None,
    default: Mapping[str, Any] | None = None,
    barrier: bool = True,
) -> Any:
    """Waits for a person to fill in fields, and gives what was filled in.

        choice = tw.form("review", fields={"approve": bool, "how": Literal["all", "failed only"], "note": ""},
                         timeout="1h", default={"approve": False})
        tw.branch(choice.approve, lambda: delete(found), lambda: report(choice.how))

    A field is a type, or a default value that says the type; `str | None` may be left out. The answer is checked when
    it is given. The result has each field, and `by` and `comment`. Where the time runs out it has the values of
    `default`, and None for other fields; without a default, the node fails. The other options are those of `approval`.
    """
    builder = building("form")
    if isinstance(approvers, str):
        raise placed("bad_approvers", f"approvers is a list: approvers=[{approvers!r}]")
    declared = {
        "approvers": tuple(approvers),
        "four_eyes": four_eyes,
        "on_timeout": "fail" if default is None else "continue",
        "message": Message(tuple(part for given in _parts(text) for part in _message_parts(builder, given))),
        "fields": at_place(declared_fields, fields),
        "default": at_place(default_values, default),
        **_timeout(builder, timeout, "form"),
    }
    return _ordered(builder, builder.add("approval", _base(name, "form"), fields=declared), barrier=barrier)


def text(template: str, /, **values: Any) -> Any:
    """A text for people with values in it: `tw.text("{n} rows of {name}", n=count(rows), name=name)`.

    It is the message of an approval, and is filled in where it is shown. `{{` stands for a brace.
    """
    builder = building("text")
    parts: list[Any] = []
    used: dict[str, None] = {}
    for before, name, spec, conversion in _pieces(template):
        parts.append(before)
        if name is None:
            continue
        if not name or spec or conversion or name not in values:
            known = ", ".join(sorted(values)) or "none"
            message = (
                f"tw.text fills in names, like {{n}}, and {template!r} has {{{name}}}; the values given are: {known}"
            )
            raise placed("bad_text", message)
        used[name] = None
        parts += _message_parts(builder, values[name])
    if unused := [name for name in values if name not in used]:
        raise placed("bad_text", f"the text {template!r} does not mention {', '.join(unused)}")
    return Message(tuple(parts))


def _pieces(template: str) -> Iterator[tuple[str, str | None, str | None, str | None]]:
    try:
        yield from Formatter().parse(template)
    except ValueError as error:
        raise placed("bad_text", f"the text {template!r} cannot be read: {error}") from error


@overload
def branch(condition: Any, then: Callable[[], T], otherwise: None = None) -> T | None: ...
@overload
def branch(condition: Any, then: Callable[[], T], otherwise: Callable[[], U]) -> T | U: ...
@overload
def branch(condition: Any, then: Any, otherwise: Any = None) -> Any: ...
def branch(condition: Any, then: Any, otherwise: Any = None) -> Any:
    """`then` where the condition holds, `otherwise` where not; gives the result of the side that was taken.

        result = tw.branch(total > 100, lambda: review(order), lambda: accept(order))

    A side is a function, called now to describe its nodes, or a node that exists already. The condition is a
    comparison of values to come, joined by & and |, or CEL as text.
    """
    return _branching(building("branch"), "branch", [(_settled(as_condition(condition)), then)], otherwise)


def switch(value: Any, cases: Mapping[Any, Any], /, otherwise: Any = None) -> Any:
    """The side whose case equals the value, or `otherwise`; gives the result of the side that was taken.

        tw.switch(order["kind"], {"gift": lambda: wrap(order), "bulk": lambda: pack(order)}, otherwise=ship)

    Cases are constants: texts, numbers, True, False, None or members of an enumeration. Sides are as in `branch`.
    """
    builder = building("switch")
    if not isinstance(value, Value):
        message = f"the value of a switch comes later, and {value!r} is known now"
        raise placed("bad_switch", f"{message}; use a dict or if of Python")
    if not isinstance(cases, Mapping) or not cases:
        raise placed("bad_switch", "the cases of a switch are a dict: tw.switch(kind, {'a': lambda: one(), ...})")
    questions: list[tuple[Condition, Any]] = []
    for case, side in cases.items():
        constant = at_place(plain, case, what="a case")
        if not isinstance(constant, str | int | float | None):
            raise placed("bad_switch", f"a case is a text, a number, true, false or None, not {case!r}")
        questions.append((_settled(value == constant), side))
    return _branching(builder, "switch", questions, otherwise)


def first(*racers: Any) -> Any:
    """Ends with the first of these that ends, and gives its result; the others are cancelled.

        paid = tw.first(tw.event("paid", key=order), tw.wait("3d"))       # None after three days

    What leads only to a cancelled one is cancelled with it. Where the first to end failed, this is blocked.
    """
    builder = building("first")
    if len(racers) < 2:
        raise placed("bad_first", "tw.first takes at least two results of nodes, of which the first to end counts")
    records = [_racer(racer) for racer in racers]
    if len(set(records)) < len(records):
        raise placed("bad_first", "tw.first takes each node once")
    made = builder.add("first", "first", fields={"of": tuple(Node(record) for record in records)})
    RaceOrder(records).apply(builder, made)
    return Node(made)


def _racer(value: Any) -> NodeRecord:
    if not isinstance(value, Node):
        raise placed("bad_first", f"tw.first takes whole results of nodes, not {value!r}")
    root: NodeRecord = value._tw_root
    return root


class _Teardown:
    """What `teardown` gives. The block below it describes the work; the teardown itself is added at its end."""

    def __init__(self, builder: Builder, setup: Value, call: Callable[[], Any], *, fail: bool) -> None:
        self._builder, self._setup, self._call, self._fail = builder, setup, call, fail
        self._scope, self._start = builder.scope, 0

    def __enter__(self) -> Any:
        self._start = len(self._builder.records)
        return self._setup

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            return
        builder, setup = self._builder, self._setup._tw_root
        work = builder.records[self._start :]
        for begun in work:
            if not any(parent in work for parent in begun.parents()):
                begun.before.append(setup)  # work begins when its set-up is there
        made = self._call()
        record: NodeRecord | None = made._tw_root if isinstance(made, Node) else None
        if record is None or record not in builder.records[self._start + len(work) :]:
            raise placed("bad_teardown", f"a teardown is a call of a task or of a workflow, not {made!r}")
        record.torn_down, record.fails = setup, self._fail
        record.needs += [setup, *_ends_of_work(work)]


def _ends_of_work(work: list[NodeRecord]) -> list[NodeRecord]:
    """What has to end before the teardown. Behind a branch or a race, a node may end before those that it needs."""
    if any(record.kind in ("branch", "first") or record.trigger in OWN_PARENTS for record in work):
        return [record for record in work if record.kind != "branch"]
    needed = {parent for record in work for parent in record.parents()}
    return [record for record in work if record not in needed]


def teardown(action: Callable[..., Any], /, *args: Any, of: Any = None, fail: bool = False, **kwargs: Any) -> _Teardown:
    """The work in the block below, and the call that removes afterwards what was set up for it:

        cluster = create(nodes=3)
        with tw.teardown(remove, cluster):
            work(cluster)

    `remove(cluster)` runs where the set-up succeeded, whatever became of the work, also when the run is cancelled or
    takes too long. Its own failure is a warning; with `fail=True` the run fails. A retry of the work sets up again. The
    set-up is the first result among the arguments, or `of=`. Nested blocks tear down innermost first.
    """
    builder = building("teardown")
    refuse_future("fail", fail)
    results = [value for value in (of, *args, *kwargs.values()) if _is_result(value)]
    if not results:
        message = "tw.teardown takes the result of the set-up that it belongs to: tw.teardown(remove, cluster)"
        raise placed("bad_teardown", f"{message}; where the call does not take it, tw.teardown(remove, of=cluster)")
    return _Teardown(builder, results[0], lambda: action(*args, **kwargs), fail=fail)


def _is_result(value: Any) -> bool:
    return isinstance(value, Value) and isinstance(value._tw_root, NodeRecord)


def _branching(builder: Builder, base: str, questions: list[tuple[Condition, Any]], otherwise: Any) -> Any:
    record = builder.add("branch", base, fields={"conditions": tuple(question for question, _ in questions)})
    sides = [_side(builder, record, given) for given in (*(side for _, side in questions), otherwise)]
    record.fields["sides"] = [scope for scope, _ in sides]
    choice = BranchResult(record, builder, builder.scope, [side for _, side in sides])
    builder.scope.choices.append(choice)
    return choice


def exit_when(condition: Any, /, *, outcome: Literal["completed", "cancelled"] = "completed", reason: str = "") -> None:
    """Ends the run early when the condition holds: what runs is cancelled, what was set up is torn down.

        found = look(day)
        tw.exit_when(found["count"] == 0, reason="nothing to import")

    It is evaluated before every step of the run, and holds only if all results that it reads are there. A run that ends
    early has no output where the node that gives it has not ended.
    """
    builder = building("exit_when")
    if builder.scope.outer is not None:
        raise placed("bad_exit", "tw.exit_when stands in the function of a workflow, not in a side of a branch")
    if outcome not in ("completed", "cancelled"):
        raise placed("bad_exit", f"the outcome of an early end is 'completed' or 'cancelled', not {outcome!r}")
    builder.exits.append(EarlyExit(_settled(as_condition(condition)), outcome, reason))


def publish(name: str, value: Any, /) -> None:
    """Others read this value with `client.read(run, name)` as soon as it is there, also when the run has ended.

        tw.publish("rows", found["count"])

    Where a name is published several times, the last of those values that is there counts.
    """
    builder = building("publish")
    at_place(check_name, name, path="name", kind="value")
    builder.published.setdefault(name, []).append(builder.whole(value))


def repeat(
    body: Callable[[], T],
    /,
    *,
    until: Callable[..., Any] | str,
    max_iterations: int = ITERATIONS_MAX,
    delay: Duration | None = None,
    on_max: str = "fail",
    timeout: Any = None,
    tolerate: int = 0,
) -> T:
    """Runs one call again and again until a condition holds on its result; gives the last result.

        state = tw.repeat(lambda: poll(job), until=lambda last: last["done"], delay="30s", max_iterations=99)

    Inside the call, `tw.iteration` counts from 0 and `tw.previous` is the result before, None at first. `timeout`
    limits all of it, a running call included; it is a duration, or a value to come. Where turns or time run out, the
    node fails, or gives the last result for `on_max="continue"`. `tolerate=3` goes on after up to three failed turns in
    a row.
    """
    builder = building("repeat")
    if not callable(body) or isinstance(body, Value):
        raise placed("bad_body", "the body of a repeat is a function: tw.repeat(lambda: poll(job), until=...)")
    for name, given in (("max_iterations", max_iterations), ("delay", delay), ("tolerate", tolerate)):
        refuse_future(name, given)
    inside = make_captured(builder, body)
    fields = {
        "until": condition_of(until, Value("last")),
        "max_iterations": max_iterations,
        "delay_ms": 0 if delay is None else at_place(duration, delay, path="delay"),
        "on_max": on_max,
        "tolerate": tolerate,
        **_timeout(builder, timeout, "repeat"),
    }
    return cast("T", Node(builder.add("repeat", inside.base, fields=fields, body=inside)))


def http(
    url: str,
    /,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    success: str | None = None,
    body_limit: int = HTTP_BODY_BYTES,
    sign: str | None = None,
    args: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A call to a URL, made by a worker. `success` is CEL over `status` and `body`; without it any 2xx counts.

    `body_limit` is how many bytes of the answer are kept. `sign` names a secret of the worker that signs the request.
    `args` are values to come that the call takes along. Options are those of `task`.
    """
    _constants_only(url=url, headers=headers, body=body)
    fields = {
        "url": url,
        "method": method.upper(),
        "headers": dict(headers or {}),
        "body": at_place(plain, body, what="body"),
        "success": success,
        "body_limit": body_limit,
        "sign": sign,
    }
    return _work("http", fields, args, options)


def shell(
    argv: Sequence[str],
    /,
    *,
    env: Mapping[str, str] | None = None,
    args: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A program on a worker: a list of words, never a line for a shell. Options are those of `task`."""
    if isinstance(argv, str):
        raise placed("bad_argv", "a program is a list of words, so that nothing is split or expanded: ['echo', 'a b']")
    _constants_only(argv=list(argv), env=env)
    fields = {"argv": tuple(str(word) for word in argv), "env": {key: str(word) for key, word in (env or {}).items()}}
    return _work("shell", fields, args, options)


def _work(kind: str, fields: dict[str, Any], args: Mapping[str, Any] | None, options: dict[str, Any]) -> Node:
    builder = building(kind)
    chosen = at_place(task_options, options, where=f"tw.{kind}")
    held: dict[str, Any] = {}
    for name, value in (args or {}).items():
        held[name] = builder.whole(value) if isinstance(value, Value) else Constant(at_place(plain, value, what=name))
    return Node(builder.add(kind, kind, fields=fields, args=held, options=chosen))


def _constants_only(**parts: Any) -> None:
    for name, value in parts.items():
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
        if any(isinstance(item, Value) for item in inside):
            raise placed("bad_value", f"{name} cannot hold a value to come; pass it by args={{...}}, or use a task")


def _ordered(builder: Builder, record: NodeRecord, *, barrier: bool) -> Node:
    if barrier:
        builder.barrier(record)
    return Node(record)


def _side(builder: Builder, record: NodeRecord, side: Any) -> tuple[list[NodeRecord], BranchSide]:
    outer = builder.scope
    scope = Scope(outer, record)
    if isinstance(side, Node) and not isinstance(side, BranchResult):
        target = side._tw_record()
        target.branches.append(record)
        scope.records.append(target)
        scope.inside.append(target)
        return scope.inside, BranchSide(builder, scope, side)
    if side is not None and (not callable(side) or isinstance(side, Value)):
        raise placed("bad_branch", f"a side of a branch is a function or a node, not {side!r}")
    builder.scope = scope
    try:
        result = side() if side is not None else None
    finally:
        builder.scope = outer
    return scope.inside, BranchSide(builder, scope, result)


def _settled(condition: Condition) -> Condition:
    for value in condition.values():
        value._tw_root  # noqa: B018 - the result of a branch gets its node here
    return condition


def _parts(message: Any) -> Sequence[Any]:
    return message if isinstance(message, list | tuple) else (message,)


def _message_parts(builder: Builder, part: Any) -> tuple[Any, ...]:
    if isinstance(part, Message):
        return part.parts
    if isinstance(part, Value):
        return (builder.whole(part),)
    if not isinstance(part, str | int | float):
        raise placed("bad_message", f"a message is made of texts and results, not of {part!r}; make the text in a task")
    return (str(part),)


def _timeout(builder: Builder, value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, Value | Condition):
        return {"timeout_from": builder.whole(value)}
    return {} if value is None else {"timeout_ms": at_place(duration, value, path=f"{what}.timeout", minimum_ms=1)}


def _base(name: str, kind: str) -> str:
    if not isinstance(name, str) or not name:
        raise placed(f"bad_{kind}", f"the name of the {kind} is missing: tw.{kind}('...')")
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)
    return safe.strip("_-") or kind
