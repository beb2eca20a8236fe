"""The real machine with the real handlers of an application, on virtual time: what the SDK builds is run.

It stands where runtime and worker stand, in the smallest way: arguments are resolved from the definition,
results go back as the handlers' own encoding.
"""

from typing import Any

import msgspec

from driver import BY, Driver, T
from tickwork.core.base.values import Ref, pack
from tickwork.core.definition.model import MapNode, RepeatNode
from tickwork.core.definition.references import is_reference
from tickwork.core.state import inputs as inp
from tickwork.core.state.evaluation_context import reference, resolve
from tickwork.core.state.map_items import item_names, turn_names
from tickwork.sdk.authoring.app_loader import App
from tickwork.sdk.context import Context, running
from tickwork.sdk.values.signature_codec import encode, plain


class Engine:
    def __init__(self, app: App):
        self.driver = Driver()
        self.app = app
        self.order: list[str] = []
        self.children: dict[tuple[int, str], dict[int, Any]] = {}
        for document in app.catalog().documents:
            self.driver.expect(inp.PutDefinition(BY, T, document))

    def start(self, workflow: str, **inputs: Any) -> str:
        run_id = self.driver.submit(workflow, inputs=plain(inputs))
        self.work()
        return run_id

    def work(self) -> None:
        """Runs everything that is dispatched, until nothing is."""
        driver = self.driver
        while driver.running:
            attempt = driver.running.pop(min(driver.running))
            task = driver.state.tasks[attempt.task]
            run, node = task.run, task.run.plan.steps[task.step.index].node
            self.order.append(node.id)
            body = node.body if isinstance(node, MapNode | RepeatNode) else node
            raw = {name: self._argument(task, node, one) for name, one in body.args.items()}
            try:
                value = self._call(body, raw, run.id)
            except Exception as error:
                report = inp.Failed(attempt.task, attempt.attempt, type(error).__name__, str(error))
            else:
                if isinstance(node, MapNode):
                    self.children.setdefault((run.number, node.id), {})[task.child] = msgspec.msgpack.decode(value)
                report = inp.Succeeded(attempt.task, attempt.attempt, value)
            driver.send(report)
            driver.quiet()

    def _call(self, body: Any, raw: dict[str, Any], run_id: str) -> bytes:
        context = Context(run_id=run_id)
        with running(context):
            return encode(self.app.handlers[body.handler].call(pack(raw), context))

    def _argument(self, task: Any, node: Any, argument: Any) -> Any:
        if argument.source is None:
            return argument.value
        run, ref = task.run, reference(task.run, argument.source)
        if ref.root in ("item", "index", "iteration", "previous"):
            value = self._own(task, node)[ref.root]
        elif ref.root == "nodes" and isinstance((run.results or {}).get(run.plan.index[ref.name]), Ref):
            found = self.children[run.number, ref.name]
            value = [found[child] for child in sorted(found)]
        else:
            return resolve(run, argument.source)
        for step in ref.walk:
            value = value[int(step) if isinstance(value, list) else step]
        return value

    def _own(self, task: Any, node: Any) -> dict[str, Any]:
        run = task.run
        if isinstance(node, MapNode):
            ref = reference(run, node.over)
            if ref.root == "nodes" and isinstance((run.results or {}).get(run.plan.index[ref.name]), Ref):
                return {"index": task.child, "item": list(self.children[run.number, ref.name].values())[task.child]}
            return item_names(run, node, task.child)
        done = self.driver.state.tasks.get(run.number + run.plan.index[node.id])
        return turn_names(task.child, getattr(getattr(done, "fan", None), "last", None))

    def state(self, run_id: str) -> str:
        return self.driver.state_of(run_id)

    def output(self, run_id: str) -> Any:
        """By the definition's own words, from the record of a run that has ended."""
        record = self.driver.records[run_id]
        plan = self.driver.state.plans[record.definition]
        source = plan.definition.output
        assert source is not None and is_reference(source)
        name = source.split(".")[1]
        value = self.children.get((record.number, name))
        value = [value[child] for child in sorted(value)] if value else self.driver.result(run_id, name)
        for step in source.split(".")[2:]:
            value = value[int(step) if isinstance(value, list) else step]
        return value
