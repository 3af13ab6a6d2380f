"""Instants are UTC milliseconds, never earlier than what was asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas import instants, limits
from schemas.errors import Refused

INSTANTS_MS = st.integers(0, limits.INSTANT_MS_MAX)
OFFSETS = st.integers(-1_439, 1_439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(INSTANTS_MS)
@example(0)
@example(limits.INSTANT_MS_MAX)
def test_text_leads_back(instant_ms: int) -> None:
    written = instants.text(instant_ms)
    assert len(written) == len("2026-12-01T09:00:00.000Z")
    assert instants.milliseconds(datetime.fromisoformat(written)) == instant_ms


@given(INSTANTS_MS, INSTANTS_MS)
def test_order_of_texts_is_order_of_time(one: int, other: int) -> None:
    assert (instants.text(one) < instants.text(other)) == (one < other)


@given(st.datetimes(timezones=OFFSETS))
def test_a_fraction_is_rounded_up(instant: datetime) -> None:
    instant_ms = instants.milliseconds(instant)
    exact_us = (instant - instants.EPOCH) // timedelta(microseconds=1)
    assert 0 <= instant_ms * 1_000 - exact_us < 1_000


@pytest.mark.parametrize(
    ("microsecond", "millisecond"),
    [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (999_000, 999), (999_001, 1_000)],
)
def test_rounding_at_the_edges(microsecond: int, millisecond: int) -> None:
    assert instants.milliseconds(datetime(1970, 1, 1, 0, 0, 0, microsecond, UTC)) == millisecond


@given(INSTANTS_MS, OFFSETS)
def test_the_offset_makes_no_difference(instant_ms: int, offset: timezone) -> None:
    # A day away from both ends, so that the local text has a year that can be written.
    instant_ms = min(max(instant_ms, instants.DAY_MS), limits.INSTANT_MS_MAX - instants.DAY_MS)
    there = datetime.fromisoformat(instants.text(instant_ms)).astimezone(offset)
    assert instants.accept(there, "due_at") == instant_ms


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (1, "seconds_for_milliseconds"),
        (limits.SECONDS_SUSPECTED_BELOW_MS - 1, "seconds_for_milliseconds"),
        (-1, "out_of_range"),
        (limits.INSTANT_MS_MAX + 1, "out_of_range"),
        (10**100, "out_of_range"),
        (datetime(2026, 12, 1), "no_offset"),  # noqa: DTZ001 - that is what is refused
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "out_of_range"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_001, UTC), "out_of_range"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))), "out_of_range"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-23))), "out_of_range"),
    ],
)
def test_refused_by_the_field_given(value: datetime | int, code: str) -> None:
    with pytest.raises(Refused) as caught:
        instants.accept(value, "not_after")
    assert (caught.value.code, caught.value.field) == (code, "not_after")


@pytest.mark.parametrize(
    "value", [0, limits.SECONDS_SUSPECTED_BELOW_MS, limits.INSTANT_MS_MAX, 1_796_115_600_000]
)
def test_integers_are_milliseconds(value: int) -> None:
    assert instants.accept(value, "due_at") == value
