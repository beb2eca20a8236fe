import asyncio
from types import ModuleType

import msgspec
import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused
from tickwork.core.definition.document import accept
from tickwork.core.definition.model import TaskNode
from tickwork.sdk.authoring.app_loader import app_of, app_with
from tickwork.sdk.authoring.durable import as_workflow


@tw.task
def double(number: int) -> int:
    return 2 * number


@tw.task
def unnamed(number: int) -> int:
    return number


@tw.workflow
def graph(number: int = 1) -> int:
    return double(number)


async def helper(ctx: tw.Durable) -> int:
    return await ctx.call(graph, number=3)


@tw.durable(schedule=tw.every("1h"), concurrency=(1, "number"), queue="slow", labels={"gpu": True}, timeout="2d")  # type: ignore[dict-item]
async def order(ctx: tw.Durable, number: int = 3, note: str | None = None) -> int:
    """Orders."""
    await helper(ctx)
    return await ctx.call(double, number)


def test_a_durable_function_is_a_workflow_with_one_node_of_the_same_name():
    definition = order.build()
    (node,) = definition.nodes

    assert isinstance(node, TaskNode)
    assert (definition.name, node.id, node.handler, node.durable) == ("order", "order", "order", True)
    assert sorted(definition.inputs) == ["note", "number"]
    assert {name: arg.source for name, arg in node.args.items()} == {"number": "inputs.number", "note": "inputs.note"}
    assert definition.description == "Orders."
    assert definition.defaults.queue == "slow"
    assert definition.timeout_ms == 2 * 86_400_000
    assert accept(order.document()).name == "order"
    assert [table.name for table in order.timetables()] == ["order"]


def test_the_handler_of_a_durable_function_is_asynchronous_and_takes_the_context_anywhere():
    @tw.durable
    async def last(number: int, ctx: "tw.Durable") -> int:
        return number + len(str(ctx))

    handler = app_with(last).handlers["last"]

    assert handler.durable
    assert handler.is_async
    assert handler.codec.context_name == "ctx"
    assert asyncio.run(handler.call(msgspec.msgpack.encode({"number": 2}), "abc")) == 5  # type: ignore[arg-type]


def test_an_application_with_a_durable_function_publishes_its_tasks():
    app = app_with(order)
    names = [msgspec.json.decode(document)["name"] for document in app.catalog().documents]

    assert names == ["order", "graph", "task.test_durable.double"]
    assert "test_durable.unnamed" not in app.handlers


def test_an_application_without_one_publishes_its_workflows_alone():
    app = app_with(graph)

    assert [msgspec.json.decode(document)["name"] for document in app.catalog().documents] == ["graph"]


def test_a_task_as_a_workflow_takes_its_arguments_as_inputs():
    workflow = as_workflow(double)
    definition = workflow.build()

    assert workflow.name == "task.test_durable.double"
    assert list(definition.inputs) == ["number"]
    assert definition.nodes[0].handler == "test_durable.double"  # type: ignore[union-attr]
    assert workflow.called((4,), {})[:2] == (workflow.name, {"number": 4})


def test_a_method_of_a_registered_object_runs_by_itself():
    class Loader:
        @tw.task
        def fetch(self, day: str) -> str:
            return day

    name, given, _ = tw.instance("loader", Loader()).fetch.called(("monday",), {})

    assert name.endswith("Loader.fetch.loader")
    assert given == {"day": "monday"}


def test_a_graph_calls_a_durable_function_as_a_child():
    @tw.workflow
    def parent(number: int) -> int:
        return order(number)

    (node,) = parent.build().nodes

    assert (node.workflow, [child.name for child in parent.children()]) == ("order", ["order"])  # type: ignore[union-attr]


def test_arguments_of_a_call_are_checked():
    with pytest.raises(Refused, match="number is declared as int"):
        double.called(("text",), {})
    with pytest.raises(Refused, match="no parameter 'other'"):
        order.called((), {"other": 1})


def test_a_synchronous_function_is_refused():
    with pytest.raises(Refused, match="not asynchronous") as refused:

        @tw.durable  # type: ignore[arg-type]
        def order(ctx: tw.Durable) -> None: ...

    assert "test_durable.py" in str(refused.value)


def test_a_durable_function_without_its_context_is_refused():
    with pytest.raises(Refused, match=r"takes no tw.Durable"):

        @tw.durable
        async def order(number: int) -> None: ...

    with pytest.raises(Refused, match=r"takes a tw.Context"):

        @tw.durable
        async def other(ctx: tw.Context) -> None: ...


def test_a_task_with_the_context_of_a_durable_function_is_refused():
    with pytest.raises(Refused, match=r"decorate it with @tw.durable"):

        @tw.task
        async def order(ctx: tw.Durable) -> None: ...


def test_an_asynchronous_workflow_names_the_way_out():
    with pytest.raises(Refused, match=r"make it a @tw.durable function"):

        @tw.workflow
        async def order() -> None: ...


@pytest.mark.parametrize("options", [{"policy": "p"}, {"retires": 3}, {"timeout": "soon"}])
def test_options_that_are_none_are_refused(options):
    with pytest.raises(Refused):
        tw.durable(**options)


def test_two_functions_of_one_name_are_refused():
    async def other(ctx: tw.Durable) -> None: ...

    module = ModuleType("twice")
    vars(module).update(first=order, second=tw.durable(name="order")(other))

    with pytest.raises(Refused, match="two workflows are named 'order'"):
        app_of(module)


def test_called_directly_it_says_where_it_runs():
    with pytest.raises(Refused, match="gets its inputs when it is submitted"):
        order(3)
