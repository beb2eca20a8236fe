"""A naive interpreter of workflows, written from the documented rules and from nothing of the core.

It walks a document and asks the world of `random_graphs` for every answer. No time, no order, no events: a node is
looked at when its parents are known, and what a run is in the end follows.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from core.decide.random_graphs import NOT_THERE, POLICIES, Case

BAD = ("failed", "blocked")
WORK = ("task", "http", "shell", "send")


class NodeFailed(Exception):
    pass


@dataclass
class Ending:
    """How a run ended, with everything that was done for it."""

    inputs: dict[str, Any] | None  # None: they could not be made
    state: str = ""
    phases: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    output: Any = None


class Interpreter:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.documents = {document["name"]: document for document in case.documents}
        self.attempts: list[tuple[str, str, int, int]] = []  # run, node, child, attempt
        self.arguments: dict[tuple[str, str, int, int], dict[str, Any]] = {}  # of each attempt
        self.endings: dict[str, Ending] = {}

    def run(self, name: str, inputs: dict[str, Any], path: str) -> Ending:
        document = self.documents[name]
        ending = self.endings[path] = Ending(inputs)
        chosen: dict[str, list[str]] = {}  # of each branch that succeeded
        left = list(document["nodes"])
        while left:
            node = next(one for one in left if all(need in ending.phases for need in one["needs"]))
            left.remove(node)
            walk = Walk(self, document, node, inputs, ending, path, chosen)
            ending.phases[node["id"]] = walk.phase()
        ending.state = "FAILED" if "failed" in ending.phases.values() else "COMPLETED"
        if ending.state == "COMPLETED":
            self.put_out(document, ending)
        return ending

    @staticmethod
    def put_out(document: dict[str, Any], ending: Ending) -> None:
        name, *steps = document["output"].split(".")[1:]
        if ending.phases[name] != "succeeded":
            return
        try:
            ending.output = follow(ending.results.get(name), steps)
        except NodeFailed:
            ending.state = "FAILED"


@dataclass
class Walk:
    """One node of one run."""

    owner: Interpreter
    document: dict[str, Any]
    node: dict[str, Any]
    inputs: dict[str, Any]
    ending: Ending
    path: str
    chosen: dict[str, list[str]]

    def phase(self) -> str:
        start = self.start()
        if start:
            return start
        node = self.node
        try:
            if not self.holds(node.get("when", "true")):
                return "not_taken"
            for policy in node.get("policy", ()):
                allow, action = POLICIES[policy]
                if allow == "false":
                    return "skipped" if action == "skip_with_log" else "failed"
            value = self.carry_out()
        except NodeFailed:
            return "failed"
        if value is not None:
            self.ending.results[node["id"]] = value
        return "succeeded"

    def start(self) -> str:
        """Empty if it may start, else what becomes of it."""
        parents = {need: self.ending.phases[need] for need in self.node["needs"]}
        kinds = {node["id"]: node["kind"] for node in self.document["nodes"]}
        branches = {need: phase for need, phase in parents.items() if kinds[need] == "branch"}
        for branch, phase in branches.items():
            if phase in ("not_taken", "skipped") or self.node["id"] not in self.chosen.get(branch, [self.node["id"]]):
                return "not_taken"
        if any(phase in BAD for phase in branches.values()):
            return "blocked"
        if not parents:
            return ""
        failed = any(phase in BAD for phase in parents.values())
        taken = any(phase in ("succeeded", "skipped") for phase in parents.values())
        match self.node.get("trigger", "all_succeeded"):
            case "all_done":
                return ""
            case "any_failed":
                return "" if failed else "not_taken"
            case "none_failed":
                return "blocked" if failed else ""
        return "blocked" if failed else "" if taken else "not_taken"

    # ---- conditions

    def holds(self, text: str, **more: Any) -> bool:
        if text in ("true", "false"):
            return text == "true"
        pattern = r'(size\()?([a-z]+)((?:\.\w+)*)\)? (==|!=|>=|>) (null|\d+|"\w+")'
        found = re.fullmatch(pattern, text)
        assert found is not None, text
        sized, root, steps, sign, wanted = found.groups()
        value = self.read(root, steps.split(".")[1:], more)
        if sized:
            if not isinstance(value, list | dict | str):
                raise NodeFailed(f"{value!r} has no size")
            value = len(value)
        if wanted == "null":
            return value is None
        if wanted.startswith('"'):
            return (value == wanted.strip('"')) is (sign == "==")
        if not isinstance(value, int) or isinstance(value, bool):
            raise NodeFailed(f"{value!r} has no order")
        return value > int(wanted) if sign == ">" else value >= int(wanted)

    def read(self, root: str, steps: list[str], more: dict[str, Any]) -> Any:
        match root:
            case "inputs":
                value: Any = self.inputs
            case "outcome":
                value = self.ending.phases
            case "results":
                value, steps = self.ending.results.get(steps[0]), steps[1:]
            case _:
                value = more[root]
        return follow(value, steps)

    def resolve(self, source: str, more: dict[str, Any]) -> Any:
        root, *steps = source.split(".")
        return self.read("results" if root == "nodes" else root, steps, more)

    def arguments(self, node: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self.resolve(one["from"], more) if "from" in one else one["value"]
            for name, one in node.get("args", {}).items()
        }

    # ---- kinds

    def carry_out(self) -> Any:
        node = self.node
        if node["kind"] in WORK:
            return self.work(node, -1)
        doing: Any = getattr(self, node["kind"])
        return doing(node)

    def tries(self, node: dict[str, Any]) -> int:
        inherited = self.document.get("defaults", {}).get("retry", {"attempts": 1})
        attempts: int = node.get("retry", inherited)["attempts"]
        return attempts

    def work(self, node: dict[str, Any], child: int, **more: Any) -> Any:
        for attempt in range(1, self.tries(node) + 1):
            where = (self.path, self.node["id"], child, attempt)
            self.owner.attempts.append(where)
            self.owner.arguments[where] = self.arguments(node, more)
            how, value = self.owner.case.attempt(*where)
            if how == "ok":
                return value
            if how == "permanent":
                break
        raise NodeFailed("no attempt succeeded")

    def child(self, node: dict[str, Any], child: int, time: int, **more: Any) -> Any:
        path = f"{self.path}/{self.node['id']}.{child}.{time}"
        try:
            inputs = self.arguments(node, more)
        except NodeFailed:
            if self.node["kind"] == "map":  # the run of this item fails before anything of it starts
                phases = {one["id"]: "cancelled" for one in self.owner.documents[node["workflow"]]["nodes"]}
                self.owner.endings[path] = Ending(None, "FAILED", phases)
            raise
        ended = self.owner.run(node["workflow"], inputs, path)
        if ended.state != "COMPLETED":
            raise NodeFailed("its child failed")
        return ended.output

    def part(self, body: dict[str, Any], child: int, **more: Any) -> Any:
        """One child of a map, or one turn of a repeat."""
        return self.child(body, child, 1, **more) if body["kind"] == "workflow" else self.work(body, child, **more)

    def wait(self, node: dict[str, Any]) -> None:
        if node.get("until") == "inputs.value":
            raise NodeFailed("it is no instant")

    def branch(self, node: dict[str, Any]) -> None:
        taken = next((case["to"] for case in node["cases"] if self.holds(case["when"])), node["default"])
        self.chosen[node["id"]] = taken

    def event(self, node: dict[str, Any]) -> Any:
        payload = self.owner.case.event(self.path, node["id"])
        if payload != NOT_THERE:
            return payload
        return self.ran_out(node)

    def approval(self, node: dict[str, Any]) -> Any:
        answer = self.owner.case.approval(self.path, node["id"])
        if answer == "reject":
            raise NodeFailed("rejected")
        return self.ran_out(node) if answer == NOT_THERE else True

    def ran_out(self, node: dict[str, Any]) -> None:
        if node["on_timeout"] == "fail":
            raise NodeFailed("nobody answered in time")

    def workflow(self, node: dict[str, Any]) -> Any:
        for time in range(1, self.tries(node) + 1):
            try:
                return self.child(node, 0, time)
            except NodeFailed:
                continue
        raise NodeFailed("no child run completed")

    def map(self, node: dict[str, Any]) -> list[Any]:
        items = self.resolve(node["over"], {})
        if not isinstance(items, list):
            raise NodeFailed("a map goes over a list")
        gathered: list[Any] = []
        failed = 0
        for index, item in enumerate(items):
            try:
                gathered.append(self.part(node["body"], index, item=item, index=index))
            except NodeFailed:
                gathered.append(None)
                failed += 1
        if failed > node["tolerate"]:
            raise NodeFailed("too many children failed")
        return gathered

    def repeat(self, node: dict[str, Any]) -> Any:
        last = None
        for turn in range(node["max_iterations"]):
            last = self.part(node["body"], turn, iteration=turn, previous=last)
            if self.holds(node["until"], last=last, iteration=turn + 1):
                return last
        if node["on_max"] == "fail":
            raise NodeFailed("not enough")
        return last


def follow(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise NodeFailed(f"there is no {step}")
    return value
