"""The way in: usage, settings and errors, without any server."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from terminal import ROOT, Terminal
from tickwork.cli.command_table import commands, entries
from tickwork.cli.exit_codes import MEANINGS, Exit, code_of, report, tell
from tickwork.cli.main import main, make_app
from tickwork.cli.options import ClientOptions
from tickwork.compose.settings import BadSettings
from tickwork.core.base.errors import Conflict, Corrupt, Refused, ReplayDiffers, Unavailable
from tickwork.ports.store import StoreFull, StoreInUse, StoreUnusable
from tickwork.system.clock import SystemClock


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No setting of whoever runs the tests, and no server at the address, which is not waited for here."""
    monkeypatch.setitem(ClientOptions.client.__kwdefaults__, "deadline_s", 0.1)
    for name in [name for name in os.environ if name.startswith("TICKWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TICKWORK_PORT", "1")  # nobody listens there, whatever runs beside this
    monkeypatch.chdir(tmp_path)


def every_command():
    for entry in entries():
        yield from commands(make_app(entry.name)[entry.name], entry.name)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("unknown_run", "there is no run"), Exit.NOT_FOUND),
        (Refused("no_app", "there is no file"), Exit.NOT_FOUND),
        (Refused("unknown_input", "there is no such input"), Exit.REFUSED),
        (Refused("bad_value", "no"), Exit.REFUSED),
        (Conflict("it ended"), Exit.REFUSED),
        (StoreInUse("by process 7"), Exit.REFUSED),
        (StoreUnusable("read-only"), Exit.SETTINGS),
        (BadSettings("unknown_setting", "prot"), Exit.SETTINGS),
        (Refused("bad_url", "no address"), Exit.SETTINGS),
        (Unavailable("no answer", retry_after_ms=1), Exit.UNREACHABLE),
        (StoreFull("no space", retry_after_ms=1), Exit.TRY_AGAIN),
        (Corrupt("a hash"), Exit.DAMAGED),
        (ReplayDiffers("an event", seq=3), Exit.FAILED),
    ],
)
@pytest.mark.proves("B25")
def test_an_error_becomes_the_code_of_what_to_do_next(error, code):
    assert code_of(error) == code
    assert code in MEANINGS


@pytest.mark.proves("B25")
@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, ""),
        (["nonsense"], 2, "Unknown command"),
        (["runs", "--prot", "3"], 2, "--prot"),
        (["runs", "--limit", "many"], 2, "many"),
        (["runs", "--limit", "0"], 2, "--limit"),
        (["endpoints", "history", "x", "--limit", "-1"], 2, "--limit"),
        (["runs", "--state", "tired"], 2, "tired"),
        (["show"], 2, "RUN"),
        (["run", "missing.py:x"], 3, "missing.py"),
        (["run", "./"], 3, "./"),
        (["worker", "x.py", "--processes", "two"], 2, "two"),
        (["dev", "missing.py"], 3, "missing.py"),
        (["runs"], 69, "no answer"),
        (["show", "x"], 69, "no answer"),
        (["run", "daily"], 69, "no server responds"),
        (["replay", "--from", "missing"], 3, "missing"),
        (["replay", "--data", "missing"], 3, "missing"),
        (["replay", "--from", "a", "--data", "b"], 2, "not both"),
        (["runs", "--url", "ftp://x"], 78, "ftp://x"),
        (["schedules"], 69, "no answer"),
        (["schedules", "nonsense"], 2, "schedules --help"),
        (["schedules", "show"], 2, "tickwork schedules show --help"),
        (["schedules", "put", "x", "--cron", "* * * * *"], 2, "--workflow"),
        (["schedules", "put", "x", "--workflow", "w"], 2, "--cron, --every, --at and --rrule"),
        (["schedules", "put", "x", "--workflow", "w", "--cron", "* * * * *", "--every", "5m"], 2, "one of"),
        (["schedules", "put", "x", "--workflow", "w", "--every", "5m", "--overlap", "maybe"], 2, "maybe"),
        (["schedules", "put", "x", "--workflow", "w", "--every", "5 parsecs"], 4, "every"),
        (["schedules", "put", "x", "--workflow", "w", "--cron", "* * * * *"], 69, "no answer"),
        (["schedules", "pause"], 2, "--group"),
        (["schedules", "pause", "x", "--group", "g"], 2, "--group"),
        (["schedules", "hint", "x"], 2, "--every"),
        (["schedules", "next", "--days", "0"], 2, "--days"),
        (["schedules", "apply", "missing.yaml", "--owner", "o"], 3, "missing.yaml"),
        (["schedules", "diff", "missing.yaml", "other.yaml"], 3, "missing.yaml"),
        (["schedules", "diff", "one.yaml"], 2, "two files"),
        (["schedules", "diff", "--tzdata", "missing"], 69, "no answer"),
        (["backfill", "x", "--start", "2026-01-01"], 2, "--end"),
        (["backfill", "x", "--start", "a", "--end", "b", "--preview", "--wait"], 2, "not both"),
        (["backfills", "pause", "first"], 2, "first"),
        (["catchup", "--policy", "some"], 2, "'some'"),
        (["catchup", "--policy", "window"], 2, "window:6h"),
        (["catchup"], 69, "--data"),
        (["catchup", "--data", "missing"], 3, "missing"),
        (["catchup", "--url", "http://127.0.0.1:1"], 69, "no answer"),
        (["holidays", "put", "de"], 2, "dates"),
        (["holidays", "put", "de", "christmas"], 3, "christmas"),
        (["zones"], 69, "no answer"),
        (["server", "--catch-up", "some"], 78, "'some'"),
        (["server", "--catch-up", "window"], 78, "window:6h"),
    ],
)
def test_wrong_usage_is_one_message_and_a_code(args, code, words, capsys):
    assert main(args) == code

    shown = capsys.readouterr()
    assert words in shown.err
    assert "Traceback" not in shown.err
    assert len(shown.err.strip().splitlines()) <= 2


@pytest.mark.proves("B26")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TICKWORK_PROT", "1"),
        ("TICKWORK_PORT", "many"),
        ("TICKWORK_TOKEN_FILE", "missing"),
        ("TICKWORK_HOST", "0.0.0.0"),
    ],
)
def test_a_wrong_setting_refuses_the_start(name, value, monkeypatch, capsys):
    monkeypatch.setenv(name, value)

    assert main(["server"]) == Exit.SETTINGS
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.proves("B26")
def test_a_setting_in_a_file_that_nobody_knows_is_refused(tmp_path, capsys):
    (tmp_path / "tickwork.toml").write_text("prot = 1\n")

    assert main(["runs"]) == Exit.SETTINGS
    assert "prot" in capsys.readouterr().err


@pytest.mark.proves("B26")
def test_a_token_that_everybody_can_read_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o644)
    monkeypatch.setenv("TICKWORK_TOKEN_FILE", "token")

    assert main(["runs"]) == Exit.SETTINGS
    assert "secret" not in capsys.readouterr().err


@pytest.mark.proves("B26")
def test_a_setting_given_twice_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv("TICKWORK_TOKEN_FILE", "token")
    monkeypatch.setenv("TICKWORK_TOKEN", "other")

    assert main(["server"]) == Exit.SETTINGS
    shown = capsys.readouterr().err
    assert "TICKWORK_TOKEN_FILE: TICKWORK_TOKEN is set, too" in shown
    assert "secret" not in shown and "other" not in shown


@pytest.mark.proves("B26")
def test_a_clock_from_before_the_program_refuses_the_start(monkeypatch, capsys):
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _: 1_000_000_000_000)

    assert main(["server"]) == Exit.SETTINGS
    shown = capsys.readouterr().err
    assert "2001-09-09" in shown and len(shown.splitlines()) == 1
    assert not Path(".tickwork").exists()


@pytest.mark.proves("B25")
def test_a_file_that_cannot_be_read_is_one_message(tmp_path, capsys):
    """Whoever runs the tests may be allowed to read every file; nobody can read this one from its beginning."""
    assert main(["run", "greet", "--inputs-json", "@/proc/self/mem"]) == Exit.USAGE
    shown = capsys.readouterr().err
    assert "/proc/self/mem" in shown and "Traceback" not in shown and len(shown.splitlines()) == 1


@pytest.mark.proves("B25")
def test_no_secret_is_an_argument():
    words = ("token", "password", "secret")
    for path, command in every_command():
        for argument in command.assemble_argument_collection():
            assert not any(word in name for name in argument.names for word in words), path


def test_every_command_has_json_for_programs():
    without = {"server", "worker", "dev"}  # they stay, and say one line
    known = dict(every_command())
    for path, command in known.items():
        names = [name for one in command.assemble_argument_collection() for name in one.names]
        if not names and any(other[: len(path)] == path != other for other in known):
            continue  # it only stands before others
        assert ("--json" in names) == (path[0] not in without), path


def test_a_message_cannot_move_the_cursor(capsys):
    tell("a\x1b[2Jb\x07c")

    assert capsys.readouterr().err == "tickwork: a\\x1b[2Jb\\x07c\n"


def test_a_defect_says_that_it_is_one(capsys):
    assert report(KeyError("x")) == Exit.TRY_AGAIN

    assert "KeyError: 'x'\nthis is a defect of tickwork; TICKWORK_DEBUG=1" in capsys.readouterr().err


def test_a_traceback_is_for_those_who_ask(monkeypatch, capsys):
    monkeypatch.setenv("TICKWORK_DEBUG", "1")
    assert main(["runs"]) == Exit.UNREACHABLE

    assert "Traceback" in capsys.readouterr().err


def test_the_menu_is_there_at_once():
    """Without loading what draws tables, talks HTTP or opens databases."""
    code = (
        "import sys; from tickwork.cli.main import main; main(['--help']); "
        "heavy = {'cyclopts', 'rich', 'httpx2', 'msgspec', 'apsw', 'asyncio'}; "
        "print(*sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=30)

    assert done.stderr.strip() == ""
    assert all(entry.name in done.stdout for entry in entries())
    assert "130" in done.stdout


@pytest.mark.slow
def test_help_takes_less_than_a_third_of_a_second(tmp_path):
    terminal = Terminal(tmp_path)
    taken = []
    for _ in range(5):
        begin = time.perf_counter()
        assert terminal.run_anew("--help").returncode == 0
        taken.append(time.perf_counter() - begin)

    print(f"tickwork --help: {min(taken):.3f} s")
    assert min(taken) < 0.3


@pytest.mark.skipif(shutil.which("bash") is None, reason="completes in bash")
@pytest.mark.parametrize(
    ("words", "found"), [(["dev", "my"], "my_app.py"), (["run", "my"], "my_app.py"), (["worker", "my"], "my_app.py"),
                         (["runs", "--state", "comp"], "completed"), (["sched"], "schedules")],
)  # fmt: skip
def test_bash_completes_commands_choices_and_names_of_applications(tmp_path, words, found):
    (tmp_path / "my_app.py").touch()
    (tmp_path / "completion").write_text(make_app().generate_completion(shell="bash"))
    given = " ".join(["tickwork", *words])
    script = f"""source ./completion; COMP_WORDS=({given}); COMP_CWORD={len(words)}; COMP_LINE="{given}"
        COMP_POINT=${{#COMP_LINE}}; _tickwork; echo "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30)

    assert found in done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    "noun",
    [
        "backfills",
        "endpoints",
        "holidays",
        "queues",
        "runs",
        "schedules",
        "versions",
        "webhooks",
        "workers",
        "workflows",
        "zones",
    ],
)
def test_list_after_a_noun_is_the_noun(noun, capsys):
    assert main([noun, "list", "--help"]) == 0
    listed = capsys.readouterr().out
    assert main([noun, "--help"]) == 0

    assert capsys.readouterr().out == listed
    assert main([noun, "list", "--url", "http://127.0.0.1:9"]) in (Exit.UNREACHABLE, Exit.OK)
    assert "nused" not in capsys.readouterr().err
