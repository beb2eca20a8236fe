"""Random workflows of every kind of node, and the world around them: what tasks, people and callers answer.

A case is made from its seed alone. What a task returns depends on the seed, the run, the node, the child and the
attempt, and on nothing else, so an interpreter and the machine meet the same world in whatever order they go.
"""

import json
import re
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

TRIGGERS = ("all_succeeded", "all_done", "any_failed", "none_failed", "all_failed")
WORKING = ("task", "http", "shell", "send", "map", "repeat", "workflow")
EARLY = ("any_succeeded", "one_done")  # for nodes that read no parent: it may not have ended
FAR = True  # conditions and arguments read nodes that are not parents
LIVES = 3  # of a run that fails and is resolved
LARGE = "x" * 2_000  # in a value that is not inline
INPUTS = {name: {"type": "any", "required": False} for name in ("n", "items", "value", "time", "queue", "label")}
REPORT = {"report": {"type": "object", "required": False, "default": {}}}  # what a follow-up is given
LABEL = "blue"  # the one that the worker has
ERRORS = {"Oops": ("ValueError",), "ValueError": (), "TimeoutError": ("OSError",)}  # with more general types of each
POLICIES = {"leave_out": ("false", "skip_with_log"), "refuse": ("false", "fail"), "let": ("true", "fail")}
TIME = "inputs.time"
PASSED_ON = {"time": {"from": TIME}, "queue": {"from": "inputs.queue"}, "label": {"from": "inputs.label"}}
PAST = "2020-01-01T00:00:00Z"
FORM = {"n": {"type": "integer", "required": False, "default": 5}, "note": {"type": "any", "required": False}}
NOT_THERE = "nothing"  # what an event or approval answers that nobody answers


@dataclass
class Case:
    seed: int
    documents: list[dict[str, Any]] = field(default_factory=list)  # children first, the workflow that is run last
    inputs: dict[str, Any] = field(default_factory=dict)

    @property
    def workflow(self) -> str:
        name: str = self.documents[-1]["name"]
        return name

    def answer(self, *where: object) -> int:
        """A number that is the same whenever the same is asked."""
        return crc32(repr((self.seed, where)).encode()) // 7

    def attempt(self, run: str, node: str, child: int, attempt: int) -> tuple[str, Any]:
        """What an attempt of a task ends with: ("ok", value), ("error", type), ("permanent", type), ("skip", None)."""
        number = self.answer(run, node, child, attempt)
        if number % 100 < 17:
            return ("permanent" if number % 3 == 0 else "error"), list(ERRORS)[number // 300 % len(ERRORS)]
        if number % 100 < 22:
            return "skip", None
        return "ok", _value(number // 100)

    def event(self, run: str, node: str) -> Any:
        number = self.answer("event", run, node)
        return NOT_THERE if number % 4 == 0 else _value(number // 10, none=False)

    def approval(self, run: str, node: str) -> str:
        return ("approve", "approve", "reject", NOT_THERE)[self.answer("approval", run, node) % 4]

    def filled_in(self, run: str, node: str) -> dict[str, Any]:
        """The fields of a form that a person fills in."""
        number = self.answer("form", run, node)
        return ({}, {"n": number // 3 % 7}, {"n": number // 3 % 7, "note": [number // 3 % 7]})[number % 3]

    def decisions(self, run: str, phases: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
        """What a person decides about the nodes that failed, and the values of those that are accepted."""
        if self.answer("all again", run) % 3 == 0:
            return {}, {}
        branches = [node["id"] for node in self.documents[-1]["nodes"] if node["kind"] == "branch"]
        numbers = {node: self.answer("decision", run, node) for node, phase in phases.items() if phase == "failed"}
        decisions = {node: ("retry", "retry", "skip", "accept")[number % 4] for node, number in numbers.items()}
        decisions |= {node: "skip" for node in branches if decisions.get(node) == "accept"}
        accepted = [node for node, decision in decisions.items() if decision == "accept"]
        return decisions, {node: {"n": numbers[node] // 8 % 7} for node in accepted if numbers[node] // 4 % 2}

    def again_from(self, run: str) -> tuple[str, bool]:
        """The node from which an ended run is run again, or "", and whether all of it runs."""
        nodes = [node["id"] for node in self.documents[-1]["nodes"]]
        number = self.answer("again from", run)
        return ("", number % 8 == 0) if number % 2 else (nodes[number // 2 % len(nodes)], False)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, inputs {json.dumps(self.inputs)}"]
        for document in self.documents:
            lines.append(json.dumps({name: value for name, value in document.items() if name != "nodes"}))
            lines += [f"    {json.dumps(node)}" for node in document["nodes"]]
        return "\n".join(lines)


def _value(number: int, *, none: bool = True) -> Any:
    """A small value, a list, None, or a large one."""
    kinds = 9 if none else 7
    small = number // kinds % 7
    match number % kinds:
        case 0 | 1:
            return {"n": small, "ok": small > 3}
        case 2:
            return small
        case 3:
            return list(range(small))
        case 4:
            return {"n": small, "pad": LARGE}
        case 5:
            return [LARGE, *range(small)]
        case 6:
            return {"n": small, "deep": {"n": small}}
    return None


def make(seed: int) -> Case:
    rng = Random(seed)
    case = Case(seed)
    names = [f"leaf{seed}", f"middle{seed}"][: rng.choice((0, 1, 1, 2))]
    handler = f"handler{seed}"
    case.documents.append(_handler(handler, names[0] if names and rng.random() < 0.3 else ""))
    for level, name in enumerate(names):
        case.documents.append(_document(rng, name, rng.randint(1, 4), names[:level], handler))
        if rng.random() < 0.2:
            case.documents[-1]["inputs"] = INPUTS | {"n": {"type": "integer", "required": False}}
    case.documents.append(_document(rng, f"flow{seed}", rng.randint(1, 14), names, handler))
    large = {"n": rng.randint(0, 6), "pad": LARGE}
    case.inputs = {
        "n": rng.randint(0, 6),
        "items": [*rng.choice(([], [], [LARGE])), *range(rng.randint(0, 4))],
        "value": rng.choice((None, 3, {"n": rng.randint(0, 6)}, large)),
        "time": rng.choice(("30m", "PT30M", "30m", 7, "soon")),
        "queue": rng.choice(("default", None, "default", "nobody", 7)),
        "label": rng.choice((LABEL, LABEL, None, [LABEL])),
    }
    return case


def _handler(name: str, calls: str) -> dict[str, Any]:
    """Sometimes it calls what it is the handler of."""
    args: dict[str, Any] = {"report": {"from": "inputs.report"}}
    nodes: list[dict[str, Any]] = [{"kind": "task", "id": "v0", "handler": "work", "args": args, "needs": []}]
    if calls:
        args = {name: {"value": {"n": 2, "time": "30m"}.get(name)} for name in INPUTS}
        nodes.append({"kind": "workflow", "id": "v1", "workflow": calls, "args": args, "needs": []})
    return {"name": name, "inputs": REPORT, "nodes": nodes, "output": "none"}


def _document(rng: Random, name: str, size: int, children: list[str], handler: str) -> dict[str, Any]:
    maker = _Maker(rng, children)
    while len(maker.nodes) < size:
        maker.block([], 0)
    nodes = maker.nodes
    maker.tear_down()
    output = rng.choice(nodes)["id"]
    if rng.random() < 0.5:
        rng.shuffle(nodes)
    part = rng.choice(("", "", "", "", ".n", ".deep", ".0"))
    named = rng.choice((f"nodes.{output}{part}",) * 8 + ("none", "inputs.value.n"))
    made: dict[str, Any] = {"name": name, "inputs": INPUTS, "nodes": nodes, "output": named}
    if rng.random() < 0.1:
        del made["output"]
    if rng.random() < 0.15:
        made["policy"] = [rng.choice(("let", "let", "leave_out", "refuse"))]
    if rng.random() < 0.1:
        way = {"when": rng.choice(("inputs.n > 4", "inputs.value.n > 3", "inputs.n > 6")), "reason": "enough"}
        made["output"] = "none"
        made["exits"] = [{**way, "outcome": rng.choice(("completed", "completed", "cancelled"))}]
    for ending in ("on_failure", "on_success"):
        if rng.random() < 0.2:
            made[ending] = {"workflow": handler, "input": rng.choice(("report", "report", ""))}
    if rng.random() < 0.2:
        made["defaults"] = {"retry": {"attempts": 2, "delay": "1s"}}
    return made


class _Maker:
    def __init__(self, rng: Random, children: list[str]) -> None:
        self.rng = rng
        self.children = children
        self.nodes: list[dict[str, Any]] = []
        self.above: dict[str, set[str]] = {}  # all ancestors of each node
        self.plain: list[str] = []  # what may be needed by anybody: a branch only by those that it names

    def block(self, sides: list[dict[str, Any]], depth: int) -> list[str]:
        """A stretch of nodes. `sides`: the branches around it, each of which names all or some of them."""
        rng, made = self.rng, []
        for _ in range(rng.randint(1, 3)):
            if depth < 3 and rng.random() < 0.25:
                made += self.branch(sides, depth)
                continue
            made.append(self.node(sides, made))
        return made

    def node(self, sides: list[dict[str, Any]], block: list[str]) -> str:
        rng = self.rng
        found = self.kind()
        self.place(found, sides, block)
        if rng.random() < 0.15 and self.may_race(found):
            found = self.nodes[-1] = {"kind": "first", "id": found["id"], "needs": found["needs"]}
        if found["kind"] == "map":
            self.map(found)
        elif found["kind"] == "workflow":
            found["args"] = self.arguments(found, ())
        elif found["kind"] == "repeat":
            self.repeat(found)
        elif found["kind"] == "first":
            racers = [need for need in found["needs"] if need in self.plain]
            found["of"] = rng.sample(racers, rng.randint(2, len(racers)))
        elif found["kind"] == "task" and rng.random() < 0.3:
            found["args"] = self.arguments(found, ())
        elif found["kind"] == "wait" and rng.random() < 0.1:
            found.pop("duration", None)
            found.pop("duration_from", None)
            found["until"] = "inputs.value"  # which is no instant
        self.decorate(found)
        return found["id"]

    def place(self, found: dict[str, Any], sides: list[dict[str, Any]], block: list[str]) -> None:
        rng = self.rng
        found["id"] = f"v{len(self.nodes)}"
        needs = [side["id"] for side in sides[:-1] if rng.random() < 0.7]
        named = bool(sides) and (not block or rng.random() < 0.7)
        if named:
            needs.append(sides[-1]["id"])
        elif block:
            needs.append(rng.choice(block))
        count = rng.choice((0, 1, 1, 2, 3)) if self.plain else 0
        needs += rng.sample(self.plain, min(count, len(self.plain)))
        found["needs"] = list(dict.fromkeys(needs))
        for side in sides:
            if side["id"] in found["needs"]:
                lists = [*(one["to"] for one in side["cases"]), side["default"]]
                at = side["at"] if rng.random() < 0.9 else rng.randrange(len(lists))
                lists[at].append(found["id"])
        above = set(found["needs"]).union(*(self.above[need] for need in found["needs"]))
        self.above[found["id"]] = above
        self.nodes.append(found)
        if found["kind"] != "branch":
            self.plain.append(found["id"])

    def may_race(self, found: dict[str, Any]) -> bool:
        """A node with two parents that are no branches."""
        return len([need for need in found["needs"] if need in self.plain]) > 1

    def branch(self, sides: list[dict[str, Any]], depth: int) -> list[str]:
        rng = self.rng
        found: dict[str, Any] = {"kind": "branch", "cases": [], "default": []}
        self.place(found, sides, [])
        found["cases"] = [{"when": self.condition(found), "to": []} for _ in range(rng.choice((1, 1, 1, 2)))]
        self.decorate(found)
        made: list[str] = []
        for at in range(len(found["cases"]) + 1):
            if rng.random() < 0.85:
                found["at"] = at
                made += self.block([*sides, found], depth + 1)
        found.pop("at", None)
        return made

    def decorate(self, found: dict[str, Any]) -> None:
        rng = self.rng
        if rng.random() < 0.35 and found["kind"] != "first":
            text = json.dumps(found).replace('\\"', '"')
            reads = any(re.search(rf'\.{need}\b|"v" \+ "{need[1:]}"', text) for need in found["needs"])
            found["trigger"] = rng.choice(TRIGGERS if reads else (*TRIGGERS, *EARLY))
        if rng.random() < 0.3:
            found["when"] = self.condition(found)
        if rng.random() < 0.07:
            found["policy"] = [rng.choice(list(POLICIES))]

    def tear_down(self) -> None:
        """Some nodes are teardowns of one that they need, in the same sides of the same branches."""
        rng = self.rng
        branches = [node for node in self.nodes if node["kind"] == "branch"]
        sides = [side for one in branches for side in (*(case["to"] for case in one["cases"]), one["default"])]
        raced = {name for node in self.nodes if node["kind"] == "first" for name in node["of"]}
        for node in self.nodes:
            setups = [
                need for need in node["needs"]
                if need in self.plain and all((node["id"] in side) == (need in side) for side in sides)
            ]  # fmt: skip
            fits = node["kind"] in WORKING and node["id"] not in raced and "trigger" not in node
            if setups and fits and rng.random() < 0.25:
                node["teardown"] = {"of": rng.choice(setups), **rng.choice(({}, {"fail": True}))}

    def kind(self) -> dict[str, Any]:
        rng = self.rng
        roll = rng.random()
        if roll < 0.5:
            return self.work()
        if roll < 0.57:
            return {"kind": "wait", **rng.choice((*[{"duration": "1h"}] * 2, {"until": PAST}, {"duration_from": TIME}))}
        if roll < 0.65:
            return {"kind": "event", "event": f"e{len(self.nodes)}", **self.patience()}
        if roll < 0.73:
            form = rng.choice(({}, {}, {"fields": FORM}, {"fields": FORM, "default": {"n": 2}}))
            return {"kind": "approval", **self.patience(), **form}
        if roll < 0.85:
            most = rng.choice(
                ({}, {"max_parallel": 1}, {"max_parallel_from": rng.choice(("inputs.n", "inputs.value"))})
            )
            return {"kind": "map", "over": "", "body": self.body(), **most}
        if roll < 0.93 or not self.children:
            body = self.body()
            until = rng.choice(("last.n > 3", "iteration >= 2", "true", "false", "inputs.n > 2", "last == null"))
            extra = {"delay": "10s"} if rng.random() < 0.3 else {}
            ends = {"max_iterations": rng.randint(1, 4), "on_max": rng.choice(("fail", "continue"))}
            ends |= rng.choice(({}, {}, {"tolerate": 1}, {"tolerate": 2, "timeout": "9000h"}))
            return {"kind": "repeat", "until": until, "body": body, **ends, **extra}
        leave = rng.choice(({}, {}, {"on_cancel": "abandon"}))
        return {"kind": "workflow", "workflow": rng.choice(self.children), **self.retry(), **leave}

    def work(self) -> dict[str, Any]:
        return {
            **self.rng.choice(
                (
                    {"kind": "task", "handler": "work"},
                    {"kind": "task", "handler": "work"},
                    {"kind": "http", "url": "https://example.org/x"},
                    {"kind": "shell", "argv": ["true"]},
                    {"kind": "send", "channel": "mail", "action": {}},
                )
            ),
            **self.retry(),
            **({"queue_from": "inputs.queue"} if self.rng.random() < 0.1 else {}),
            **({"labels_from": {"colour": "inputs.label"}} if self.rng.random() < 0.1 else {}),
        }

    def body(self) -> dict[str, Any]:
        rng = self.rng
        if self.children and rng.random() < 0.3:
            args = {
                "n": rng.choice(({"value": 2}, {"from": "inputs.n"})),
                "value": {"from": "inputs.value"},
                **PASSED_ON,
            }
            return {"kind": "workflow", "workflow": rng.choice(self.children), "args": args}
        return self.work()

    def patience(self) -> dict[str, Any]:
        limit = self.rng.choice(({"timeout": "45m"}, {"timeout": "45m"}, {"timeout_from": TIME}))
        return {**limit, "on_timeout": self.rng.choice(("fail", "continue"))}

    def retry(self) -> dict[str, Any]:
        rng = self.rng
        if rng.random() < 0.6:
            return {}
        made: dict[str, Any] = {"attempts": rng.randint(1, 3), "delay": "1s"}
        if rng.random() < 0.3:
            named = rng.sample(("ValueError", "OSError", "Oops", "ChildFailed", "*"), rng.randint(1, 2))
            made["rules"] = [{"error": name, "attempts": rng.randint(1, 4)} for name in named]
        return {"retry": made}

    def map(self, found: dict[str, Any]) -> None:
        found["tolerate"] = self.rng.choice((0, 0, 1, 2))
        sources = ["inputs.items", "inputs.items", "inputs.value", *(f"nodes.{name}" for name in self.values(found))]
        found["over"] = self.rng.choice(sources)
        found |= self.combined(sources)
        if found["body"]["kind"] == "workflow":
            found["body"]["args"]["n"] = {"from": self.rng.choice(("item", "index", "item.0"))}
        elif found["body"]["kind"] == "task":
            found["body"]["args"] = self.arguments(found, ("item", "item", "index"))

    def combined(self, sources: list[str]) -> dict[str, Any]:
        """Half of all maps go over one list."""
        rng = self.rng
        if rng.random() < 0.5:
            return {}
        how = rng.choice(("zip", "product", "entries"))
        if how == "entries":
            return {"combine": how}
        return {"combine": how, "others": rng.choices((*sources, "inputs.items"), k=rng.choice((1, 1, 2)))}

    def repeat(self, found: dict[str, Any]) -> None:
        if found["body"]["kind"] in ("workflow", "task") and self.rng.random() < 0.6:
            found["body"]["args"] = self.arguments(found, ("previous", "previous", "iteration"))

    def arguments(self, found: dict[str, Any], words: tuple[str, ...]) -> dict[str, Any]:
        sources = ["inputs.n", "inputs.value", *words, *(f"nodes.{name}" for name in self.values(found))]
        named = {name: {"from": self.rng.choice(sources)} for name in ("n", "value")}
        return {**named, **PASSED_ON, "items": {"value": [1, 2]}}

    def values(self, found: dict[str, Any]) -> list[str]:
        above = self.above[found["id"]] if FAR else found["needs"]
        running = found["needs"] if found.get("trigger") in EARLY else found.get("of", ())
        return sorted(name for name in above if name in self.plain and name not in running)

    def condition(self, found: dict[str, Any]) -> str:
        """Some are written so that only an evaluation can tell which node they read."""
        text = self.plain_condition(found)
        if self.rng.random() < 0.2:
            return re.sub(r"(results|outcome)\.v(\d+)", r'\1["v" + "\2"]', text)
        return text

    def plain_condition(self, found: dict[str, Any]) -> str:
        rng = self.rng
        above = self.values(found)
        roll = rng.random()
        if roll < 0.35 or not above:
            inputs = (
                f"inputs.n > {rng.randint(0, 6)}",
                f"inputs.n == {rng.randint(0, 6)}",
                'inputs.time != "30m"',
                "inputs.value == null",
                "inputs.value.n > 3",
            )
            return rng.choice(("true", "false", *inputs))
        name = rng.choice(above)
        if roll < 0.6:
            outcome = rng.choice(("succeeded", "not_taken", "failed", "blocked", "skipped", "cancelled"))
            return f'outcome.{name} {rng.choice(("==", "!="))} "{outcome}"'
        if roll < 0.7:
            return f"results.{name} == null"
        if roll < 0.75:
            return f"results.{name} == {rng.randint(0, 6)}"
        if roll < 0.83:
            return f"size(results.{name}) > {rng.randint(0, 4)}"
        return f"results.{name}.n > {rng.randint(0, 6)}"
