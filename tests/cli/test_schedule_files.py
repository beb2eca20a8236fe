"""Sets of schedules in files, and every occurrence in which two of them differ. No server anywhere."""

import json
import os
import shutil
from importlib.resources import files

import pytest

from tickwork.cli.commands.schedule_file import read_schedules
from tickwork.cli.exit_codes import CommandExit
from tickwork.cli.main import main

MONDAY = "2026-03-23T00:00:00Z"  # the week in which Berlin changes its clocks


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("TICKWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TICKWORK_PORT", "1")
    monkeypatch.chdir(tmp_path)


def written(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "daily: {workflow: w, cron: '0 9 * * *', exclude: [2026-12-25], at: ''}"),
        (
            "a.yaml",
            "owner: me\nschedules:\n  daily:\n    workflow: w\n    cron: 0 9 * * *\n    exclude: [2026-12-25]\n",
        ),
        ("a.json", '{"schedules": {"daily": {"workflow": "w", "cron": "0 9 * * *", "exclude": ["2026-12-25"]}}}'),
    ],
)
def test_a_set_is_a_mapping_with_or_without_a_frame_and_dates_stay_texts(tmp_path, name, text):
    found = read_schedules(written(tmp_path / name, text))

    assert list(found.schedules) == ["daily"]
    assert found.schedules["daily"].cron == "0 9 * * *"
    assert found.schedules["daily"].exclude == ("2026-12-25",)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "daily: {workflow: w, corn: x}", "schedules.daily: Object contains unknown field `corn`"),
        ("a.yaml", "ok: {workflow: w, cron: x}\ndaily: {workflow: w, jitter: 5}", "schedules.daily.jitter"),
        ("a.yaml", "daily: {workflow: w}\ndaily: {workflow: v}", "'daily' appears twice"),
        ("a.json", '{"daily": {"workflow": "w"}, "daily": {"workflow": "v"}}', "'daily' appears twice"),
        ("a.yaml", "daily: [", "line"),
        ("a.yaml", "- daily", "mapping"),
        ("a.yaml", "", "mapping"),
        ("a.yaml", "workflow: w\ncron: x", "without its name"),
        ("a.json", "{", "a.json"),
        ("a.yaml", "daily: !!python/object/apply:os.system [echo]", "tag"),
    ],
)
def test_a_file_that_is_not_a_set_is_refused_in_one_line(tmp_path, name, text, words):
    with pytest.raises(CommandExit) as refused:
        read_schedules(written(tmp_path / name, text))

    assert words in refused.value.text
    assert "\n" not in refused.value.text


def test_two_sets_differ_in_the_occurrences_that_only_one_has(tmp_path, capsys):
    written(tmp_path / "a.yaml", "night: {workflow: w, cron: '30 2 * * *', timezone: Europe/Berlin}\n"
            "same: {workflow: w, cron: '0 12 * * *'}")  # fmt: skip
    written(tmp_path / "b.yaml", "night: {workflow: w, cron: '30 2 * * *', timezone: Europe/Berlin, dst_gap: skip}\n"
            "same: {workflow: v, cron: '0 12 * * *'}")  # fmt: skip

    assert main(["schedules", "diff", "a.yaml", "b.yaml", "--days", "30", "--start", MONDAY, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differences"] == [
        {"sign": "-", "schedule": "night", "utc": "2026-03-29T01:30:00Z", "local": "2026-03-29T03:30:00+02:00"}
    ]


def test_equal_sets_have_nothing_to_show(tmp_path, capsys):
    written(tmp_path / "a.yaml", "night: {workflow: w, cron: 'H H * * *'}")

    assert main(["schedules", "diff", "a.yaml", "a.yaml"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "" and "the same for 30 days" in shown.err


def test_holidays_of_the_file_count(tmp_path, capsys):
    text = "schedules: {x: {workflow: w, cron: '0 9 * * *'%s}}\nholidays: {feast: [2026-03-24]}"
    written(tmp_path / "a.yaml", text % "")
    written(tmp_path / "b.yaml", text % ", holidays: [feast]")

    assert main(["schedules", "diff", "a.yaml", "b.yaml", "--start", MONDAY]) == 1
    shown = capsys.readouterr()
    assert "2026-03-24T09:00:00Z" in shown.out and "1 occurrences differ" in shown.err


def test_what_counts_from_when_it_is_put_counts_from_the_beginning_of_the_window(tmp_path, capsys):
    written(tmp_path / "a.yaml", "rule: {workflow: w, rrule: 'FREQ=DAILY'}\nwatch: {workflow: w, every: 6h}")
    written(tmp_path / "b.yaml", "rule: {workflow: w, rrule: 'FREQ=DAILY'}\nwatch: {workflow: w, every: 12h}")

    assert main(["schedules", "diff", "a.yaml", "b.yaml", "--days", "1", "--start", MONDAY, "--json"]) == 1
    found = [
        (one["sign"], one["schedule"], one["utc"][11:]) for one in json.loads(capsys.readouterr().out)["differences"]
    ]
    assert found == [("-", "watch", "06:00:00Z"), ("-", "watch", "18:00:00Z")]


def test_no_more_occurrences_are_compared_than_a_schedule_may_run(tmp_path, capsys):
    written(tmp_path / "a.yaml", "few: {workflow: w, cron: '0 9 * * *', max_runs: 2}")
    written(tmp_path / "b.yaml", "few: {workflow: w, cron: '0 9 * * *', max_runs: 3}")

    assert main(["schedules", "diff", "a.yaml", "b.yaml", "--start", MONDAY, "--json"]) == 1
    (one,) = json.loads(capsys.readouterr().out)["differences"]
    assert (one["sign"], one["utc"]) == ("+", "2026-03-25T09:00:00Z")


def other_zoneinfo(tmp_path):
    """The data as we have it, but Berlin keeps the offset of Lagos all year."""
    folder = tmp_path / "zoneinfo"
    with_data = files("tzdata") / "zoneinfo"
    for name in ("Europe/Berlin", "Africa/Lagos", "Europe/Paris"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(with_data.joinpath(*name.split("/")).read_bytes())
    shutil.copy(folder / "Africa/Lagos", folder / "Europe/Berlin")
    (folder / "zone.tab").write_text("DE\t+5230+01322\tEurope/Berlin\n")
    (folder / "tzdata.zi").write_text("# version 2099z\n")
    return folder


def test_two_versions_of_the_zones_differ_where_a_clock_does(tmp_path, capsys):
    written(tmp_path / "a.yaml", "berlin: {workflow: w, cron: '0 9 * * *', timezone: Europe/Berlin}\n"
            "paris: {workflow: w, cron: '0 9 * * *', timezone: Europe/Paris}")  # fmt: skip
    folder = other_zoneinfo(tmp_path)
    args = ["schedules", "diff", "a.yaml", "--tzdata", str(folder), "--days", "7", "--start", MONDAY, "--json"]

    assert main(args) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["tzdata"][0] == "2099z" != found["tzdata"][1]
    assert [(one["sign"], one["schedule"], one["utc"]) for one in found["differences"]] == [
        ("+", "berlin", "2026-03-29T07:00:00Z"),
        ("-", "berlin", "2026-03-29T08:00:00Z"),
    ]


def test_a_zone_that_one_version_does_not_know_is_named(tmp_path, capsys):
    written(tmp_path / "a.yaml", "x: {workflow: w, cron: '0 9 * * *', timezone: Asia/Tokyo}")

    assert main(["schedules", "diff", "a.yaml", "--tzdata", str(other_zoneinfo(tmp_path))]) == 3
    shown = capsys.readouterr().err
    assert "schedules.x.timezone" in shown and "2099z" in shown and len(shown.splitlines()) == 1


@pytest.mark.parametrize("text", ["x: {workflow: w, cron: '61 * * * *'}", "x: {workflow: w}"])
def test_times_that_cannot_be_read_are_refused_with_their_place(tmp_path, capsys, text):
    written(tmp_path / "a.yaml", text)

    assert main(["schedules", "diff", "a.yaml", "a.yaml"]) == 4
    shown = capsys.readouterr().err
    assert "schedules.x.cron" in shown and len(shown.splitlines()) == 1
