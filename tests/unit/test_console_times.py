"""Times as they are typed and shown."""

import pytest

from schemas.errors import Refused
from streams.console import times

NOW_MS = 1_796_043_600_000  # 2026-11-30T13:00:00Z


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("+30s", "2026-11-30T13:00:30.000Z"),
        ("+5m", "2026-11-30T13:05:00.000Z"),
        ("+2h", "2026-11-30T15:00:00.000Z"),
        ("+3d", "2026-12-03T13:00:00.000Z"),
        ("+1w", "2026-12-07T13:00:00.000Z"),
        ("+1h30m", "2026-11-30T14:30:00.000Z"),
        ("-2d", "2026-11-28T13:00:00.000Z"),
        (" +30s ", "2026-11-30T13:00:30.000Z"),
        ("now", "2026-11-30T13:00:00.000Z"),
        ("1796043600000", 1_796_043_600_000),
        ("2026-12-01T09:00:00+01:00", "2026-12-01T09:00:00+01:00"),
        ("tomorrow", "tomorrow"),
        ("²", "²"),
    ],
)
def test_typed_times_become_what_a_command_carries(typed: str, expected: str | int) -> None:
    assert times.instant(typed, NOW_MS, "due_at") == expected


@pytest.mark.parametrize("typed", ["+", "+5", "+5x", "+h", "+1.5h", "-soon", "+5M", "+٣s"])
def test_a_distance_that_is_none_is_refused_by_field(typed: str) -> None:
    with pytest.raises(Refused) as refused:
        times.instant(typed, NOW_MS, "due_at")
    assert refused.value.field == "due_at"


@pytest.mark.parametrize("typed", ["+999999999d", "-999999999d"])
def test_a_distance_out_of_the_calendar_is_refused(typed: str) -> None:
    with pytest.raises(Refused, match="1970 to 9999"):
        times.instant(typed, NOW_MS, "not_after")


@pytest.mark.parametrize(
    ("away_ms", "said"),
    [
        (0, "now"),
        (499, "now"),
        (500, "in 1 s"),
        (10_000, "in 10 s"),
        (-61_000, "1 min 1 s ago"),
        (3_600_000, "in 1 h"),
        (3_605_000, "in 1 h"),
        (183_600_000, "in 2 d 3 h"),
        (-86_400_000 * 400, "400 d ago"),
    ],
)
def test_distances_are_said_in_two_units_at_most(away_ms: int, said: str) -> None:
    assert times.said_from_now(NOW_MS + away_ms, NOW_MS) == said
