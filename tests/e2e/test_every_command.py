"""Each command of the table does its work once, with a new server and then with the store that it leaves.

A command that always refuses is worse than none. The test fails for a command that it has no line for.
"""

import json
import shlex
import time

import pytest

from tickwork.cli.command_table import commands, entries
from tickwork.cli.main import main, make_app
from tickwork.compose.ephemeral_server import EphemeralServer
from tickwork.compose.settings import Settings

APP = """
import tickwork as tw


@tw.task
def work(number: int) -> int:
    if number < 0:
        raise tw.Permanent("negative")
    return number


@tw.workflow
def job(number: int = 1) -> int:
    return work(number)


@tw.workflow
def asks() -> None:
    tw.approval("boss")


@tw.workflow
def waits() -> None:
    tw.wait("1h")


@tw.durable
async def entity(ctx: tw.Durable) -> int:
    ctx.publish("total", 1)
    message = await ctx.receive("stop")
    message.reply(2)
    return 2
"""
DOCUMENT = "name: written\nnodes: [{kind: wait, id: rest, duration_ms: 1}]\n"
# Each is started, followed and ended by tests of its own: test_cli, test_usage and test_auditor_command.
STAY = {"init", "dev", "server", "worker", "auditor"}
# In this order, on one server. {failed} and the like are runs that `STATES` names; {tick} is the latest one.
LINES = """
run job | doctor | runs | runs --workflow job | show {done} | logs {done} | stream {done} | why {done} | rerun {done}
pause {waiting} | resume {waiting} | cancel {waiting} | inbox | approve {asks} boss | reject {asks_again} boss
retry {failed} --node work | resolve {refused} --skip work | dead-letters | dead-letters list
dead-letters show {dropped} | dead-letters drop {dropped} --reason old | dead-letters redrive {redriven}
bulk | bulk pause --workflow waits | bulk resume --workflow waits | bulk retry --workflow job
bulk cancel --workflow waits
bulk rerun --workflow job --state completed --yes --json | bulk show {bulk} | signal paid
ask {entity} stop | read {entity} total
assets update prices | assets | assets show prices | mailboxes put letters | mailboxes | mailboxes letters
mailboxes delete letters
schedules preview --workflow job --cron "0 9 * * *" | schedules put s --workflow job --every 10m --governed
schedules apply schedules.yaml --owner me --dry-run | schedules diff schedules.yaml schedules.yaml | schedules
schedules show s | schedules next | schedules history s | schedules trigger s | schedules test s | schedules pause s
schedules resume s | schedules hint s --every 30s | schedules clear-hints s | schedules reset-failures s
schedules archive s | schedules restore s | schedules list
schedules put daily --workflow waits --cron "0 9 * * *"
backfill daily --start 2026-01-01 --end 2026-01-03 --concurrency 1 --json
backfills
backfills pause {backfill} | backfills resume {backfill} | backfills cancel {backfill} | catchup | schedules delete s
holidays put de 2026-12-25 | holidays | holidays delete de | zones
endpoints put e http://127.0.0.1:9/none --every 1h | endpoints apply endpoints.yaml | endpoints | endpoints list
endpoints show e | endpoints trigger e | endpoints test e | endpoints history e | endpoints pause e | endpoints resume e
endpoints hint e --every 2h | endpoints clear-hints e | endpoints reset-failures e | endpoints archive e
endpoints restore e
cluster | webhooks | status | clock | clock confirm | page | workers | alarms | tick {tick} | versions | check app.py
workflows put flow.yaml | workflows | workflows show written | workflows pause written | workflows resume written
workflows delete written
queues put slow --limit 2 | queues apply queues.yaml | queues | queues pause slow | queues resume slow
queues delete slow
policies put hours --allow true | policies apply policies.yaml | policies | policies test hours --workflow job
policies delete hours
tenants put | tenants apply tenants.yaml | tenants | tenants pause | tenants resume
label-limits put gpu=true --limit 2 | label-limits apply limits.yaml | label-limits | label-limits delete gpu=true
settings put max_runs_per_tick=200 | settings apply settings.yaml | settings | settings list
"""
STATES = {  # the name of a run in LINES: its workflow, inputs, and the state in which it is used
    "done": ("job", "number=2", "completed"),
    "failed": ("job", "number=-1", "failed"),
    "refused": ("job", "number=-2", "failed"),
    "dropped": ("job", "number=-3", "failed"),
    "redriven": ("job", "number=-4", "failed"),
    "waiting": ("waits", "", "waiting"),
    "asks": ("asks", "", "waiting"),
    "asks_again": ("asks", "", "waiting"),
    "entity": ("entity", "", "waiting"),
}
FILES = {
    "app.py": APP,
    "flow.yaml": DOCUMENT,
    "schedules.yaml": "schedules: {s: {workflow: job, every: 10m}}\n",
    "endpoints.yaml": "endpoints: {f: {url: 'http://127.0.0.1:9/none', every: 1h}}\n",
    "queues.yaml": "queues: {slow: {limit: 3}}\n",
    "policies.yaml": "policies: {hours: {allow: 'true'}}\n",
    "tenants.yaml": "tenants: {default: {weight: 1}}\n",
    "limits.yaml": "label_limits: {gpu=true: {limit: 7}}\n",
    "settings.yaml": "settings: {max_runs_per_tick: 300}\n",
}
OF_A_STORE = """
runs --data data | db check | db upgrade | db backup all.twb | db restore all.twb --store copy | replay --data data
catchup --data data | db copy data other
"""


def lines(text):
    return [shlex.split(line) for part in text.strip().splitlines() for line in part.split("|")]


def words(line, offered):
    """The words of the command at the beginning of a line."""
    return next((" ".join(line[:count]) for count in (2, 1) if " ".join(line[:count]) in offered), "")


@pytest.mark.slow
def test_each_command_does_its_work_with_a_new_server_or_its_store(tmp_path, monkeypatch, capsys):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    refused = {}

    def call(*line):
        capsys.readouterr()
        code, said = main(list(line)), capsys.readouterr()
        if code:
            refused[" ".join(line)] = (code, said.err)
        return said.out

    with EphemeralServer(Settings(data="data", grace_s=2.0), "app.py") as server:
        monkeypatch.setenv("TICKWORK_URL", server.address)
        monkeypatch.setenv("TICKWORK_TOKEN", server.token)
        runs = {}
        for name, (workflow, given, state) in STATES.items():
            runs[name] = call("run", workflow, "--detach", *(["--input", given] if given else [])).strip()
            deadline = time.monotonic() + 60
            while json.loads(call("show", runs[name], "--json"))["state"] != state:
                assert time.monotonic() < deadline, call("show", runs[name])
                time.sleep(0.02)
        runs["tick"] = json.loads(call("status", "--json"))["tick"]
        for line in lines(LINES):
            out = call(*(part.format_map(runs) for part in line))
            if "--yes" in line:
                runs["bulk"] = json.loads(out)["id"]
            elif line[0] == "backfill":
                runs["backfill"] = json.loads(out)["number"]
    monkeypatch.delenv("TICKWORK_URL")
    monkeypatch.setenv("TICKWORK_DATA", "data")
    for line in lines(OF_A_STORE):
        call(*line)

    assert refused == {}


def test_no_command_is_left_out():
    offered = {
        " ".join(path) for entry in entries() for path, _ in commands(make_app(entry.name)[entry.name], entry.name)
    }
    tried = {words(line, offered) for line in lines(LINES) + lines(OF_A_STORE)}
    left = {command for command in offered - tried if command.split()[0] not in STAY}

    # `db` names its parts and does nothing. `release` needs a partition that an auditor has stopped: test_auditor.
    # A bulk operation cannot be stopped after its end: test_bulk.
    assert left == {"db", "release", "bulk stop"}
