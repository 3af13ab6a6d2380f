"""Local times: gaps, folds, zones and the ends of the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets import calendar
from schemas import instants
from schemas.errors import Refused


def utc(text: str) -> int:
    return instants.milliseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


GAPS = [
    # Berlin: 02:00 becomes 03:00.
    ("Europe/Berlin", "2026-03-29T01:59:59", "2026-03-29T00:59:59"),
    ("Europe/Berlin", "2026-03-29T02:00", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-03-29T02:30", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-03-29T02:59:59", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-03-29T03:00:01", "2026-03-29T01:00:01"),
    # New York: 02:00 becomes 03:00.
    ("America/New_York", "2026-03-08T01:59", "2026-03-08T06:59"),
    ("America/New_York", "2026-03-08T02:30", "2026-03-08T07:00"),
    ("America/New_York", "2026-03-08T03:00", "2026-03-08T07:00"),
    # Lord Howe: half an hour, 02:00 becomes 02:30.
    ("Australia/Lord_Howe", "2026-10-04T01:59", "2026-10-03T15:29"),
    ("Australia/Lord_Howe", "2026-10-04T02:00", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-10-04T02:29:59", "2026-10-03T15:30"),
    ("Australia/Lord_Howe", "2026-10-04T02:30", "2026-10-03T15:30"),
    # Santiago: midnight itself does not exist.
    ("America/Santiago", "2026-09-05T23:59", "2026-09-06T03:59"),
    ("America/Santiago", "2026-09-06T00:00", "2026-09-06T04:00"),
    ("America/Santiago", "2026-09-06T00:59:59", "2026-09-06T04:00"),
    ("America/Santiago", "2026-09-06T01:00", "2026-09-06T04:00"),
    # Casablanca: forward again when Ramadan is over.
    ("Africa/Casablanca", "2026-03-22T01:59", "2026-03-22T01:59"),
    ("Africa/Casablanca", "2026-03-22T02:30", "2026-03-22T02:00"),
    ("Africa/Casablanca", "2026-03-22T03:00", "2026-03-22T02:00"),
    # Kiritimati: the last day of 1994 was left out.
    ("Pacific/Kiritimati", "1994-12-30T23:59", "1994-12-31T09:59"),
    ("Pacific/Kiritimati", "1994-12-31T00:00", "1994-12-31T10:00"),
    ("Pacific/Kiritimati", "1994-12-31T12:00", "1994-12-31T10:00"),
    ("Pacific/Kiritimati", "1994-12-31T23:59:59", "1994-12-31T10:00"),
    ("Pacific/Kiritimati", "1995-01-01T00:00", "1994-12-31T10:00"),
]


@pytest.mark.parametrize(("zone", "local", "expected"), GAPS)
def test_in_a_gap_the_first_valid_instant_after_it(zone: str, local: str, expected: str) -> None:
    assert calendar.instant_ms(local, zone) == utc(expected)


FOLDS = [
    ("Europe/Berlin", "2026-10-25T01:59:59", "2026-10-24T23:59:59"),
    ("Europe/Berlin", "2026-10-25T02:00", "2026-10-25T00:00"),
    ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T00:30"),
    ("Europe/Berlin", "2026-10-25T02:59:59", "2026-10-25T00:59:59"),
    ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00"),
    ("America/New_York", "2026-11-01T01:30", "2026-11-01T05:30"),
    ("America/New_York", "2026-11-01T02:00", "2026-11-01T07:00"),
    ("Australia/Lord_Howe", "2026-04-05T01:45", "2026-04-04T14:45"),
    ("Australia/Lord_Howe", "2026-04-05T02:00", "2026-04-04T15:30"),
    ("America/Santiago", "2026-04-04T23:30", "2026-04-05T02:30"),
    ("America/Santiago", "2026-04-05T00:00", "2026-04-05T04:00"),
    # Casablanca: back for Ramadan.
    ("Africa/Casablanca", "2026-02-15T02:30", "2026-02-15T01:30"),
    ("Africa/Casablanca", "2026-02-15T03:00", "2026-02-15T03:00"),
    ("Pacific/Kiritimati", "2026-07-01T12:00", "2026-06-30T22:00"),
]


@pytest.mark.parametrize(("zone", "local", "expected"), FOLDS)
def test_in_a_fold_the_first_of_the_two(zone: str, local: str, expected: str) -> None:
    assert calendar.instant_ms(local, zone) == utc(expected)


ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Pacific/Kiritimati",
    "Pacific/Apia",
    "UTC",
]
MINUTES = st.integers(365 * 1_440, 130 * 365 * 1_440).map(
    lambda minute: instants.EPOCH.replace(tzinfo=None) + timedelta(minutes=minute)
)


@given(zone=st.sampled_from(ZONES), local=MINUTES)
def test_no_instant_before_it_shows_the_local_time_or_a_later_one(
    zone: str, local: datetime
) -> None:
    """Never early by the wall clock of the zone, and never later than the end of a gap."""
    found = instants.EPOCH + timedelta(
        milliseconds=calendar.instant_ms(local.isoformat(timespec="minutes"), zone)
    )
    rules = calendar.zone(zone)
    shown = found.astimezone(rules).replace(tzinfo=None)
    assert shown >= local
    before = (found - timedelta(milliseconds=1)).astimezone(rules).replace(tzinfo=None)
    assert before < local
    if shown > local:
        assert shown - before > timedelta(milliseconds=1)


@given(zone=st.sampled_from(ZONES), local=MINUTES, later=MINUTES)
def test_a_later_local_time_is_never_an_earlier_instant(
    zone: str, local: datetime, later: datetime
) -> None:
    first, second = sorted((local, later))
    found = [
        calendar.instant_ms(moment.isoformat(timespec="minutes"), zone)
        for moment in (first, second)
    ]
    assert found[0] <= found[1]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Mars/Olympus",
        "../etc/passwd",
        "/etc/localtime",
        "Europe",
        "Europe/",
        "Europe/Berlin\0",
        "x" * 128,
        "\ud800",
        "zone.tab",
        "tzdata.zi",
        "+02:00",
        "europe/berlin ",
    ],
)
def test_an_unknown_zone_is_refused_by_its_field(name: str) -> None:
    with pytest.raises(Refused) as refused:
        calendar.instant_ms("2026-12-01T09:00", name)
    assert (refused.value.code, refused.value.field) == ("unknown_zone", "time_zone")


@pytest.mark.parametrize(
    "local",
    [
        "2026-02-30T09:00",
        "2026-13-01T09:00",
        "2026-12-01T24:00",
        "2026-12-01T09:60",
        "2026-12-01T09:00:60",
        "0000-01-01T00:00",
        "",
        "2026-12-01T09:00\n",
    ],
)
def test_what_is_no_local_time_is_refused_by_its_field(local: str) -> None:
    with pytest.raises(Refused) as refused:
        calendar.instant_ms(local, "Europe/Berlin")
    assert (refused.value.code, refused.value.field) == ("invalid", "due_local")


@pytest.mark.parametrize(
    ("zone", "local", "accepted"),
    [
        ("UTC", "1970-01-01T00:00", True),
        ("UTC", "1969-12-31T23:59:59", False),
        ("Europe/Berlin", "1970-01-01T01:00", True),
        ("Europe/Berlin", "1970-01-01T00:59:59", False),
        ("America/New_York", "1969-12-31T19:00", True),
        ("America/New_York", "1969-12-31T18:59:59", False),
        ("UTC", "9999-12-31T23:59:59", True),
        ("America/New_York", "9999-12-31T18:59:59", True),
        ("America/New_York", "9999-12-31T19:00", False),
        ("Pacific/Kiritimati", "9999-12-31T23:59:59", True),
        ("Pacific/Kiritimati", "0001-01-01T00:00", False),
        ("America/New_York", "0001-01-01T00:00", False),
    ],
)
def test_the_years_1970_to_9999_are_accepted(zone: str, local: str, accepted: bool) -> None:
    if accepted:
        assert 0 <= calendar.instant_ms(local, zone) <= 253_402_300_799_000
        return
    with pytest.raises(Refused) as refused:
        calendar.instant_ms(local, zone)
    assert (refused.value.code, refused.value.field) == ("out_of_range", "due_local")
