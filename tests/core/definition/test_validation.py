"""What a definition may say: graph, branches, references, quantities, size."""

import time

import pytest

from core.definition.builders import body, branch, each, flow, found, task, until_done
from tickwork.core.definition.document import canonical, parse, validate
from tickwork.core.definition.validation import Limits


@pytest.mark.proves("B12")
@pytest.mark.parametrize(
    ("nodes", "problems"),
    [
        ([task("a")], []),
        ([task("a"), task("b")], []),  # two components
        ([task("a", needs=["a"])], [("nodes[0].needs[0]", "self_edge")]),
        ([task("a", needs=["x"])], [("nodes[0].needs[0]", "unknown_need")]),
        ([task("a"), task("b", needs=["a", "a"])], [("nodes[1].needs[1]", "duplicate_need")]),
        ([task("a"), task("a")], [("nodes[1].id", "duplicate_id")]),
        ([task("load"), task("Load")], [("nodes[1].id", "case_twin")]),
        ([task("")], [("nodes[0].id", "name_empty")]),
        ([task("run")], [("nodes[0].id", "name_reserved")]),
        ([task("a/b")], [("nodes[0].id", "name_characters")]),
    ],
)
def test_a_graph_must_be_whole(nodes, problems):
    assert found(flow(*nodes)) == problems


@pytest.mark.proves("B12")
def test_an_empty_graph_is_refused():
    assert found({"name": "flow", "nodes": []}) == [("nodes", "empty_graph")]


@pytest.mark.proves("B12", "S001-04")
@pytest.mark.parametrize(
    ("edges", "named"),
    [
        ("a:b b:a", "a -> b -> a"),
        ("a: b:a,d c:b d:c", "b -> c -> d -> b"),
        ("a:e b:a c:b d:c,b e:d", "a -> b -> d -> e -> a"),
        ("a:c b:a c:b x:y y:x", "x -> y -> x"),  # the shorter of two
        ("top: a:top,b b:a low:b", "a -> b -> a"),  # what leads in or out does not count
    ],
)
def test_the_shortest_cycle_is_named(edges, named):
    nodes = [
        task(name, needs=[need for need in needs.split(",") if need])
        for name, needs in (edge.split(":") for edge in edges.split())
    ]
    (problem,) = validate(parse(flow(*nodes)))

    assert problem.code == "cycle"
    assert f": {named};" in problem.message


@pytest.mark.proves("S001-05")
@pytest.mark.parametrize(
    ("nodes", "problems"),
    [
        ([branch(), task("yes", needs=["b"]), task("no", needs=["b"])], []),
        ([branch(default=[]), task("yes", needs=["b"])], []),  # nowhere, but said so
        ([branch(to=["nope"], default=[])], [("nodes[0].cases[0].to[0]", "unknown_target")]),
        ([branch(default=[]), task("yes")], [("nodes[0].cases[0].to[0]", "branch_target_not_downstream")]),
        ([branch(to=[], default=["no"]), task("no")], [("nodes[0].default[0]", "branch_target_not_downstream")]),
        (
            [branch(default=[]), task("yes", needs=["b"]), task("lost", needs=["b"])],
            [("nodes[2].needs[0]", "unreachable")],
        ),
        ([branch(cases=[], default=[])], [("nodes[0].cases", "branch_without_case")]),
        ([{"kind": "branch", "id": "b", "cases": []}], [("nodes[0].default", "branch_without_default")]),
    ],
)
def test_a_branch_names_exactly_the_nodes_that_wait_for_it(nodes, problems):
    assert found(flow(*nodes)) == problems


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("inputs", None),
        ("inputs.x", None),
        ("inputs.x.deep.0", None),
        ("inputs.dotted.name.y", None),
        ("nodes.up", None),
        ("nodes.far.result", None),
        ("nodes.a.b.c", None),  # the node `a.b`
        ("inputs.nope", "unknown_reference"),
        ("nodes.nope", "unknown_reference"),
        ("nodes.me", "reference_not_upstream"),
        ("nodes.beside", "reference_not_upstream"),
        ("nodes.below", "reference_not_upstream"),
        ("nodes.two.dots.x", "reference_ambiguous"),
        ("nodes", "reference_syntax"),
        ("", "reference_syntax"),
        ("up", "reference_syntax"),
        ("inputs..x", "reference_syntax"),
        ("inputs.x.", "reference_syntax"),
        ("inputs." + "x." * 40 + "x", "reference_syntax"),
        ("inputs." + "x" * 2_000, "reference_syntax"),
        ("run.id", "reference_syntax"),
        ("__class__", "reference_syntax"),
        ("item", "reference_scope"),
        ("index", "reference_scope"),
        ("iteration", "reference_scope"),
        ("previous.x", "reference_scope"),
    ],
)
def test_a_reference_names_something_that_is_known_by_then(source, code):
    document = flow(
        task("far"),
        task("a.b", needs=["far"]),
        task("two"),
        task("two.dots"),
        task("up", needs=["a.b", "two", "two.dots"]),
        task("beside"),
        task("me", needs=["up"], args={"v": {"from": source}}),
        task("below", needs=["me"]),
        inputs={"x": {}, "dotted.name": {}},
    )

    assert found(document) == ([] if code is None else [("nodes[6].args.v.from", code)])


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (each(body(a="item", b="index")), None),
        (each(body(a="previous")), (".body.args.a.from", "reference_scope")),
        (each(body(), over="item"), (".over", "reference_scope")),
        (each(body(), over="nodes.n"), (".over", "reference_not_upstream")),
        (each(body(), combine="zip"), (".others", "map_lists")),
        (each(body(), others=["inputs.x"]), (".others", "map_lists")),
        (each(body(), combine="entries", others=["inputs.x"]), (".others", "map_lists")),
        (each(body(), combine="product", others=["inputs.x"] * 16), (".others", "too_many")),
        (each(body(), combine="product", others=["nodes.n"]), (".others[0]", "reference_not_upstream")),
        (each(body(a="nodes.n")), (".body.args.a.from", "reference_not_upstream")),
        (each({**body(), "id": "k"}), (".body.id", "body_field")),
        (each({**body(), "needs": ["n"]}), (".body.needs", "body_field")),
        (each(body(), max_parallel=0), (".max_parallel", "out_of_range")),
        (each(body(), tolerate=-1), (".tolerate", "out_of_range")),
        (each({**body(), "retry": 0}), (".body.retry.attempts", "out_of_range")),
        (until_done(body(a="previous", b="iteration")), None),
        (until_done(body(a="item")), (".body.args.a.from", "reference_scope")),
        (until_done(body(), max_iterations=0), (".max_iterations", "out_of_range")),
        (until_done(body(), max_iterations=1_000_001), (".max_iterations", "out_of_range")),
        (until_done(body(), until="", max_iterations=1), (".until", "condition")),
        (until_done(body(), max_iterations=1, on_max="x"), (".on_max", "wrong_value")),
        ({"kind": "wait"}, ("", "wait_choice")),
        ({"kind": "wait", "duration": "1s", "until": "inputs.x"}, ("", "wait_choice")),
        ({"kind": "wait", "duration": "0s"}, (".duration_ms", "out_of_range")),
        ({"kind": "wait", "duration_ms": 10**18}, (".duration_ms", "out_of_range")),
        ({"kind": "wait", "until": "2026-01-02T03:04:05"}, (".until", "instant_zone")),
        ({"kind": "wait", "until": "nodes.x"}, (".until", "unknown_reference")),
        ({"kind": "event", "event": "e", "key": "'a'"}, (".key", "reference_syntax")),
        ({"kind": "event", "event": "e", "on_timeout": "explode"}, (".on_timeout", "wrong_value")),
        ({"kind": "event", "event": "e", "timeout": "0s"}, (".timeout_ms", "out_of_range")),
        ({"kind": "approval", "on_timeout": ""}, (".on_timeout", "wrong_value")),
        ({"kind": "approval", "fields": {"by": {}}}, (".fields.by", "wrong_value")),
        (
            {"kind": "approval", "fields": {"x": {"type": "texts"}}, "default": {"x": 1}},
            (".fields.x.type", "wrong_value"),
        ),
        (
            {"kind": "approval", "fields": {"x": {"type": "integer", "enum": ["1"]}}},
            (".fields.x.enum[0]", "wrong_type"),
        ),
        ({"kind": "approval", "fields": {"x": {}}, "default": {"y": 1}}, (".default.y", "unknown_field")),
        ({"kind": "approval", "fields": {"x": {"type": "string"}}, "default": {"x": 1}}, (".default.x", "wrong_type")),
        ({"kind": "approval", "approvers": ["a\nb"]}, (".approvers[0]", "text_characters")),
        ({"kind": "http", "url": "http://h", "method": "get"}, (".method", "wrong_value")),
        ({"kind": "http", "url": "ftp://h"}, (".url", "url")),
        ({"kind": "http", "url": "file:///etc/passwd"}, (".url", "url")),
        ({"kind": "http", "url": "http://"}, (".url", "url")),
        ({"kind": "http", "url": "http://a:b@h/"}, (".url", "url")),
        ({"kind": "http", "url": "http://[::1"}, (".url", "url")),
        ({"kind": "http", "url": "http://h:99999"}, (".url", "url")),
        ({"kind": "http", "url": "http://h:0"}, (".url", "url")),
        ({"kind": "http", "url": "http://h\\@other/"}, (".url", "url")),
        ({"kind": "http", "url": "http://h/a b"}, (".url", "url")),
        ({"kind": "http", "url": "http://h/\n"}, (".url", "url")),
        ({"kind": "http", "url": "http://h/é"}, (".url", "url")),
        ({"kind": "http", "url": "//h/"}, (".url", "url")),
        ({"kind": "http", "url": ""}, (".url", "url")),
        ({"kind": "http", "url": "http://h/" + "x" * 9_000}, (".url", "text_too_long")),
        ({"kind": "http", "url": "HTTPS://[::1]:8080/a(b)/c%20d;e?x=[1]&y='2'&e=a@b.org#frag~!$*+,"}, None),
        ({"kind": "http", "url": "http://h", "headers": {"a b": "c"}}, (".headers.a b", "header")),
        ({"kind": "http", "url": "http://h", "headers": {"a": "c\r\nd: e"}}, (".headers.a", "text_characters")),
        ({"kind": "http", "url": "http://h", "success": " "}, (".success", "condition")),
        ({"kind": "http", "url": "http://h", "body_limit": 0}, (".body_limit", "out_of_range")),
        ({"kind": "http", "url": "http://h", "body_limit": 1_000_001}, (".body_limit", "out_of_range")),
        ({"kind": "http", "url": "http://h", "body_limit": 1_000_000, "sign": "shop-key"}, None),
        ({"kind": "http", "url": "http://h", "sign": "../key"}, (".sign", "name_start")),
        ({"kind": "http", "url": "http://h", "sign": "secret:key"}, (".sign", "name_characters")),
        ({"kind": "shell", "argv": []}, (".argv", "argv_empty")),
        ({"kind": "shell", "argv": [""]}, (".argv", "argv_empty")),
        ({"kind": "shell", "argv": "rm -rf x"}, (".argv", "wrong_type")),
        ({"kind": "shell", "argv": ["a", 1]}, (".argv[1]", "wrong_type")),
        ({"kind": "shell", "argv": ["a"], "env": {"A=B": "c"}}, (".env.A=B", "name_characters")),
        ({"kind": "send", "channel": "../x", "action": {}}, (".channel", "name_start")),
        ({"kind": "workflow", "workflow": "a b"}, (".workflow", "name_characters")),
        ({"kind": "task", "handler": ""}, (".handler", "text_empty")),
    ],
)
def test_every_kind_of_node_has_its_own_rules(node, problem):
    problems = found(flow({"id": "n", **node}, inputs={"x": {}}))

    assert problems == ([] if problem is None else [(f"nodes[0]{problem[0]}", problem[1])])


@pytest.mark.proves("B13", "S001-06", "S001-07")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"retry": -1}, (".retry.attempts", "out_of_range")),
        ({"retry": 0}, (".retry.attempts", "out_of_range")),
        ({"retry": 10**9}, (".retry.attempts", "out_of_range")),
        ({"retry": {"factor": 0}}, (".retry.factor", "out_of_range")),
        ({"retry": {"factor": 11}}, (".retry.factor", "out_of_range")),
        ({"retry": {"jitter_percent": 101}}, (".retry.jitter_percent", "out_of_range")),
        ({"retry": {"delay_ms": -1}}, (".retry.delay_ms", "out_of_range")),
        ({"retry": {"rules": [{"error": "E", "attempts": 0}]}}, (".retry.rules[0].attempts", "out_of_range")),
        ({"retry": {"rules": [{"error": ""}]}}, (".retry.rules[0].error", "text_empty")),
        ({"timeout": {"running_ms": 0}}, (".timeout.running_ms", "out_of_range")),
        ({"timeout": {"queued": "0s"}}, (".timeout.queued_ms", "out_of_range")),
        ({"timeout": {"silent_ms": -5}}, (".timeout.silent_ms", "out_of_range")),
        ({"timeout": 0}, (".timeout", "duration_too_short")),
        ({"priority": -1}, (".priority", "out_of_range")),
        ({"priority": 10}, (".priority", "out_of_range")),
        ({"labels": {f"l{n}": "x" for n in range(65)}}, (".labels", "too_many")),
        ({"labels": {f"l{n}": "x" for n in range(10_000)}}, (".labels", "too_many")),
        ({"labels": {"a b": "x"}}, (".labels.a b", "name_characters")),
        ({"labels": {"a": "\n"}}, (".labels.a", "name_characters")),
        ({"resources": {"slots": 0}}, (".resources.slots", "out_of_range")),
        ({"resources": {"memory_mb": -1}}, (".resources.memory_mb", "out_of_range")),
        ({"resources": {"gpu": 2**63}}, (".resources.gpu", "out_of_range")),
        ({"cache": {"ttl": "0s"}}, (".cache.ttl_ms", "out_of_range")),
        ({"queue": "-q"}, (".queue", "name_start")),
        ({"trigger": "one_success"}, (".trigger", "wrong_value")),
        ({"when": ""}, (".when", "condition")),
        ({"when": "x" * 4_097}, (".when", "condition")),
        ({"args": {"a": {}}}, (".args.a", "argument_source")),
        ({"args": {"a": {"from": "inputs", "value": 1}}}, (".args.a", "argument_source")),
        ({"args": {"a": {"value": None}}}, None),
        ({"sla": {"warn": "2m", "breach": "1m"}}, (".sla.warn_ms", "out_of_range")),
        ({"sla": {"breach": "0s"}}, (".sla.breach_ms", "out_of_range")),
        ({"policy": ["a b"]}, (".policy[0]", "name_characters")),
    ],
)
def test_a_quantity_out_of_its_range_is_refused(fields, problem):
    assert found(flow(task(**fields))) == ([] if problem is None else [(f"nodes[0]{problem[0]}", problem[1])])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"format": 2}, ("format", "format_unknown")),
        ({"timeout": "0s"}, ("timeout_ms", "out_of_range")),
        ({"sla": {"warn": "1m", "breach": "1m"}}, ("sla.warn_ms", "out_of_range")),
        ({"concurrency": {"limit": 0}}, ("concurrency.limit", "out_of_range")),
        ({"exits": [{"when": "x", "outcome": "failed"}]}, ("exits[0].outcome", "wrong_value")),
        ({"exits": [{"when": ""}]}, ("exits[0].when", "condition")),
        ({"defaults": {"priority": 10}}, ("defaults.priority", "out_of_range")),
        ({"defaults": {"retry": 0}}, ("defaults.retry.attempts", "out_of_range")),
        ({"defaults": {"queue": ""}}, ("defaults.queue", "name_empty")),
        ({"output": "nodes.nope"}, ("output", "unknown_reference")),
        ({"output": "item"}, ("output", "reference_scope")),
        ({"policy": [""]}, ("policy[0]", "name_empty")),
        ({"name": "a/b"}, ("name", "name_characters")),
    ],
)
def test_the_workflow_itself_has_rules(fields, problem):
    assert found(flow(**{"output": "nodes.a", **fields})) == [problem]


@pytest.mark.proves("B13")
def test_every_condition_is_shown_to_whoever_understands_them():
    asked = []

    def refuse(text):
        asked.append(text)
        return "no loops here"

    document = flow(
        {**branch(default=[]), "cases": [{"when": "c1", "to": []}, {"when": "c2", "to": []}]},
        task(when="c3"),
        {"kind": "http", "id": "h", "url": "http://h", "success": "c4"},
        {"kind": "repeat", "id": "r", "until": "c5", "max_iterations": 1, "body": body()},
        exits=[{"when": "c6"}],
        concurrency={"limit": 1, "key": "c7"},
    )
    problems = validate(parse(document), check_condition=refuse)

    assert sorted(asked) == ["c1", "c2", "c3", "c4", "c5", "c6", "c7"]
    assert {problem.message for problem in problems} == {"no loops here"}
    assert len(problems) == 7


def chain(size):
    return [task(f"n{number}", needs=[f"n{number - 1}"] if number else []) for number in range(size)]


@pytest.mark.proves("B12")
def test_a_cycle_of_ten_thousand_is_named_in_a_short_message():
    nodes = chain(10_000)
    nodes[0]["needs"] = ["n9999"]
    (problem,) = validate(parse(flow(*nodes)))

    assert problem.code == "cycle"
    assert problem.message.startswith("these nodes wait for each other: n0 -> n1 -> n2 -> ")
    assert "(9981 more) -> n0" in problem.message
    assert len(problem.message) < 500


@pytest.mark.proves("B12")
def test_a_chain_of_fifty_thousand_needs_no_recursion():
    nodes = chain(50_000)
    nodes[-1]["args"] = {"first": {"from": "nodes.n0"}}

    assert found(flow(*nodes)) == []


@pytest.mark.proves("B12")
def test_more_nodes_or_edges_than_the_limits_are_refused():
    wide = [task("a"), task("b"), task("c", needs=["a", "b"])]

    assert found(flow(*wide), limits=Limits(nodes=2)) == [("nodes", "too_many")]
    assert found(flow(*wide), limits=Limits(edges=1)) == [("nodes", "too_many")]
    assert found(flow(*wide), limits=Limits(nodes=3, edges=2)) == []


@pytest.mark.slow
@pytest.mark.proves("B12")
@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(lambda: chain(100_000), id="a chain of 100,000"),
        pytest.param(lambda: [task("n0"), *(task(f"n{n}", needs=["n0"]) for n in range(1, 100_000))], id="a fan-out"),
        pytest.param(
            lambda: [task(f"n{n}", needs=[f"n{p}" for p in range(max(0, n - 10), n)]) for n in range(100_000)],
            id="a million edges",
        ),
        pytest.param(
            lambda: [
                node | {"args": {"x": {"from": f"nodes.n{number // 2}"}}} if number else node
                for number, node in enumerate(chain(100_000))
            ],
            id="100,000 references far up",
        ),
    ],
)
def test_the_largest_graphs_are_checked_in_seconds(nodes):
    document = flow(*nodes())
    started = time.process_time()
    definition = parse(document)
    problems = validate(definition)
    spent_s = time.process_time() - started

    assert problems == []
    assert spent_s < 30  # a search per node would take an hour


@pytest.mark.slow
@pytest.mark.proves("B12")
def test_the_canonical_form_of_the_longest_chain_is_the_same_document():
    definition = parse(flow(*chain(100_000)))

    assert parse(canonical(definition)) == definition


@pytest.mark.slow
@pytest.mark.proves("B12")
def test_one_node_or_edge_too_many_is_refused():
    many = [task(f"n{number}") for number in range(100_001)]
    dense = [task(f"n{n}", needs=[f"n{p}" for p in range(n)]) for n in range(1_415)]  # 1,000,405 edges

    assert found(flow(*many)) == [("nodes", "too_many")]
    assert found(flow(*dense)) == [("nodes", "too_many")]
