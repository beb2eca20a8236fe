"""From a task that the machine dispatched to the work that a worker is given.

What an attempt needs is collected from the state in the tick that dispatches it, because the state moves on before
the commit returns. Small values are spliced as bytes, without being read. What lies elsewhere is
loaded after that, and the work goes out a moment later.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.stable_hash import stable_hash
from tickwork.core.base.values import Ref, Value, pack
from tickwork.core.definition.input_fields import with_defaults
from tickwork.core.definition.model import Argument, Combine, MapNode, TaskNode, WorkflowNode, WorkNode
from tickwork.core.definition.plan import Plan, Step
from tickwork.core.state.effects import Dispatch, Effect
from tickwork.core.state.evaluation_context import reference, resolve, stored_value
from tickwork.core.state.history import WITHDRAWN, History, HistoryEntry
from tickwork.core.state.map_items import positions
from tickwork.core.state.messages import RunMessages
from tickwork.core.state.state import LogicalClock, Run, Task, retry_of
from tickwork.core.state.tables import BLOCK_BITS, NumberTable
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX, ArtifactArgument, AttemptJob, FunctionHistory, NodeSpec
from tickwork.protocol.worker_messages import HistoryEntry as OutcomeMessage
from tickwork.runtime.storage.payloads import INPUT_BYTES_MAX, NIL, PayloadStore, list_head, map_head, walk

LISTS_KEPT_MAX = 256
HISTORY_INLINE_BYTES_MAX = 8 * 1024 * 1024  # of values that are stored apart, in one history for a worker
_raw_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.msgpack.Decoder(list[msgspec.Raw])


class ArgumentTemplate(msgspec.Struct, frozen=True):
    """One argument: where its value starts (`root`), and the way into it."""

    name: str
    head: bytes  # the name, packed
    root: str  # const, inputs, nodes, item, index, iteration, previous
    node: int = -1
    walk: tuple[str, ...] = ()
    constant: bytes = b""  # of a constant; of one input, its default; of all inputs, all defaults


class AssignmentTemplate(msgspec.Struct, frozen=True):
    """How to make the work of one step."""

    spec: NodeSpec
    head: bytes
    parts: tuple[ArgumentTemplate, ...]
    over: MapNode | None
    durable: bool = False


class ItemList(msgspec.Struct):
    """A list that a map goes over, or the object of its entries: `way` finds it in the value."""

    value: Value
    way: ArgumentTemplate | None


class ItemSource(msgspec.Struct):
    """One item of a map."""

    index: int
    combine: Combine
    lists: tuple[ItemList, ...]


class ArgumentSource(msgspec.Struct):
    """The value that a part starts from, as the state had it, or the item of a map."""

    part: ArgumentTemplate
    value: Value
    item: ItemSource | None = None


class Assignment(msgspec.Struct):
    """An attempt to be given to a worker, as far as the state tells."""

    worker: str
    task: int
    attempt: int
    recipe: AssignmentTemplate
    tenant: str
    run_id: str
    child: int
    checkpoint: Value
    scheduled_ms: int
    submitted_ms: int
    sources: list[ArgumentSource]
    history: "FunctionRecord | None" = None


class FunctionRecord(msgspec.Struct):
    """What was recorded of a function or of a task's steps when the attempt was dispatched."""

    started_ms: int
    base: int
    entries: tuple[HistoryEntry, ...]
    awaits: tuple[tuple[int, str, str, str], ...]
    versions: dict[str, int]
    open: tuple[str, ...] = ()
    published: tuple[tuple[str, str], ...] = ()
    cost: int = 0
    past: int = 0


ReadyAssignment = tuple[str, AttemptJob, NodeSpec]
"""An attempt that can be given as it is, and the worker that gets it."""


class BadArgument(Refused):
    """A reference leads nowhere, so this attempt or child run cannot begin."""

    def __init__(self, message: str) -> None:
        super().__init__("bad_reference", message)


class AssignmentBuilder:
    def __init__(self, payload_store: PayloadStore, clock: LogicalClock) -> None:
        self._payload_store = payload_store
        self._clock = clock
        self._recipes: dict[Step, AssignmentTemplate] = {}
        self._lists: OrderedDict[str, list[msgspec.Raw]] = OrderedDict()
        self._loading: dict[str, asyncio.Task[list[msgspec.Raw]]] = {}

    # ---- in the tick

    def orders(self, tasks: NumberTable[Task], effects: list[Effect]) -> "list[ReadyAssignment | Assignment]":
        """Return the assignments for workers, loading the values that they need."""
        recipes, blocks = self._recipes, tasks.blocks
        origin_ms, resolution_ms = self._clock.origin_ms, self._clock.resolution_ms  # no call for each task
        orders: list[ReadyAssignment | Assignment] = []
        for effect in effects:
            if type(effect) is not Dispatch:
                continue
            number = effect.task
            task = blocks[number >> BLOCK_BITS][number]
            run, worker = task.run, task.worker
            recipe = recipes.get(task.step) or self._learn(run.plan, task)
            if run.own is not None:
                recipe = _with_own_retry(recipe, task)
            if recipe.parts or task.checkpoint is not None or task.history is not None:
                orders.append(self.order(task))
                continue
            assert worker is not None
            spec, submitted_ms = recipe.spec, origin_ms + run.submitted * resolution_ms
            checkpoint = self._beginning(run) if recipe.durable else None
            work = AttemptJob(
                number, task.attempt, spec.id, run.tenant.id, run.id, recipe.head, task.child, checkpoint, (),
                run.scheduled_ms, submitted_ms,
            )  # fmt: skip
            orders.append((worker.id, work, spec))
        return orders

    def order(self, task: Task) -> Assignment:
        run = task.run
        recipe = self._recipes.get(task.step) or self._learn(run.plan, task)
        if run.own is not None:
            recipe = _with_own_retry(recipe, task)
        assert task.worker is not None
        checkpoint, history = task.checkpoint, task.history
        if history is None and recipe.durable:
            if checkpoint is None:
                checkpoint = self._beginning(run)
            else:
                history = History(self._clock.ms_of(run.started))
        return Assignment(
            task.worker.id,
            task.number,
            task.attempt,
            recipe,
            run.tenant.id,
            run.id,
            task.child,
            checkpoint,
            run.scheduled_ms,
            self._clock.ms_of(run.submitted),
            [_source(run, task, part, recipe.over, task.child) for part in recipe.parts] if recipe.parts else [],
            _record(history, run.messages) if history is not None else None,
        )

    def _beginning(self, run: Run) -> bytes:
        """The history of a function of which nothing is recorded yet. Its time begins as in each later attempt."""
        return msgspec.msgpack.encode(FunctionHistory(self._clock.ms_of(run.started)))

    def _learn(self, plan: Plan, task: Task) -> AssignmentTemplate:
        outer, node = plan.steps[task.step.index], task.step.node
        assert isinstance(node, WorkNode)
        over = outer.node if isinstance(outer.node, MapNode) else None
        parts = _parts(task.run, node.args)
        durable = task.step.durable
        recipe = AssignmentTemplate(_spec(plan, outer, task.step, node), map_head(len(parts)), parts, over, durable)
        self._recipes[task.step] = recipe
        return recipe

    def child_inputs(self, parent: Task, child: int) -> list[ArgumentSource]:
        """Where the inputs of a child run come from that were too large to travel with it."""
        outer = parent.step.node
        node = parent.step.body.node if parent.step.body is not None else outer
        assert isinstance(node, WorkflowNode)
        over = outer if isinstance(outer, MapNode) else None
        return [_source(parent.run, parent, part, over, child) for part in _parts(parent.run, node.args)]

    # ---- afterwards

    def at_once(self, order: Assignment) -> AttemptJob | None:
        """The work, where everything in it is at hand."""
        if order.history is not None:
            return None
        if not order.sources and order.checkpoint is None:
            return _work(order, order.recipe.head, (), None)
        pieces = [order.recipe.head]
        for source in order.sources:
            data = self._here(source)
            if data is None:
                return None
            pieces += (source.part.head, _finish(data, source.part))
        args = b"".join(pieces)
        checkpoint = None if order.checkpoint is None else self._payload_store.at_hand(order.checkpoint)
        if len(args) > VALUE_BYTES_MAX or (checkpoint is None and order.checkpoint is not None):
            return None
        return _work(order, args, (), checkpoint)

    async def later(self, order: Assignment) -> AttemptJob:
        """Return the work with its values loaded. The worker fetches large values itself."""
        args, fetch = await self.assemble(order.sources)
        checkpoint = order.checkpoint
        if order.history is None and isinstance(checkpoint, Ref) and checkpoint.place == "artifact":
            return _work(order, args, fetch, checkpoint)
        data = None if checkpoint is None else await self._payload_store.bytes_of(checkpoint)
        if order.history is not None:
            data = await self._history(order.history, data)
        return _work(order, args, fetch, data)

    async def _history(self, record: FunctionRecord, checkpoint: bytes | None) -> bytes:
        entries: list[OutcomeMessage] = []
        room = HISTORY_INLINE_BYTES_MAX
        for entry in record.entries:
            entries.append(await self._entry(entry, room))
            value = entries[-1].value
            if isinstance(entry.value, Ref) and isinstance(value, bytes):
                room -= len(value)
        history = FunctionHistory(
            record.started_ms, record.base, tuple(entries), record.awaits, record.versions, checkpoint,
            record.open, record.published, record.cost, record.past,
        )  # fmt: skip
        return msgspec.msgpack.encode(history)

    async def history_bytes(self, history: History) -> bytes:
        """A history as the next attempt of its function would get it, with all values in it."""
        record = _record(history, None)
        entries = [
            msgspec.structs.replace(entry, value=await self._payload_store.bytes_of(entry.value))
            if isinstance(entry.value, Ref)
            else entry
            for entry in record.entries
        ]
        return await self._history(msgspec.structs.replace(record, entries=tuple(entries)), None)

    async def _entry(self, entry: HistoryEntry, room: int) -> OutcomeMessage:
        return OutcomeMessage(
            entry.position,
            entry.kind,
            entry.name,
            entry.digest,
            await self._outcome(entry.value, room),
            entry.error,
            entry.message,
            entry.at_ms,
            entry.tries,
        )

    async def _outcome(self, value: Value, room: int) -> bytes | Ref | None:
        """A large value is fetched by the worker; so is a smaller one where others fill the `room` in the message."""
        if value is None or isinstance(value, bytes) or (isinstance(value, Ref) and value.place == "artifact"):
            return value
        data = await self._payload_store.bytes_of(value)
        if len(data) <= min(VALUE_BYTES_MAX, room):
            return data
        return Ref(await self._payload_store.as_artifact(data), len(data), None, "artifact")

    async def assemble(self, sources: list[ArgumentSource]) -> tuple[bytes, tuple[ArtifactArgument, ...]]:
        pieces, fetch, size, count = [b""], [], 0, 0
        for source in sources:
            part, value = source.part, source.value
            if source.item is None and part.root == "nodes" and isinstance(value, Ref) and value.place == "artifact":
                fetch.append(ArtifactArgument(part.name, value.digest, part.walk))
                continue
            data = _finish(await self._loaded(source), part)
            if size + len(data) > VALUE_BYTES_MAX:
                fetch.append(ArtifactArgument(part.name, await self._payload_store.as_artifact(data)))
                continue
            size, count = size + len(data), count + 1
            pieces += (part.head, data)
        pieces[0] = map_head(count)
        return b"".join(pieces), tuple(fetch)

    async def inputs(self, sources: list[ArgumentSource]) -> bytes:
        """All arguments of a child run as one value, which is what its own tasks and conditions read parts of."""
        pieces, size = [map_head(len(sources))], 0
        for source in sources:
            whole = source.item is None and source.part.root == "nodes" and not source.part.walk
            if whole and isinstance(source.value, Ref):
                _check_size(size + source.value.size)  # before it is loaded
            data = _finish(await self._loaded(source), source.part)
            pieces += (source.part.head, data)
            size += len(data)
            _check_size(size)
        return b"".join(pieces)

    # ---- single values

    def _here(self, source: ArgumentSource) -> bytes | None:
        if source.item is None:
            return self._payload_store.at_hand(source.value)
        lists = []
        for items in source.item.lists:
            pieces = self._pieces_here(items, source.item.combine)
            if pieces is None:
                return None
            lists.append(pieces)
        return _item(source.item, lists)

    def _pieces_here(self, items: ItemList, combine: Combine) -> list[msgspec.Raw] | None:
        pieces = self._lists.get(_list_name(items))
        if pieces is not None:
            return pieces
        data = self._payload_store.at_hand(items.value)
        return None if data is None else self._take_apart(data, items, combine)

    def _take_apart(self, data: bytes, items: ItemList, combine: Combine) -> list[msgspec.Raw]:
        """What a map goes over, item by item. A large list is taken apart once, not once per child."""
        if items.way is not None:
            data = _finish(data, items.way)
        try:
            pieces = _entries(data) if combine is Combine.ENTRIES else _raw_list.decode(data)
        except msgspec.DecodeError as error:
            what = "an object" if combine is Combine.ENTRIES else "a list"
            raise BadArgument(f"a map needs {what}: {error}") from None
        if name := _list_name(items):
            self._lists[name] = pieces
            while len(self._lists) > LISTS_KEPT_MAX:
                self._lists.popitem(last=False)
        return pieces

    async def _loaded(self, source: ArgumentSource) -> bytes:
        data = self._here(source)
        if data is not None:
            return data
        if source.item is None:
            return await self._payload_store.bytes_of(source.value)
        return _item(source.item, [await self._list(items, source.item.combine) for items in source.item.lists])

    async def _list(self, items: ItemList, combine: Combine) -> list[msgspec.Raw]:
        """The items of a list that is not at hand. A tick dispatches thousands of a map's children, and each comes here
        before the first has its list: one of them loads it for all."""
        pieces = self._pieces_here(items, combine)
        if pieces is not None:
            return pieces
        name = _list_name(items)
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.get_running_loop().create_task(self._load_list(items, combine))
            loading.add_done_callback(lambda _: self._loading.pop(name))
        return await asyncio.shield(loading)

    async def _load_list(self, items: ItemList, combine: Combine) -> list[msgspec.Raw]:
        return self._take_apart(await self._payload_store.bytes_of(items.value), items, combine)


def _entries(data: bytes) -> list[msgspec.Raw]:
    """Each entry of an object as [key, value], in the order in which the core has the keys."""
    return [msgspec.Raw(list_head(2) + pack(key) + value) for key, value in sorted(_raw_map.decode(data).items())]


def _item(item: ItemSource, lists: list[list[msgspec.Raw]]) -> bytes:
    where = positions(item.combine, item.index, [len(pieces) for pieces in lists])
    parts = [bytes(pieces[position]) for pieces, position in zip(lists, where, strict=True)]
    return b"".join([list_head(len(parts)), *parts]) if len(lists) > 1 else parts[0]


def _record(history: History, messages: RunMessages | None) -> FunctionRecord:
    """An attempt that is offered again does not know the outcomes that came since it was dispatched: these calls are
    without an outcome for it. Of what was given up meanwhile, the kind is not known any more."""
    messages = messages or RunMessages()
    awaits = {
        at: (pending.request.kind, pending.request.name, pending.request.digest)
        for at, pending in history.awaits.items()
    }
    for entry in history.arrived:
        if entry.position >= 0:
            kind = "" if entry.kind == WITHDRAWN else entry.kind
            awaits[entry.position] = (kind, entry.name, entry.digest)
    return FunctionRecord(
        history.started_ms,
        history.base,
        tuple(history.entries),
        tuple((at, *awaits[at]) for at in sorted(awaits)),
        dict(history.versions),
        tuple(update.update for update in messages.open),
        tuple((name, value.digest) for name, value in sorted(messages.published.items())),
        history.cost,
        history.past,
    )


def _check_size(size: int) -> None:
    if size > INPUT_BYTES_MAX:
        message = (
            f"inputs have at least {size} bytes, and a child run accepts at most {INPUT_BYTES_MAX} (16 MiB): a server "
            "compares them with their types and reads parts of them. Give the result to a task instead, or its name"
        )
        raise Refused("inputs_too_large", message, path="inputs")


def _list_name(items: ItemList) -> str:
    """What a list that is not inline is known by; "" for any other."""
    if not isinstance(items.value, Ref):
        return ""
    return "/".join((items.value.digest, *(items.way.walk if items.way is not None else ())))


def _work(
    order: Assignment, args: bytes, fetch: tuple[ArtifactArgument, ...], checkpoint: bytes | Ref | None
) -> AttemptJob:
    return AttemptJob(
        order.task,
        order.attempt,
        order.recipe.spec.id,
        order.tenant,
        order.run_id,
        args,
        order.child,
        checkpoint,
        fetch,
        order.scheduled_ms,
        order.submitted_ms,
    )


def _finish(data: bytes, part: ArgumentTemplate) -> bytes:
    if part.root == "inputs":
        return _input(data, part)
    return _walked(data, part.walk, part.name) if part.walk else data


def _input(data: bytes, part: ArgumentTemplate) -> bytes:
    given = _raw_map.decode(data) if data != NIL else {}
    if not part.walk:
        return msgspec.msgpack.encode(_raw_map.decode(part.constant) | given, order="sorted")
    given_value = given.get(part.walk[0])
    value = bytes(given_value) if given_value is not None else part.constant
    if not value:
        raise BadArgument(f"input {part.walk[0]!r} has neither a value nor a default")
    return _walked(value, part.walk[1:], part.name) if len(part.walk) > 1 else value


def _walked(data: bytes, steps: tuple[str, ...], name: str) -> bytes:
    try:
        return pack(walk(msgspec.msgpack.decode(data), steps))
    except LookupError as missing:
        raise BadArgument(f"argument {name!r}: there is no {missing.args[0]!r} in it") from None


def _parts(run: Run, args: Mapping[str, Argument]) -> tuple[ArgumentTemplate, ...]:
    return tuple(_part(run, name, argument) for name, argument in args.items())


def _part(run: Run, name: str, argument: Argument) -> ArgumentTemplate:
    head = pack(name)
    if argument.source is None:
        return ArgumentTemplate(name, head, "const", constant=pack(argument.value))
    ref = reference(run, argument.source)
    definition = run.plan.definition
    if ref.root == "inputs" and not ref.name:
        return ArgumentTemplate(name, head, "inputs", constant=pack(with_defaults(definition, {})))
    if ref.root == "inputs":
        default = definition.inputs[ref.name].default
        constant = b"" if default is msgspec.UNSET else pack(default)
        return ArgumentTemplate(name, head, "inputs", -1, (ref.name, *ref.walk), constant)
    return ArgumentTemplate(name, head, ref.root, run.plan.index.get(ref.name, -1), ref.walk)


def _source(run: Run, task: Task, part: ArgumentTemplate, over: MapNode | None, child: int) -> ArgumentSource:
    match part.root:
        case "inputs":
            return ArgumentSource(part, run.inputs)
        case "nodes":
            return ArgumentSource(part, (run.results or {}).get(part.node))
        case "const":
            return ArgumentSource(part, part.constant)
        case "index" | "iteration":
            return ArgumentSource(part, pack(child))
        case "previous":
            return ArgumentSource(part, _previous(task))
    assert over is not None, "only a map has items"
    lists = tuple(_item_list(run, source) for source in over.sources)
    return ArgumentSource(part, None, ItemSource(child, over.combine, lists))


def _item_list(run: Run, source: str) -> ItemList:
    ref = reference(run, source)
    stored = stored_value(run, ref)
    if ref.root == "nodes" and not ref.walk:
        return ItemList(stored, None)
    if isinstance(stored, Ref):
        return ItemList(stored, _part(run, "item", Argument(source=source)))
    return ItemList(pack(resolve(run, source)), None)


def _previous(task: Task) -> Value:
    fanning = (task.run.fanning or {}).get(task.step.index)
    return fanning.fan.last if fanning is not None and fanning.fan is not None else None


def _with_own_retry(template: AssignmentTemplate, task: Task) -> AssignmentTemplate:
    """The submission of its run may say how often its tasks are tried."""
    attempts, spec = retry_of(task).attempts, template.spec
    if attempts == spec.attempts_max:
        return template
    number = stable_hash("attempts", spec.id, attempts) >> 1
    spec = msgspec.structs.replace(spec, id=number, attempts_max=attempts)
    return AssignmentTemplate(spec, template.head, template.parts, template.over, template.durable)


def _spec(plan: Plan, outer: Step, step: Step, node: WorkNode) -> NodeSpec:
    kind = node.__struct_config__.tag
    assert isinstance(kind, str)
    handler, version = (node.handler, node.handler_version) if isinstance(node, TaskNode) else ("", "")
    return NodeSpec(
        # By content, not by a counter: a worker that outlives the server still means the same by it.
        id=stable_hash("spec", plan.hash, step.index, "node" if step is outer else "body") >> 1,
        kind=kind,
        workflow=plan.name,
        node=outer.id,
        definition=plan.hash,
        handler=handler,
        handler_version=version,
        attempts_max=step.retry.attempts,
        running_ms=step.timeout.running_ms or 0,
        silent_ms=step.timeout.silent_ms or 0,
        document=b"" if handler else msgspec.json.encode(node),
        budget=node.budget if isinstance(node, TaskNode) else 0,
    )
