"""From a file to an application: what is found, under which names, and what a broken file says."""

import pytest

from tickwork.core.base.errors import Refused
from tickwork.sdk.authoring.app_loader import load_app
from tickwork.sdk.context import Context, running
from tickwork.sdk.values.signature_codec import encode


def run(app, name, **args):
    ctx = Context(run_id="r")
    with running(ctx):
        return app.handlers[name].call(encode(args), ctx)


def test_tasks_are_known_by_module_and_function(app):
    found = app("@tw.task\ndef fetch(day: str) -> str: return day\n\n@tw.task(name='x')\ndef other(): ...\n")

    assert sorted(found.handlers) == ["app.fetch", "tickwork.value", "x"]
    assert run(found, "app.fetch", day="mon") == "mon"


def test_a_task_of_an_imported_module_comes_along(app):
    lib = "import tickwork as tw\n@tw.task\ndef deep(): return 1\n"
    found = app("import lib\n@tw.task\ndef fetch(): ...\n", lib=lib)

    assert sorted(found.handlers) == ["app.fetch", "lib.deep", "tickwork.value"]


@pytest.mark.parametrize("target", ["pack.flows", "pack/flows.py"])
def test_a_module_of_a_package_is_loaded_by_either_name(app, target):
    found = app("", target, pack__flows="import tickwork as tw\n@tw.task\ndef fetch(): return 2\n")

    assert run(found, "flows.fetch") == 2


def test_loading_twice_gives_the_same_application(app):
    first = app("@tw.task\ndef fetch(): ...\n")

    assert sorted(load_app("app").handlers) == sorted(load_app("app.py").handlers) == sorted(first.handlers)


def test_two_functions_under_one_name_are_both_named(app):
    with pytest.raises(Refused, match=r"'x'.*app\.py:2 and .*app\.py:4"):
        app("@tw.task(name='x')\ndef a(): ...\n@tw.task(name='x')\ndef b(): ...\n")


def test_a_part_of_the_module_can_be_chosen(app):
    assert app("@tw.task\ndef fetch(): return 3\n", "app.py:fetch").chosen() == 3
    with pytest.raises(Refused, match=r"app has no 'fetsh'; it has: fetch"):
        load_app("app.py:fetsh")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ny = 1 / 0\n", r"ZeroDivisionError: division by zero\n .*app\.py:3: y = 1 / 0"),
        ("def f(:\n", r"not valid Python: .*app\.py:2\n    def f\(:"),
        ("import nowhere_at_all\n", r"No module named 'nowhere_at_all'\n .*app\.py:2"),
        ("@tw.task(retires=3)\ndef f(): ...\n", r"no option 'retires'(.|\n)*app\.py:2"),
        ("@tw.task\ndef f(*args): ...\n", r"takes \*args(.|\n)*app\.py:2"),
        ("tw.task(lambda: 1)\n", r"a lambda has no name"),
        ("raise SystemExit(3)\n", r"ended the program \(exit 3\)"),
        ("from . import x\n", r"name it as a module instead"),
        ("tw.nothing\n", r"has no attribute 'nothing'(.|\n)*app\.py:2"),
    ],
)
def test_a_broken_file_shows_the_users_line(app, text, words):
    with pytest.raises(Refused, match=words):
        app(text)


@pytest.mark.parametrize("target", ["missing.py", "missing", "missing.deeper", "app.py/x"])
def test_what_is_not_there_is_refused(app, target):
    with pytest.raises(Refused, match=r"missing|no file"):
        app("", target)


def test_a_file_named_like_a_loaded_module_is_refused(app, tmp_path):
    (tmp_path / "json.py").write_text("")
    with pytest.raises(Refused, match=r"'json' is loaded already; rename json\.py"):
        load_app("json.py")


METHODS = """
class Loader:
    def __init__(self, base): self.base = base
    @tw.task
    def add(self, n: int) -> int: return self.base + n
    @tw.task
    @staticmethod
    def plain(n: int) -> int: return n
    @staticmethod
    @tw.task
    def below(n: int) -> int: return -n
    @tw.task
    @classmethod
    def made(cls, n: int) -> str: return f"{cls.__name__}{n}"
loader = tw.instance("main", Loader(10))
"""


def test_methods_are_tasks(app):
    found = app(METHODS)

    assert run(found, "app.Loader.add@main", n=1) == 11
    assert run(found, "app.Loader.plain", n=2) == 2
    assert run(found, "app.Loader.below", n=2) == -2
    assert run(found, "app.Loader.made", n=3) == "Loader3"
    assert found.module.loader.add(5) == 15
    assert found.module.Loader.made(5) == "Loader5"
    assert found.module.Loader.add(found.module.loader, 5) == 15


def test_a_handler_gets_its_context_and_positional_arguments(app):
    found = app(
        "@tw.task\ndef a(x: int, /, y: int = 2, *, ctx: tw.Context) -> str: return f'{x} {y} {ctx.run_id}'\n"
        "@tw.task\nasync def b(): ...\n"
    )

    assert run(found, "app.a", x=1) == "1 2 r"
    assert found.handlers["app.a"].wants_context and not found.handlers["app.b"].wants_context
    assert found.handlers["app.b"].is_async
