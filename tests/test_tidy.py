"""What a machine can check about the source, so that nobody has to remember it.

Each rule is a function from a syntax tree to complaints, and each has planted examples
that it must catch: a check that cannot fail is worth nothing.
"""

import ast
import enum
import importlib
import itertools
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Generic, Protocol

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tickwork"
MODULES = sorted(SOURCE.rglob("*.py"))
PURE = [path for path in MODULES if path.relative_to(SOURCE).parts[0] in ("core", "journal")]

PURE_IMPORTS = frozenset(
    ["abc", "bisect", "cel_expr_python", "cel_expr_python.ext.ext_optional",
     "cel_expr_python.ext.ext_strings", "collections", "collections.abc", "dataclasses", "datetime", "enum",
     "functools", "hashlib", "heapq", "itertools", "json", "msgspec", "operator", "re",
     "struct", "types", "typing", "zlib"]
)  # fmt: skip
PURE_CALLS = frozenset(["open", "print", "input", "eval", "exec", "hash", "id", "__import__", "compile", "globals"])
CLOCK_READS = frozenset(["now", "today", "utcnow"])
UNSAFE_MODULES = frozenset(["pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"])
UNSAFE_CALLS = frozenset(["eval", "exec", "__import__"])
UNSAFE_METHODS = frozenset([("yaml", "load"), ("importlib", "import_module"), ("os", "system")])
CONSUMERS = frozenset(["list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "reversed", "dict"])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Rules


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def impure_imports(tree: ast.AST, *, layer: str) -> list[str]:
    own = ("tickwork.core",) if layer == "core" else ("tickwork.core", "tickwork.journal")
    return [
        f"line {line}: imports {module}"
        for line, module in imports(tree)
        if module not in PURE_IMPORTS and not any(f"{module}.".startswith(f"{name}.") for name in own)
    ]


def impure_deeds(tree: ast.AST) -> list[str]:
    return [f"line {node.lineno}: {deed}" for node in ast.walk(tree) for deed in _deeds(node)]


def _deeds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in PURE_CALLS:
            yield f"calls {name}"
        case ast.Attribute(attr=name) if name in CLOCK_READS:
            yield f"reads the clock by .{name}"
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            yield "is asynchronous"
        case ast.Global():
            yield "uses global"


def unsafe_code(tree: ast.AST) -> list[str]:
    found = [f"line {line}: imports {name}" for line, name in imports(tree) if name.split(".")[0] in UNSAFE_MODULES]
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_CALLS:
                found.append(f"line {node.lineno}: calls {name}")
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in UNSAFE_METHODS:
                found.append(f"line {node.lineno}: uses {module}.{name}")
    return found


def set_iterations(tree: ast.Module) -> list[str]:
    """Places where the order of a set would leak out. A set is known by its form, or by the
    annotation or assignment of its name in the same function, class or module."""
    return sorted({f"line {line}: goes over a set" for line in _set_lines(tree, frozenset())})


def _set_lines(scope: ast.AST, outer: frozenset[str]) -> Iterator[int]:
    nodes = list(_inside(scope))
    # A class's names are read as self.name in its methods, so they are handed down like any other.
    outer = outer - _arguments(scope) | _arguments(scope, sets=True)
    names = outer | {name for node in nodes for name in _set_names(node, outer)}
    for node in nodes:
        yield from (place.lineno for place in _iterated(node) if _is_set(place, names))
        if _opens_scope(node):
            yield from _set_lines(node, names)


def _opens_scope(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        yield child
        if not _opens_scope(child):
            yield from _inside(child)


def _set_names(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets, value=value) if _is_set(value, known):
            yield from (name for target in targets if (name := _name(target)))
        case ast.AnnAssign(target=target, annotation=annotation) if _is_set_type(annotation) and (
            name := _name(target)
        ):
            yield name
        case ast.NamedExpr(target=ast.Name(id=name), value=value) if _is_set(value, known):
            yield name


def _arguments(scope: ast.AST, *, sets: bool = False) -> set[str]:
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return set()
    every = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
    return {one.arg for one in every if not sets or (one.annotation and _is_set_type(one.annotation))}


def _name(node: ast.AST) -> str:
    """`x`, or `x` of `self.x`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _is_set_type(annotation: ast.AST) -> bool:
    names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    return bool(names) and names[0] in ("set", "frozenset", "Set", "AbstractSet", "MutableSet")


def _is_set(node: ast.AST, names: frozenset[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, names) or _is_set(right, names)
        case ast.Call(func=ast.Attribute(attr="union" | "intersection" | "difference" | "copy", value=value)):
            return _is_set(value, names)
    return _name(node) in names


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.For(iter=place) | ast.Starred(value=place) | ast.YieldFrom(value=place):
            yield place
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
            yield from (generator.iter for generator in node.generators)
        case ast.Call(func=ast.Name(id=name), args=args) if name in CONSUMERS:
            yield from args
        case ast.Call(func=ast.Attribute(attr="join" | "extend"), args=args):
            yield from args
        case ast.Call(func=ast.Attribute(attr="pop", value=place), args=[]):
            yield place


def order_free(tree: ast.AST) -> ast.AST:
    """The tree without what gives the same answer in any order: sorted(...), len(...), any(...), sets from sets."""
    return _OrderFree().visit(tree)


class _OrderFree(ast.NodeTransformer):
    FREE = frozenset(["sorted", "len", "any", "all", "min", "max", "set", "frozenset"])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in self.FREE:
            node.args = [_set_like(argument) for argument in node.args]
        return self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        node.elts = [item.value if isinstance(item, ast.Starred) else item for item in node.elts]
        return self.generic_visit(node)


def _set_like(argument: ast.expr) -> ast.expr:
    if isinstance(argument, ast.GeneratorExp | ast.ListComp):
        return ast.copy_location(ast.SetComp(elt=argument.elt, generators=argument.generators), argument)
    return argument


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def check(rule, paths: list[Path]) -> list[str]:
    return [f"{name_of(path)} {complaint}" for path in paths for complaint in rule(tree_of(path))]


# The source keeps the rules


@pytest.mark.proves("P20")
@pytest.mark.parametrize("layer", ["core", "journal"])
def test_the_pure_layers_import_only_pure_modules(layer):
    paths = [path for path in PURE if path.relative_to(SOURCE).parts[0] == layer]

    assert len(paths) > 5
    assert check(lambda tree: impure_imports(tree, layer=layer), paths) == []


@pytest.mark.proves("P20")
def test_the_pure_layers_do_nothing_but_compute():
    assert check(impure_deeds, PURE) == []


@pytest.mark.proves("P20")
def test_the_pure_layers_never_go_over_a_set():
    found = {name_of(path): set_iterations(order_free(ast.parse(path.read_text()))) for path in PURE}

    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.proves("S1")
def test_no_stored_data_can_become_code():
    assert check(unsafe_code, MODULES) == []


def imports_of_tests(tree: ast.AST) -> list[str]:
    """Tests have `tests/` on their path, and users do not."""
    own = {path.stem for path in (ROOT / "tests").iterdir()}
    return [f"line {line}: imports {module}" for line, module in imports(tree) if module.split(".")[0] in own]


def test_the_package_imports_nothing_of_its_tests():
    assert check(imports_of_tests, MODULES) == []


@pytest.mark.parametrize("text", ["from sim.links import SimLink", "import driver"])
def test_a_planted_import_of_tests_is_found(text):
    assert imports_of_tests(ast.parse(text))


def test_every_module_says_what_it_is_for():
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def public_names(tree: ast.Module) -> list[str]:
    """What `__all__` lists."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
    raise AssertionError("nothing says which names are public")


def unsorted_names(tree: ast.Module) -> list[str]:
    return [f"lists {name} after {before}" for before, name in itertools.pairwise(public_names(tree)) if name <= before]


@pytest.mark.parametrize("name", ["__init__.py", "sdk/surface.py", "testing/__init__.py"])
def test_the_public_surface_is_sorted(name):
    assert len(public_names(tree_of(SOURCE / name))) > 2
    assert check(unsorted_names, [SOURCE / name]) == []


@pytest.mark.parametrize("text", ["__all__ = ['b', 'a']", "__all__ = ('a', 'B')", "x = 1\n__all__ = ['a', 'b', 'b']"])
def test_planted_names_out_of_order_are_found(text):
    assert unsorted_names(ast.parse(text))


def test_no_file_names_a_machine_or_a_package_host():
    parts = ["wo rk", "ro ot", "fa rm"]
    hosts = ["py pi.org", "python hosted", "npm js", "deb ian.org"]
    forbidden = [f"/{part.replace(' ', '')}/" for part in parts] + [host.replace(" ", "") for host in hosts]

    assert [f"{path}: {word}" for path, text in committed() for word in forbidden if word in text] == []


def committed() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(errors="replace")


WATCHED_IMPORT = """
import sys
seen = []
sys.addaudithook(lambda event, args: seen.append(event))
import tickwork.core, tickwork.journal, pkgutil, importlib
for package in (tickwork.core, tickwork.journal):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
bad = [event for event in seen if event.startswith(("socket.", "subprocess.", "os.system", "pickle."))]
print(len(seen) > 0, bad)
"""


def test_importing_the_pure_layers_touches_neither_network_nor_processes():
    run = subprocess.run(
        [sys.executable, "-c", WATCHED_IMPORT],
        env={"PYTHONPATH": str(ROOT / "src")},
        check=True,
        capture_output=True,
        text=True,
    )

    assert run.stdout == "True []\n"


# The rules catch what they are for


@pytest.mark.parametrize(
    "text",
    ["import time", "import random", "import os.path", "from socket import socket", "import uuid",
     "import tickwork.api", "from tickwork import journal", "from tickwork.journal import codec",
     "from . import model", "import asyncio"],
)  # fmt: skip
def test_a_planted_import_is_found(text):
    assert impure_imports(ast.parse(text), layer="core")


@pytest.mark.parametrize("text", ["import msgspec", "from tickwork.core.base.errors import Refused", "import re, enum"])
def test_an_allowed_import_is_left_alone(text):
    assert impure_imports(ast.parse(text), layer="core") == []


@pytest.mark.parametrize(
    "text",
    ["open('x')", "print(1)", "input()", "eval('1')", "exec('1')", "hash('a')", "x = id(y)", "__import__('os')",
     "datetime.now()", "datetime.date.today()", "datetime.datetime.utcnow()", "clock = datetime.now",
     "async def f(): pass", "def f():\n global x"],
)  # fmt: skip
def test_a_planted_deed_is_found(text):
    assert impure_deeds(ast.parse(text))


@pytest.mark.parametrize("text", ["task.id", "re.compile('x')", "x.hash", "def f(id): return id"])
def test_an_innocent_name_is_left_alone(text):
    assert impure_deeds(ast.parse(text)) == []


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from marshal import loads", "import shelve", "eval(x)", "exec(x)", "yaml.load(f)",
     "importlib.import_module(name)", "from pickle import loads as safe"],
)  # fmt: skip
def test_planted_unsafe_code_is_found(text):
    assert unsafe_code(ast.parse(text))


@pytest.mark.parametrize(
    "text",
    ["for x in {1, 2}: pass", "for x in set(y): pass", "[x for x in {a for a in b}]", "list(frozenset(x))",
     "tuple({1, 2})", "','.join({'a'})", "[*{1, 2}]", "f(*set(x))", "{k: 1 for k in set(x)}", "enumerate(set(x))",
     "s = set()\nfor x in s: pass", "s: set[int] = make()\nfor x in s: pass", "next(iter({1}))", "s = {1}\ns.pop()",
     "def f(s: frozenset[str]):\n return [x for x in s]", "def f():\n s = {1}\n return list(s)",
     "class A:\n s: set[int]\n def f(self):\n  return tuple(self.s)", "for x in a | {1}: pass",
     "class A:\n def f(self):\n  self.s = set()\n  for x in self.s: pass", "out.extend(set(x))", "yield_ = [*a, *{1}]",
     "sum(x for x in set(y))", "sorted(list(set(x)), key=f) + list(set(x))"],
)  # fmt: skip
def test_a_planted_walk_over_a_set_is_found(text):
    assert set_iterations(order_free(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["for x in sorted({1, 2}): pass", "x in {1, 2}", "len(set(x))", "s = set()\ns.add(1)", "sorted(x for x in set(y))",
     "any(x > 1 for x in {1, 2})", "for x in (1, 2): pass", "{x for x in set(y)}", "s = [1]\nlist(s)", "d.pop(1)",
     "def f():\n s = {1}\ndef g(s: list[int]):\n return t", "sorted({*set(x), *y})", "for k in {1: 2}: pass",
     "s = {1}\ndef f(s: list[int]):\n return list(s)"],
)  # fmt: skip
def test_an_ordered_walk_is_left_alone(text):
    assert set_iterations(order_free(ast.parse(text))) == []


SHELL = ("runtime", "cluster", "api", "worker", "executors")
METHODS = (types.FunctionType, classmethod, staticmethod)
METHODS_MAX = 25
# Classes that inherit code, because the library that calls them requires it.
INHERITING_CLASSES = {
    "api.http_protocol.ServerConnection",
    "api.metrics._Cluster",
    "api.metrics._Reading",
    "api.server._Server",
    "cluster.multiplexed_connection.FrameChannel",
    "cluster.multiplexed_connection._Upgrade",
    "executors.egress_client._Backend",
    "executors.egress_client._Stream",
    "executors.egress_client._Transport",
    "worker.http1.Connection",
}


def classes_of_the_shell():
    """The classes of these layers, by name without the package."""
    for layer in SHELL:
        for path in sorted((SOURCE / layer).rglob("*.py")):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            module = importlib.import_module(f"tickwork.{name}")
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__:
                    yield f"{name}.{value.__name__}", value


def methods_of(value: type) -> int:
    return sum(isinstance(member, METHODS) for name, member in vars(value).items() if not name.startswith("_"))


def large_classes(classes):
    return {name for name, value in classes if methods_of(value) > METHODS_MAX}


def test_no_class_of_the_shell_has_more_than_25_public_methods():
    assert large_classes(classes_of_the_shell()) == set()


@pytest.mark.parametrize(("methods", "found"), [(METHODS_MAX, set()), (METHODS_MAX + 1, {"planted"})])
def test_a_planted_large_class_is_found(methods, found):
    members = {f"method_{number}": lambda self: self for number in range(methods - 1)} | {"made": classmethod(len)}
    planted = type("Planted", (), {**members, "_private": lambda self: self, "LIMIT": 1})

    assert large_classes([("planted", planted)]) == found


def test_classes_of_the_shell_are_composed_and_inherit_no_code():
    free = (BaseException, enum.Enum, msgspec.Struct, tuple)
    inheriting = {
        name
        for name, value in classes_of_the_shell()
        if not issubclass(value, free)
        and not getattr(value, "_is_protocol", False)
        and not set(value.__bases__) <= {object, Protocol, Generic}
    }

    assert inheriting == INHERITING_CLASSES


CHAIN_MAX = 35
MODULES_MAX = 18
MANY_MODULES = {"api/routes", "cli/commands"}  # one for each resource, and for each noun


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(tree: ast.AST, *, later: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is loaded; with `later`, also those of its functions. Those for type checking
    never run."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=others):
                yield from imported_by(ast.Module(others, []), later=later)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not later:
                pass
            case _:
                yield from imported_by(node, later=later)


def import_graph(sources: dict[str, str], *, later: bool = False) -> dict[str, list[str]]:
    """What each module imports of the others."""
    graph: dict[str, list[str]] = {}
    for module, text in sources.items():
        imported: dict[str, None] = {}
        for node in imported_by(ast.parse(text), later=later):
            if isinstance(node, ast.Import):
                imported.update(dict.fromkeys(alias.name for alias in node.names))
            else:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                imported.update(dict.fromkeys(name if name in sources else str(node.module) for name in names))
        graph[module] = [name for name in imported if name in sources and name != module]
    return graph


def circles_of(graph: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """The modules that each module imports, directly or not, and that import it."""
    below: dict[str, set[str]] = {}
    for module in graph:
        below[module], waiting = set(), [module]
        while waiting:
            fresh = set(graph[waiting.pop()]) - below[module]
            below[module] |= fresh
            waiting += fresh
    return {module: tuple(sorted({module} | {x for x in below[module] if module in below[x]})) for module in graph}


def longest_chain(graph: dict[str, list[str]]) -> list[str]:
    """A circle counts with all its modules."""
    circles = circles_of(graph)
    chains: dict[tuple[str, ...], list[str]] = {}

    def chain_of(circle: tuple[str, ...]) -> list[str]:
        if circle not in chains:
            below = {circles[name]: None for module in circle for name in graph[module] if circles[name] != circle}
            chains[circle] = [*circle, *max(map(chain_of, below), key=len, default=[])]
        return chains[circle]

    return max((chain_of(circle) for circle in circles.values()), key=len)


@cache
def sources() -> dict[str, str]:
    return {module_of(path, SOURCE.parent): path.read_text() for path in MODULES}


def test_no_chain_of_imports_is_longer_than_35_modules():
    chain = longest_chain(import_graph(sources(), later=True))

    assert len(chain) <= CHAIN_MAX, " <- ".join(chain)


def test_no_modules_import_each_other_when_they_are_loaded():
    circles = circles_of(import_graph(sources()))

    assert {circle for circle in circles.values() if len(circle) > 1} == set()


def test_a_planted_chain_of_imports_is_measured():
    planted = {f"p.m{number}": f"from p import m{number + 1}" for number in range(CHAIN_MAX)}
    planted[f"p.m{CHAIN_MAX}"] = "import ast\n"

    assert len(longest_chain(import_graph(planted))) == CHAIN_MAX + 1
    planted["p.m7"] = "if TYPE_CHECKING:\n    from p.m8 import x\nelse:\n    import p.m9\n"
    assert len(longest_chain(import_graph(planted))) == CHAIN_MAX
    planted["p.m9"] = "def later():\n    from p.m10 import x\n"
    assert longest_chain(import_graph(planted))[-1] == f"p.m{CHAIN_MAX}"
    assert len(longest_chain(import_graph(planted))) == CHAIN_MAX - 9
    assert len(longest_chain(import_graph(planted, later=True))) == CHAIN_MAX


def test_a_planted_circle_of_imports_is_found():
    planted = {"p.a": "import p.b", "p.b": "from p import c", "p.c": "from p.a import x\nimport p.d", "p.d": ""}

    assert circles_of(import_graph(planted)) == {
        **dict.fromkeys(("p.a", "p.b", "p.c"), ("p.a", "p.b", "p.c")),
        "p.d": ("p.d",),
    }
    assert longest_chain(import_graph(planted)) == ["p.a", "p.b", "p.c", "p.d"]


def large_folders(paths: list[Path], root: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for path in paths:
        if path.name != "__init__.py":
            folder = str(path.relative_to(root).parent)
            counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > MODULES_MAX and folder not in MANY_MODULES}


def test_no_folder_holds_more_than_18_modules():
    assert large_folders(MODULES, SOURCE) == {}


def test_a_planted_large_folder_is_found():
    full = [SOURCE / "core" / f"m{number}.py" for number in range(MODULES_MAX)]
    others = [SOURCE / folder / path.name for folder in MANY_MODULES for path in [*full, Path("more.py")]]

    assert large_folders([*full, SOURCE / "core" / "__init__.py", *others], SOURCE) == {}
    assert large_folders([*full, SOURCE / "core" / "more.py"], SOURCE) == {"core": MODULES_MAX + 1}


LINES_MAX = 600


def long_modules(texts: dict[str, str]) -> dict[str, int]:
    lines = {module: len(text.splitlines()) for module, text in texts.items()}
    return {module: count for module, count in lines.items() if count > LINES_MAX}


def test_no_module_has_more_than_600_lines():
    assert long_modules(sources()) == {}


def test_a_planted_long_module_is_found():
    planted = {"p.full": "x = 1\n" * LINES_MAX, "p.long": "x = 1\n" * (LINES_MAX + 1)}

    assert long_modules(planted) == {"p.long": LINES_MAX + 1}
