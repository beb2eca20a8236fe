"""Zones against the standard library, over the same data."""

import struct
from datetime import UTC as PYTHON_UTC
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.calendar.minute_oracle import zone_info
from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.calendar.zones import UTC, UTC_ONLY, Gap, Zones, names_in_use, parse_rule, parse_zone
from tickwork.system.zone_data import load_zones

ZONES = load_zones()
YEAR_1900, YEAR_2100 = -2_208_988_800, 4_102_444_800
EPOCH = datetime(1970, 1, 1, tzinfo=PYTHON_UTC)


def s(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=PYTHON_UTC).timestamp())


def library_offset(name, utc_s):
    moment = (EPOCH + timedelta(seconds=utc_s)).astimezone(zone_info(name))
    return moment.utcoffset() // timedelta(seconds=1)


@pytest.mark.proves("B8", "S004-80")
@pytest.mark.parametrize("name", ZONES.names)
def test_a_zone_has_the_offsets_that_the_standard_library_finds(name):
    zone = ZONES.get(name)
    moments = list(range(YEAR_1900, YEAR_2100, 40 * 86_400 + 12_345))
    edges = [at for one in zone.periods(YEAR_1900, YEAR_2100) for at in (one.start_s - 1, one.start_s)][1:]
    moments += [at for at in edges if at >= YEAR_1900]

    assert [(at, zone.offset_s(at)) for at in moments] == [(at, library_offset(name, at)) for at in moments]


@given(
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Tokyo", "America/Nuuk"]),
    st.integers(s("2037-01-01"), s("9998-12-31")),
)
def test_the_far_future_repeats_the_rule_of_the_last_line(name, at):
    assert ZONES.get(name).offset_s(at) == library_offset(name, at)


@given(st.sampled_from(ZONES.names), st.integers(YEAR_1900, YEAR_2100))
def test_a_reading_leads_back_to_its_instants(name, at):
    zone = ZONES.get(name)
    local = at + zone.offset_s(at)
    found = zone.instants(local)

    assert at in found
    assert list(found) == sorted(set(found))
    assert all(one + zone.offset_s(one) == local for one in found)
    assert zone.first_s(local) == found[0]
    assert zone.last_s(local) == found[-1]
    assert zone.gap(local) is None


@pytest.mark.proves("B10")
@pytest.mark.parametrize(
    ("name", "local", "instants"),
    [
        ("UTC", "2026-03-29T02:30", ["2026-03-29T02:30"]),
        ("Europe/Berlin", "2026-10-25T02:30", ["2026-10-25T00:30", "2026-10-25T01:30"]),
        ("Europe/Berlin", "2026-10-25T03:00", ["2026-10-25T02:00"]),
        ("Europe/Berlin", "2026-03-29T02:30", []),
        ("Australia/Lord_Howe", "2026-04-05T01:45", ["2026-04-04T14:45", "2026-04-04T15:15"]),
        ("Pacific/Apia", "2011-12-30T12:00", []),
        ("Asia/Pyongyang", "2015-08-14T23:45", ["2015-08-14T14:45", "2015-08-14T15:15"]),
        ("Asia/Pyongyang", "2018-05-04T23:45", []),
    ],
)
def test_the_instants_of_a_reading_are(name, local, instants):
    assert ZONES.get(name).instants(s(local)) == tuple(s(one) for one in instants)


@pytest.mark.proves("B10")
@pytest.mark.parametrize(
    ("name", "local", "start", "end", "at"),
    [
        ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T02:00", "2026-03-29T03:00", "2026-03-29T01:00"),
        ("Europe/Berlin", "2526-03-31T02:59", "2526-03-31T02:00", "2526-03-31T03:00", "2526-03-31T01:00"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "2026-10-04T02:00", "2026-10-04T02:30", "2026-10-03T15:30"),
        ("Pacific/Apia", "2011-12-30T12:00", "2011-12-30T00:00", "2011-12-31T00:00", "2011-12-30T10:00"),
        ("America/Santiago", "2026-09-06T00:30", "2026-09-06T00:00", "2026-09-06T01:00", "2026-09-06T04:00"),
    ],
)
def test_a_reading_that_does_not_exist_lies_in_a_gap(name, local, start, end, at):
    zone = ZONES.get(name)

    assert zone.gap(s(local)) == Gap(s(start), s(end), s(at))
    assert zone.first_s(s(local)) == zone.last_s(s(local)) == s(at)
    assert zone.gap(s(end)) is None


@pytest.mark.proves("B8", "S004-80")
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Mars/Olympus", "use a name like Europe/Berlin"),
        ("", "use a name like"),
        ("EST", "use America/Panama"),
        ("EST5EDT", "use a name like"),
        ("US/Eastern", "use America/New_York"),
        ("Asia/Calcutta", "use Asia/Kolkata"),
        ("GMT", "use Etc/GMT"),
        ("europe/berlin", "use Europe/Berlin"),
        ("utc", "use UTC"),
        ("Factory", "use a name like"),
        ("../../etc/passwd", "use a name like"),
        ("Europe/../Europe/Berlin", "use a name like"),
        ("/etc/localtime", "use a name like"),
        ("Europe", "use a name like"),
        ("zone.tab", "use a name like"),
        ("Europe/Berlin\0", "use a name like"),
        ("x" * 100_000, "use a name like"),
    ],
)
def test_only_names_of_the_list_are_zones(name, advice):
    with pytest.raises(Refused) as caught:
        ZONES.get(name, path="schedule.zone")

    assert (caught.value.code, caught.value.path) == ("unknown_zone", "schedule.zone")
    assert advice in caught.value.message
    assert len(str(caught.value)) < 250


@pytest.mark.proves("B8")
def test_a_name_outside_the_list_is_never_read():
    asked = []
    zones = Zones("2026a", ["Europe/Berlin"], lambda name: asked.append(name) or b"")
    for name in ("../../etc/passwd", "Europe/Paris", "europe/berlin"):
        with pytest.raises(Refused):
            zones.get(name)

    assert asked == []


@pytest.mark.proves("B8", "I21")
def test_a_zone_that_an_update_removed_is_refused_by_the_new_data():
    def read(name):
        return load_zones()._read(name)

    old = Zones("2025a", ["Europe/Berlin", "Europe/Kyiv"], read)
    new = Zones("2026a", ["Europe/Berlin"], read, {"Europe/Kyiv": "Europe/Berlin"})

    assert old.get("Europe/Kyiv").name == "Europe/Kyiv"
    with pytest.raises(Refused, match="use Europe/Berlin"):
        new.get("Europe/Kyiv")


def test_a_place_that_a_country_uses_is_no_old_name():
    for name in ("Europe/Amsterdam", "Europe/Stockholm", "Asia/Kolkata", "America/Indiana/Knox", "Etc/GMT+5", "UTC"):
        assert ZONES.get(name).name == name


@pytest.mark.proves("S004-83")
def test_utc_is_there_without_any_data():
    assert UTC_ONLY.get("UTC") is UTC is ZONES.get("UTC")
    assert UTC.offset_s(0) == 0
    assert UTC_ONLY.names == ["UTC"]
    with pytest.raises(Refused):
        UTC_ONLY.get("Europe/Berlin")


@pytest.mark.proves("I21")
def test_the_data_carries_its_version_and_is_read_once():
    import tzdata

    assert ZONES.version == tzdata.IANA_VERSION
    assert load_zones() is ZONES
    assert ZONES.get("Europe/Berlin") is ZONES.get("Europe/Berlin")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"TZif",
        b"x" * 100,
        b"TZif\0" + b"\0" * 39,
        b"TZif2" + b"\0" * 15 + struct.pack(">6l", 0, 0, 0, 9, 1, 1) + b"\0" * 10,
        b"TZif2" + b"\0" * 15 + struct.pack(">6l", 0, 0, 0, -1, 1, 1) + b"\0" * 10,
        load_zones()._read("Europe/Berlin")[:-5],
    ],
)
def test_damaged_data_is_named_and_not_used(data):
    with pytest.raises(Corrupt, match="Test/Zone"):
        parse_zone("Test/Zone", data)


@pytest.mark.parametrize(
    ("rule", "year", "changes"),
    [
        ("EST5EDT,M3.2.0,M11.1.0", 2026, [("2026-03-08T07:00", -4), ("2026-11-01T06:00", -5)]),
        ("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", 2026, [("2026-04-04T15:00", 10.5), ("2026-10-03T15:30", 11)]),
        ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", 2026, [("2026-03-29T01:00", -1), ("2026-10-25T01:00", -2)]),
        ("AAA0BBB,J60/0,J300/0", 2024, [("2024-03-01T00:00", 1), ("2024-10-26T23:00", 0)]),
        ("AAA0BBB,59/0,299/0", 2024, [("2024-02-29T00:00", 1), ("2024-10-25T23:00", 0)]),
        ("JST-9", 2026, []),
    ],
)
def test_the_last_line_of_a_file_says_when_clocks_change(rule, year, changes):
    assert parse_rule(rule).changes(year) == [(s(at), int(hours * 3600)) for at, hours in changes]


@pytest.mark.parametrize("rule", ["", "X5", "EST", "EST5EDT", "EST5EDT,M3.6.0,M11.1.0", "EST5EDT,M3.2.0"])
def test_a_last_line_that_is_no_rule_is_an_error(rule):
    with pytest.raises(ValueError, match="not a rule"):
        parse_rule(rule)


def test_old_names_are_told_from_places_by_the_data_itself():
    names, links = names_in_use(
        ["UTC", "EST", "Factory", "A/City", "A/Old", "A/Small"],
        "# version\nZ A/City 1 - X\nL A/City A/Old\nL A/City A/Small\nL A/City EST\n",
        "# table\nAA\t+00+00\tA/City\nAB\t+00+00\tA/Small\tcomment\n",
    )

    assert names == ["UTC", "A/City", "A/Small"]
    assert links == {"A/Old": "A/City", "EST": "A/City"}
