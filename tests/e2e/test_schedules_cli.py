"""Schedules from the command line, against real processes over loopback."""

import json
import os
import pty
import signal
import subprocess
import time

import pytest

from terminal import SECONDS, Terminal
from tickwork.cli.exit_codes import Exit

WHEN = ("--cron", "30 2 * * *", "--timezone", "Europe/Berlin")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    found = Terminal(tmp_path_factory.mktemp("house"))
    try:
        found.start("dev", "app.py").until("worker ready")
        yield found
    finally:
        found.close()


def put(house, name, *more):
    done = house.run("schedules", "put", name, "--workflow", "greet", *(more or WHEN))
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(house, *flags):
    return {one["name"]: one for one in house.json("schedules", *flags)["schedules"]}


def test_a_schedule_is_put_with_its_meaning_shown_and_listed(house):
    told = put(house, "shown", *WHEN, "--input", "name=Ann", "--description", "for the board")
    shown = house.run("schedules", "show", "shown").stdout
    table = house.run("schedules").stdout

    assert "at 02:30, Berlin time" in told and told.count("T02:30:00+0") >= 8
    assert "does not exist" in told  # the hour that spring leaves out
    for words in ("greet", "30 2 * * *", "Europe/Berlin", "Ann", "for the board", "overlap allow", "grace 1m"):
        assert words in shown
    assert shown.count("T02:30:00+0") >= 8
    assert "shown" in table and "Europe/Berlin" in table and "(in " in table and "active" in table


def test_a_preview_makes_nothing(house):
    told = house.json("schedules", "preview", "ghost", "--every", "90m")

    assert told["says"].startswith("every 1h30m") and len(told["next"]) == 10
    assert "ghost" not in listed(house)


def test_what_is_expected_is_a_calendar(house):
    put(house, "often", "--cron", "0 */6 * * *", "--timezone", "Asia/Tokyo")
    found = house.json("schedules", "next", "--days", "3", "--schedule", "often")["occurrences"]
    shown = house.run("schedules", "next", "--days", "3", "--schedule", "often").stdout

    assert len(found) == 12 and all(one["local"].endswith("+09:00") for one in found)
    assert all(one["local"] in shown for one in found)


def test_a_calendar_that_nobody_would_read_says_where_it_ends(house):
    put(house, "minutes", "--cron", "* * * * *")
    found = house.json("schedules", "next", "--days", "8", "--schedule", "minutes")["occurrences"]
    shown = house.run("schedules", "next", "--days", "8", "--schedule", "minutes")
    assert house.run("schedules", "delete", "minutes").returncode == 0

    assert len(found) == 8 * 1440 or len(found) == 8 * 1440 + 1  # a minute may end between two pages
    assert len(shown.stdout.splitlines()) == 5_001 and "the first 5000, until" in shown.stderr


def test_a_schedule_is_paused_with_a_reason_and_goes_on(house):
    put(house, "held", *WHEN, "--group", "nightly")
    assert house.run("schedules", "pause", "held", "--reason", "repairs").returncode == 0
    assert "paused: repairs" in house.run("schedules", "--group", "nightly").stdout
    assert house.run("schedules", "pause", "held").returncode == Exit.REFUSED
    assert house.run("schedules", "resume", "held").returncode == 0
    assert house.run("schedules", "pause", "--group", "nightly", "--reason", "move").returncode == 0
    assert listed(house, "--group", "nightly")["held"]["pause_reason"] == "group nightly is paused: move"
    assert house.run("schedules", "resume", "--group", "nightly").returncode == 0

    assert not listed(house, "--group", "nightly")["held"].get("paused")
    assert list(listed(house, "--group", "other")) == []


def test_a_schedule_is_archived_restored_and_deleted(house):
    put(house, "old")
    assert house.run("schedules", "archive", "old").returncode == 0
    assert "old" not in listed(house) and "old" in listed(house, "--archived")
    assert house.run("schedules", "restore", "old").returncode == 0
    assert house.run("schedules", "reset-failures", "old").returncode == 0
    assert house.run("schedules", "delete", "old").returncode == 0

    gone = house.run("schedules", "show", "old")
    assert gone.returncode == Exit.NOT_FOUND and len(gone.stderr.splitlines()) == 1


def test_trigger_and_test_print_the_id_of_a_run_of_their_own(house):
    put(house, "fired")
    triggered = house.run("schedules", "trigger", "fired").stdout.strip()
    tested = house.json("schedules", "test", "fired")["run_id"]

    assert triggered.startswith("sched-fired-trigger-") and tested.startswith("sched-fired-test-")
    assert house.json("show", triggered)["id"] == triggered
    assert house.json("schedules", "show", "fired").get("fired", 0) == 0


def test_hints_move_a_governed_schedule_and_nothing_else(house):
    put(house, "governed", "--every", "10m", "--governed", "--min", "20s")
    put(house, "plain", "--every", "10m")
    hinted = house.run("schedules", "hint", "governed", "--every", "30s", "--ttl", "1h", "--reason", "busy")
    shown = house.run("schedules", "show", "governed").stdout
    cleared = house.json("schedules", "clear-hints", "governed")

    assert "interval hint by " in hinted.stdout and "ai-" not in hinted.stdout
    assert "busy" in shown and "candidate baseline-interval" in shown and "chosen" in shown
    assert cleared["governed"]["source"] == "baseline-interval"
    assert house.run("schedules", "hint", "plain", "--every", "30s").returncode == Exit.REFUSED


def test_new_refuses_a_name_that_is_taken(house):
    put(house, "taken")
    refused = house.run("schedules", "put", "taken", "--workflow", "greet", *WHEN, "--new")

    assert refused.returncode == Exit.REFUSED and "taken" in refused.stderr


def test_a_set_is_applied_whole_and_says_first_what_changes(house):
    file = house.folder / "set.yaml"
    file.write_text("one: {workflow: greet, cron: '0 9 * * *'}\ntwo: {workflow: greet, every: 10m}\n")
    dry = house.json("schedules", "apply", "set.yaml", "--owner", "team", "--dry-run")
    before = listed(house)
    first = house.run("schedules", "apply", "set.yaml", "--owner", "team")
    again = house.run("schedules", "apply", "set.yaml", "--owner", "team")
    file.write_text("one: {workflow: greet, cron: '0 10 * * *'}\n")
    changed = house.json("schedules", "apply", "set.yaml", "--owner", "team")
    after = listed(house)
    file.write_text("one: {workflow: greet, cron: '0 11 * * *'}\nbad: {workflow: missing, every: 10m}\n")
    refused = house.run("schedules", "apply", "set.yaml", "--owner", "team")
    only_looked = house.run("schedules", "apply", "set.yaml", "--owner", "team", "--dry-run")

    assert (dry["added"], dry["removed"]) == (["one", "two"], []) and "one" not in before
    assert "+ one" in first.stderr and "applied: 2" in first.stdout
    assert "nothing changes" in again.stderr
    assert changed["changed"] == {"one": {"cron": ["0 9 * * *", "0 10 * * *"]}} and changed["removed"] == ["two"]
    assert after["one"]["expression"] == "0 10 * * *" and "two" not in after
    assert refused.returncode == Exit.NOT_FOUND and "schedules.bad" in refused.stderr
    assert only_looked.returncode == Exit.NOT_FOUND and "schedules.bad" in only_looked.stderr
    assert listed(house)["one"]["expression"] == "0 10 * * *"


def test_a_backfill_is_previewed_followed_and_not_repeated(house):
    put(house, "past")
    window = ("past", "--start", "2026-03-01", "--end", "2026-03-06")
    preview = house.json("backfill", *window, "--preview")
    first = house.run("backfill", *window, "--wait", "--concurrency", "2")
    again = house.json("backfill", *window, "--wait")
    looked = house.run("backfill", "past", "--start", "2026-03-05", "--end", "2026-03-09", "--preview")
    number = str(again["number"])

    assert preview["count"] == 5 and preview["run_ids"][0] == "sched-past-2026-03-01T01:30:00Z"
    assert first.returncode == 0 and "5 succeeded" in first.stdout and "backfill" in first.stderr
    assert again["known"] == 5 and again.get("started", 0) == 0
    assert "4 occurrences" in looked.stdout and "1 of them have run" in looked.stdout
    assert "sched-past-2026-03-05" not in looked.stdout and "sched-past-2026-03-06" in looked.stdout
    assert number in house.run("backfills").stdout
    assert house.run("backfills", "pause", number).returncode in (Exit.REFUSED, Exit.NOT_FOUND)
    assert house.json("show", "sched-past-2026-03-01T01:30:00Z")["state"] == "completed"


def test_a_backfill_that_fails_says_so_in_its_code(house):
    assert house.run("schedules", "put", "fails", "--workflow", "fails", *WHEN).returncode == 0
    done = house.run("backfill", "fails", "--start", "2026-03-01", "--end", "2026-03-03", "--wait")

    assert done.returncode == Exit.FAILED and "2 failed" in done.stdout


def test_a_backfill_is_steered_while_it_goes_on(house):
    assert house.run("schedules", "put", "long", "--workflow", "lasts", *WHEN).returncode == 0
    begun = house.json("backfill", "long", "--start", "2026-01-01", "--end", "2026-02-01", "--concurrency", "1")
    number = str(begun["number"])

    assert house.json("backfills", "pause", number)["state"] == "paused"
    assert house.json("backfills", "resume", number)["state"] == "active"
    assert house.json("backfills", "cancel", number)["state"] == "cancelled"


def test_progress_is_drawn_in_a_terminal(house):
    put(house, "drawn")
    master, slave = pty.openpty()
    command = house.command("backfill", "drawn", "--start", "2026-03-01", "--end", "2026-03-03", "--wait")
    env = house.env | {"TERM": "xterm", "COLUMNS": "160"}
    with subprocess.Popen(command, cwd=house.folder, env=env, stdout=subprocess.PIPE, stderr=slave) as shown:
        os.close(slave)
        seen = b""
        try:
            while piece := os.read(master, 4096):
                seen += piece
        except OSError:  # the other side has closed
            pass
        assert shown.wait(SECONDS) == 0
    os.close(master)

    assert b"2/2" in seen or b"0/2" in seen
    assert b"\x1b[" in seen


def test_holidays_are_put_from_dates_and_files_and_kept_while_they_are_used(house):
    (house.folder / "feasts.txt").write_text("2026-12-24  # half a day\n2026-12-25\n\n")
    assert house.json("holidays", "put", "de", "feasts.txt", "2026-12-26")["dates"][-1] == "2026-12-26"
    put(house, "working", "--cron", "0 9 * * *", "--holidays", "de")
    assert house.json("holidays")["lists"]["de"] == ["2026-12-24", "2026-12-25", "2026-12-26"]
    assert house.run("holidays", "delete", "de").returncode == Exit.REFUSED
    assert house.run("holidays", "put", "xx", "2026-13-45").returncode == Exit.REFUSED
    assert house.run("schedules", "delete", "working").returncode == 0

    assert house.run("holidays", "delete", "de").returncode == 0
    assert house.json("holidays").get("lists", {}) == {}


def test_zones_are_found_by_a_part_of_their_name(house):
    assert house.run("zones", "berlin").stdout == "Europe/Berlin\n"
    assert house.run("zones", "atlantis").returncode == Exit.NOT_FOUND


def test_the_servers_own_schedules_are_compared_by_two_versions_of_the_zones(house):
    from importlib.resources import files

    put(house, "compared")
    folder = str(files("tzdata") / "zoneinfo")
    done = house.run("schedules", "diff", "--tzdata", folder, "--days", "200")

    assert done.returncode == 0 and "the same for 200 days" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("schedules", "put", "x", "--workflow", "greet", "--cron", "0 0 31 2 *"), Exit.REFUSED, "cron"),
        (("schedules", "put", "x", "--workflow", "none", *WHEN), Exit.NOT_FOUND, "none"),
        (("schedules", "put", "x", "--workflow", "greet", *WHEN, "--queue", "none"), Exit.NOT_FOUND, "none"),
        (
            ("schedules", "put", "x", "--workflow", "greet", "--every", "5m", "--timezone", "Mars"),
            Exit.NOT_FOUND,
            "Mars",
        ),
        (("schedules", "show", "missing"), Exit.NOT_FOUND, "missing"),
        (("schedules", "next", "--schedule", "missing"), Exit.NOT_FOUND, "missing"),
        (("schedules", "pause", "missing"), Exit.NOT_FOUND, "missing"),
        (("schedules", "trigger", "missing"), Exit.NOT_FOUND, "missing"),
        (("schedules", "history", "greet", "--start", "yesterday"), Exit.REFUSED, "yesterday"),
        (("backfill", "missing", "--start", "2026-01-01", "--end", "2026-01-02"), Exit.NOT_FOUND, "missing"),
        (("backfills", "cancel", "999"), Exit.NOT_FOUND, "999"),
        (("holidays", "delete", "missing"), Exit.NOT_FOUND, "missing"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_code(house, args, code, words):
    done = house.run(*args)

    assert done.returncode == code, done.stderr
    assert words in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def terminal(tmp_path):
    found = Terminal(tmp_path)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.proves("B25")
def test_after_an_outage_one_looks_without_a_server_and_then_chooses(terminal):
    dev = terminal.start("dev", "app.py", "--no-reload")
    dev.until("worker ready")
    assert terminal.run("schedules", "put", "tick", "--workflow", "greet", "--every", "1s").returncode == 0
    dev.signal(signal.SIGINT)
    dev.ended()
    deadline = time.monotonic() + SECONDS
    while True:
        late = terminal.json("catchup", "--preview", "--policy", "all")["schedules"]  # none in the first second
        if late and late[0]["late"] >= 3:
            (one,) = late
            break
        assert time.monotonic() < deadline
    own = terminal.json("catchup", "--preview")["schedules"][0]
    shown = terminal.run("catchup", "--preview", "--policy", "none")
    chosen = terminal.start("server", "--catch-up", "all")
    chosen.until("tickwork server:")
    caught, fates = [], []
    while not caught and time.monotonic() < deadline + SECONDS:
        fates = terminal.json("schedules", "history", "tick")["occurrences"]
        caught = [fate for fate in fates if fate["from_at"] <= one["late_since"] <= fate["to_at"]]

    assert one["runs"] == one["late"] and own["runs"] == 1 and own["policy"] == "last"
    assert "would run" in shown.stdout and "no server is running" in shown.stderr
    # Before and after the outage a slow machine may be late too, and then the schedule's own policy counts.
    assert [fate["fate"] for fate in caught] == ["ran"] and caught[0]["count"] >= one["late"], json.dumps(fates)
