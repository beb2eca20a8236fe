"""A naive interpreter of workflows, written from the documented rules and from nothing of the core.

It walks a document and asks the world of `random_graphs` for every answer. No time, no order, no events: a node is
looked at when its parents are known, and what a run is in the end follows. Only who was first in a race depends on
time, and which child runs began before their inputs were compared: `Races` says it, and the rest follows from that.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from core.decide.random_graphs import ERRORS, LABEL, NOT_THERE, POLICIES, Case
from driver import BY

BAD = ("failed", "blocked", "cancelled")
GOOD = ("succeeded", "skipped")
WORK = ("task", "http", "shell", "send")


class NodeFailed(Exception):
    pass


class NodeSkipped(Exception):
    """Its task had nothing to do."""


class NotMade(NodeFailed):
    """The inputs of a child run could not be made."""


class NodeUntaken(Exception):
    """None of its racers was taken."""


class NodeBlocked(Exception):
    """Its winner failed."""


@dataclass
class Races:
    winners: dict[tuple[str, str], str] = field(default_factory=dict)  # by run and node
    lost: dict[str, set[str]] = field(default_factory=dict)  # the nodes that were cancelled, by run
    begun: set[str] = field(default_factory=set)  # every run that there was
    reports: dict[str, Any] = field(default_factory=dict)  # what each follow-up was given; only its words are new


@dataclass
class Ending:
    """How a run ended, with everything that was done for it."""

    inputs: dict[str, Any] | None  # None: they could not be made
    state: str = ""
    phases: dict[str, str] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    chosen: dict[str, list[str]] = field(default_factory=dict)  # the side that each branch took


class Interpreter:
    def __init__(self, case: Case, races: Races | None = None) -> None:
        self.case = case
        self.races = races or Races()
        self.documents = {document["name"]: document for document in case.documents}
        self.attempts: list[tuple[str, str, int, int]] = []  # run, node, child, attempt
        self.arguments: dict[tuple[str, str, int, int], dict[str, Any]] = {}  # of each attempt
        self.endings: dict[str, Ending] = {}

    def run(self, name: str, inputs: dict[str, Any], path: str, before: Ending | None = None) -> Ending:
        """To its end. `before`: what is left of an earlier life."""
        document = self.documents[name]
        ending = self.endings[path] = before or Ending(inputs)
        inputs = self.filled(document, inputs)
        if not self.leave_early(document, inputs, ending, path):
            self.walk(document, inputs, ending, path)
            ending.state = "FAILED" if failed_in(document, ending.phases) else "COMPLETED"
            if ending.state == "COMPLETED":
                self.put_out(document, inputs, ending)
        self.follow_up(document, ending, path)
        return ending

    @staticmethod
    def filled(document: dict[str, Any], inputs: dict[str, Any] | None) -> dict[str, Any]:
        defaults = {name: one["default"] for name, one in document["inputs"].items() if "default" in one}
        return defaults | (inputs or {})

    def walk(self, document: dict[str, Any], inputs: dict[str, Any], ending: Ending, path: str) -> None:
        left = [node for node in document["nodes"] if node["id"] not in ending.phases]
        walked = {node["id"] for node in left}
        while left:
            waiting = below(document, {one["id"] for one in left})
            node = next(one for one in left if one["id"] not in waiting)  # all above it is known
            left.remove(node)
            walk = Walk(self, document, node, inputs, ending, path, ending.chosen)
            ending.phases[node["id"]] = walk.phase()
        for node in walked & self.races.lost.get(path, set()):
            assert self.may_lose(document, ending, path, node), f"{node} of {path} was cancelled"

    def may_lose(self, document: dict[str, Any], ending: Ending, path: str, node: str) -> bool:
        """It lost a race, or leads to something that did."""
        lost = {
            racer
            for first in document["nodes"]
            if (winner := self.races.winners.get((path, first["id"]))) is not None
            for racer in first["of"]
            if racer != winner
        }
        cancelled = [one for one in document["nodes"] if ending.phases[one["id"]] == "cancelled"]
        while (
            more := {
                one["id"]
                for one in cancelled
                for other in cancelled
                if other["id"] in lost and (one["id"] in other["needs"] or reads(other, one["id"]))
            }
            - lost
        ):
            lost |= more
        return node in lost

    def leave_early(self, document: dict[str, Any], inputs: dict[str, Any], ending: Ending, path: str) -> bool:
        for way in document.get("exits", ()):
            try:
                if not Walk(self, document, {}, inputs, ending, path, {}).holds(way["when"]):
                    continue
                ending.state = way["outcome"].upper()
            except NodeFailed:
                ending.state = "FAILED"
            ending.phases = {node["id"]: "cancelled" for node in document["nodes"]} | ending.phases
            return True
        return False

    def follow_up(self, document: dict[str, Any], ending: Ending, path: str) -> None:
        """What its workflow starts when the run has ended. Nothing follows that, nor what it calls."""
        kind = {"FAILED": "on_failure", "COMPLETED": "on_success"}.get(ending.state)
        handler = document.get(kind)
        if handler is None or "!" in path:
            return
        given = None
        if handler["input"]:
            given = self.races.reports[f"{path}!"]
            report = given[handler["input"]]
            assert report["workflow"] == document["name"]
            assert ("cause" in report) is (ending.state == "FAILED")
            failed = [node["id"] for node in document["nodes"] if node["id"] in failed_in(document, ending.phases)]
            assert [one["node"] for one in report.get("nodes", ())] == failed[:10]
        self.run(handler["workflow"], given, f"{path}!")

    def resolve(self, name: str, path: str, decisions: dict[str, str], values: dict[str, Any]) -> Ending:
        """The same run again, after somebody decided about the nodes that failed."""
        document, old = self.documents[name], self.endings[path]
        phases = dict(old.phases)
        decisions = decisions or dict.fromkeys(failed_in(document, phases), "retry")
        lost = given_up(document, phases)
        again = {node for node, decision in decisions.items() if decision == "retry"}
        again |= {node for node in below(document, decisions) if phases[node] == "blocked"}
        out = left_out(document, phases)
        before: set[str] = set()
        while again != before:  # what is torn down again is set up again
            before = set(again)
            after = below(document, again)
            while raced := (
                (lost.running_again(again | after) | unsettled(document, phases, lost, again | after) - after) - again
            ):
                again |= raced
                after = below(document, again)
            again |= {node for node in after - set(decisions) if not out.get(node, set()) - again - after}
            again |= {
                node["teardown"]["of"] for node in document["nodes"] if "teardown" in node and node["id"] in again
            } - set(decisions)
        phases |= {node: "succeeded" if decision == "accept" else "skipped" for node, decision in decisions.items()}
        results = {node: value for node, value in (old.results | values).items() if node not in again}
        kept = {node: phase for node, phase in phases.items() if node not in again}
        chosen = {node: side for node, side in old.chosen.items() if node not in again}
        return self.run(name, old.inputs or {}, f"{path}'", Ending(old.inputs, "", kept, results, None, chosen))

    def rerun(self, name: str, path: str, new: str, from_node: str, whole: bool) -> Ending:
        """A new run with what may be kept of an ended one."""
        document, old = self.documents[name], self.endings[path]
        kept = set() if whole else self.kept(document, old.phases, from_node)
        if len(kept) == len(document["nodes"]):
            kept = set()
        results = {node: value for node, value in old.results.items() if node in kept}
        phases = {node: phase for node, phase in old.phases.items() if node in kept}
        chosen = {node: side for node, side in old.chosen.items() if node in kept}
        return self.run(name, old.inputs or {}, new, Ending(old.inputs, "", phases, results, None, chosen))

    @staticmethod
    def kept(document: dict[str, Any], phases: dict[str, str], from_node: str) -> set[str]:
        again = {from_node} | below(document, [from_node]) if from_node else set()
        out, lost = left_out(document, phases), given_up(document, phases)
        teardowns = {node["id"]: node["teardown"]["of"] for node in document["nodes"] if "teardown" in node}
        from_teardown = from_node in teardowns  # whoever asks for that wants no more
        while True:
            kept: set[str] = set()
            left = list(document["nodes"])
            while left:
                waiting = below(document, {one["id"] for one in left})
                node = next(one for one in left if one["id"] not in waiting)
                left.remove(node)
                name = node["id"]
                ended_well = phases[name] in ("succeeded", "skipped", "not_taken") or name in lost.all()
                ended_well = ended_well or is_warning(document, name, phases[name])
                if out.get(name, set()) & kept:
                    assert name != from_node, "the branch did not lead there"
                    kept.add(name)
                elif name not in again and ended_well and all(need in kept for need in node["needs"]):
                    kept.add(name)
            gone = {node["id"] for node in document["nodes"]} - kept
            undone = (lost.running_again(gone) | unsettled(document, phases, lost, gone)) & kept
            if not from_teardown:
                undone |= {setup for teardown, setup in teardowns.items() if teardown not in kept and setup in kept}
            if not undone:
                return kept
            again |= undone | below(document, undone)

    @staticmethod
    def put_out(document: dict[str, Any], inputs: dict[str, Any], ending: Ending) -> None:
        last = document["nodes"][-1]["id"]
        root, *steps = document.get("output", f"nodes.{last}").split(".")
        if root == "none":
            return
        try:
            if root == "inputs":
                ending.output = follow(inputs, steps)
            elif ending.phases[steps[0]] == "succeeded":
                ending.output = follow(ending.results.get(steps[0]), steps[1:])
        except NodeFailed:
            ending.state = "FAILED"


def failed_in(document: dict[str, Any], phases: dict[str, str]) -> list[str]:
    return [node for node, phase in phases.items() if phase == "failed" and not is_warning(document, node, phase)]


def is_warning(document: dict[str, Any], name: str, phase: str) -> bool:
    """The failure of a teardown that does not say that it makes its run fail."""
    node = next(one for one in document["nodes"] if one["id"] == name)
    return phase == "failed" and "teardown" in node and not node["teardown"].get("fail")


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
        if self.node["id"] in self.owner.races.lost.get(self.path, ()):
            return "cancelled"
        start = self.start()
        if start:
            return start
        node = self.node
        try:
            if not self.holds(node.get("when", "true")):
                return "not_taken"
            for policy in (*self.document.get("policy", ()), *node.get("policy", ())):
                allow, action = POLICIES[policy]
                if allow == "false":
                    return "skipped" if action == "skip_with_log" else "failed"
            value = self.carry_out()
        except NodeFailed:
            return "failed"
        except (NodeSkipped, NodeUntaken):
            return "not_taken"
        except NodeBlocked:
            return "blocked"
        if value is not None:
            self.ending.results[node["id"]] = value
        return "succeeded"

    def start(self) -> str:
        """Empty if it may start, else what becomes of it."""
        parents = {need: self.ending.phases[need] for need in self.node["needs"]}
        if "teardown" in self.node:  # its set-up is in the same sides of the same branches
            return "" if parents[self.node["teardown"]["of"]] == "succeeded" else "not_taken"
        kinds = {node["id"]: node["kind"] for node in self.document["nodes"]}
        branches = {need: phase for need, phase in parents.items() if kinds[need] == "branch"}
        for branch, phase in branches.items():
            if phase in ("not_taken", "skipped") or self.node["id"] not in self.chosen.get(branch, [self.node["id"]]):
                return "not_taken"
        if any(phase in BAD for phase in branches.values()):
            return "blocked"
        parents = {need: phase for need, phase in parents.items() if need not in self.node.get("of", ())}
        if not parents:
            return ""
        warnings = {need for need in parents if is_warning(self.document, need, parents[need])}
        parents |= dict.fromkeys(warnings, "succeeded")
        failed = any(phase in BAD for phase in parents.values())
        taken = any(phase in GOOD for phase in parents.values())
        match self.node.get("trigger", "all_succeeded"):
            case "all_done":
                return ""
            case "any_failed":
                return "" if failed else "not_taken"
            case "none_failed":
                return "blocked" if failed else ""
            case "any_succeeded" | "one_done" | "all_failed" as rule:
                return self.of_any(
                    rule, [parents[need] for need in parents if need not in branches] or list(parents.values())
                )
        return "blocked" if failed else "" if taken else "not_taken"

    @staticmethod
    def of_any(rule: str, parents: list[str]) -> str:
        """Rules that do not look at branches, unless there is nothing else."""
        good = any(phase in GOOD for phase in parents)
        bad = any(phase in BAD for phase in parents)
        if rule == "all_failed":
            return "" if bad and not good else "not_taken"
        if rule == "one_done":
            return "" if good or bad else "not_taken"
        return "" if good else "blocked" if bad else "not_taken"

    # ---- conditions

    def holds(self, text: str, **more: Any) -> bool:
        if text in ("true", "false"):
            return text == "true"
        text = re.sub(r'\["v" \+ "(\d+)"\]', r".v\1", text)
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
        if sign == "==":
            return type(value) is int and value == int(wanted)
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
        self.choose(node)
        if node["kind"] in WORK:
            return self.work(node, -1)
        doing: Any = getattr(self, node["kind"])
        return doing(node)

    def tries(self, node: dict[str, Any], error: str, bases: tuple[str, ...] = ()) -> int:
        """How many attempts there are in all, where one of them ends with this error."""
        retry = node.get("retry", self.document.get("defaults", {}).get("retry", {"attempts": 1}))
        names = (error, *bases, "*")
        rule = next((rule for rule in retry.get("rules", ()) if rule["error"] in names), retry)
        attempts: int = rule["attempts"]
        return attempts

    def choose(self, node: dict[str, Any]) -> None:
        """Values that stand for constants: they fit, or the node fails before anything of it begins."""
        work = node.get("body", node)
        queue = self.resolve(work["queue_from"], {}) if "queue_from" in work else None
        if queue not in (None, "default"):
            raise NodeFailed("no such queue")
        labels = [self.resolve(source, {}) for source in work.get("labels_from", {}).values()]
        if any(label not in (None, LABEL) for label in labels):
            raise NodeFailed("no name of a label")
        time = [self.resolve(node[name], {}) for name in ("timeout_from", "duration_from") if name in node]
        if any(one not in ("30m", "PT30M") for one in time):
            raise NodeFailed("no duration")
        most = self.resolve(node["max_parallel_from"], {}) if "max_parallel_from" in node else None
        if most is not None and (type(most) is not int or most < 1):
            raise NodeFailed("no number")

    def work(self, node: dict[str, Any], child: int, **more: Any) -> Any:
        attempt = 0
        while True:
            attempt += 1
            where = (self.path, self.node["id"], child, attempt)
            self.owner.attempts.append(where)
            self.owner.arguments[where] = self.arguments(node, more)
            how, value = self.owner.case.attempt(*where)
            if how == "ok":
                return value
            if how == "skip":
                raise NodeSkipped
            if how == "permanent" or attempt >= self.tries(node, value, ERRORS[value]):
                raise NodeFailed("no attempt succeeded")

    def child(self, node: dict[str, Any], child: int, time: int, **more: Any) -> Any:
        path = f"{self.path}/{self.node['id']}.{child}.{time}"
        document = self.owner.documents[node["workflow"]]
        try:
            inputs = self.arguments(node, more)
            fits = document["inputs"]["n"]["type"] == "any" or type(inputs["n"]) is int
            if not fits and path not in self.owner.races.begun:
                raise NodeFailed("n is no integer")
        except NodeFailed:
            if self.node["kind"] == "map":  # the run of this item fails before anything of it starts
                phases = {one["id"]: "cancelled" for one in document["nodes"]}
                ending = self.owner.endings[path] = Ending(None, "FAILED", phases)
                self.owner.follow_up(document, ending, path)
                raise
            raise NotMade("its inputs") from None
        if not fits:  # what is not inline is compared when the run has begun
            phases = {one["id"]: "cancelled" for one in document["nodes"]}
            ending = self.owner.endings[path] = Ending(inputs, "FAILED", phases)
            self.owner.follow_up(document, ending, path)
            raise NodeFailed("n is no integer")
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
        if answer == NOT_THERE:
            self.ran_out(node)
            return self.filled(node, node.get("default", {}), by="") if "fields" in node else None
        if "fields" not in node:
            return True
        return self.filled(node, self.owner.case.filled_in(self.path, node["id"]), by=BY)

    @staticmethod
    def filled(node: dict[str, Any], values: dict[str, Any], *, by: str) -> dict[str, Any]:
        defaults = {name: one.get("default") for name, one in node["fields"].items()}
        return {**defaults, **values, "by": by, "comment": ""}

    def ran_out(self, node: dict[str, Any]) -> None:
        if node["on_timeout"] == "fail":
            raise NodeFailed("nobody answered in time")

    def workflow(self, node: dict[str, Any]) -> Any:
        time = 0
        while True:
            time += 1
            try:
                return self.child(node, 0, time)
            except NotMade:
                raise
            except NodeFailed:
                if time >= self.tries(node, "ChildFailed"):
                    raise

    def first(self, node: dict[str, Any]) -> Any:
        phases = {name: self.ending.phases[name] for name in node["of"]}
        if set(phases.values()) == {"not_taken"}:
            raise NodeUntaken
        winner = self.owner.races.winners[self.path, node["id"]]
        assert phases[winner] != "not_taken"
        if phases[winner] in BAD:
            raise NodeBlocked
        return self.ending.results.get(winner)

    def items(self, node: dict[str, Any]) -> list[Any]:
        values = [self.resolve(source, {}) for source in (node["over"], *node.get("others", ()))]
        how = node.get("combine", "each")
        if how == "entries":
            if not isinstance(values[0], dict):
                raise NodeFailed("only an object has entries")
            return [[key, values[0][key]] for key in sorted(values[0])]
        if not all(isinstance(value, list) for value in values):
            raise NodeFailed("a map goes over lists")
        if how == "each":
            return list(values[0])
        if how == "zip":
            if len({len(value) for value in values}) > 1:
                raise NodeFailed("lists of different lengths")
            return [list(items) for items in zip(*values, strict=True)]
        combinations: list[list[Any]] = [[]]
        for value in values:
            combinations = [[*before, item] for before in combinations for item in value]
        return combinations

    def map(self, node: dict[str, Any]) -> Any:
        items = self.items(node)
        gathered: list[Any] = []
        failed = 0
        for index, item in enumerate(items):
            try:
                gathered.append(self.part(node["body"], index, item=item, index=index))
            except NodeSkipped:
                gathered.append(None)
            except NodeFailed:
                gathered.append(None)
                failed += 1
        if failed > node["tolerate"]:
            raise NodeFailed("too many children failed")
        if node.get("combine") == "entries":
            return {key: value for (key, _), value in zip(items, gathered, strict=True)}
        return gathered

    def repeat(self, node: dict[str, Any]) -> Any:
        last, failed = None, 0
        for turn in range(node["max_iterations"]):
            try:
                last = self.part(node["body"], turn, iteration=turn, previous=last)
            except NodeSkipped:
                last = None
            except NotMade:
                raise
            except NodeFailed:
                failed += 1
                if failed > node.get("tolerate", 0):
                    raise
                continue
            failed = 0
            if self.holds(node["until"], last=last, iteration=turn + 1):
                return last
        if node["on_max"] == "fail":
            raise NodeFailed("not enough")
        return last


def reads(node: dict[str, Any], other: str) -> bool:
    """Whether its text names the result or outcome of another node, or computes which one it reads."""
    text = json.dumps(node).replace('\\"', '"')
    return bool(re.search(rf'(nodes|results|outcome)\.{other}\b|\["v" \+', text))


@dataclass
class Lost:
    """The nodes that lost races, each with these, and those that led only to such nodes, each with these."""

    races: dict[str, set[str]]
    ways: dict[str, set[str]]

    def all(self) -> set[str]:
        return {*self.races, *self.ways}

    def running_again(self, again: set[str]) -> set[str]:
        """A race that stays decided keeps its losers; a way to several losers is needed for each of them."""
        losers = {node for node, races in self.races.items() if races <= again}
        return losers | {node for node, ends in self.ways.items() if ends & again}


def given_up(document: dict[str, Any], phases: dict[str, str]) -> Lost:
    nodes = document["nodes"]
    lost = Lost({}, {})
    for first in nodes:
        if first["kind"] == "first" and phases[first["id"]] in ("succeeded", "blocked"):
            for node in first["of"]:
                if phases[node] == "cancelled":
                    lost.races.setdefault(node, set()).add(first["id"])
    cut = {node["id"] for node in nodes if phases[node["id"]] == "cancelled"}
    ends = {node: {one["id"] for one in nodes if one["id"] in cut and leads_to(document, node, one)} for node in cut}
    while more := [node for node in cut - lost.all() if ends[node] and ends[node] <= lost.all()]:
        lost.ways |= {node: ends[node] for node in more}
    return lost


def unsettled(document: dict[str, Any], phases: dict[str, str], lost: Lost, again: set[str]) -> set[str]:
    """The branches around losers that run again, where nothing shows that they led to these."""
    found: set[str] = set()
    for branch in document["nodes"]:
        if branch["kind"] == "branch" and phases[branch["id"]] == "succeeded":
            sides = [*(case["to"] for case in branch["cases"]), branch["default"]]
            named = {node for side in sides for node in side}
            shown = {node for node in named if phases[node] != "not_taken"} - lost.all()
            possible = [set(side) for side in sides if shown <= set(side)]
            sure = set.intersection(*possible) if shown and possible else set()
            if named & lost.all() & again - sure:
                found.add(branch["id"])
    return found


def leads_to(document: dict[str, Any], node: str, other: dict[str, Any]) -> bool:
    """Whether another node needs this one, or comes after it and reads it."""
    return node in other["needs"] or (reads(other, node) and other["id"] in below(document, [node]))


def below(document: dict[str, Any], nodes: Iterable[str]) -> set[str]:
    """Everything that needs one of these, directly or not."""
    found: set[str] = set()
    todo = list(nodes)
    for node in todo:  # grows while it is walked
        more = [one["id"] for one in document["nodes"] if node in one["needs"] and one["id"] not in found]
        found.update(more)
        todo += more
    return found


def left_out(document: dict[str, Any], phases: dict[str, str]) -> dict[str, set[str]]:
    """The branches that left each node out. Where no node of any side was taken, the record does not say which side
    was, and all of them count as left out. What lost a race may have done so before the branch."""
    out: dict[str, set[str]] = {}
    lost = given_up(document, phases).all()
    for branch in document["nodes"]:
        if branch["kind"] == "branch" and phases[branch["id"]] == "succeeded":
            sides = [*(case["to"] for case in branch["cases"]), branch["default"]]
            named = {node for side in sides for node in side}
            taken = {node for node in named if phases[node] != "not_taken"} - lost
            possible = [side for side in sides if taken <= set(side)]
            for node in named:
                if phases[node] == "not_taken" and not (possible and all(node in side for side in possible)):
                    out.setdefault(node, set()).add(branch["id"])
    return out


def follow(value: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise NodeFailed(f"there is no {step}")
    return value
