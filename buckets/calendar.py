"""Local times: the instant a wall clock in a zone shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schemas.errors import Refused
from schemas.instants import milliseconds
from schemas.limits import INSTANT_MS_MAX


@lru_cache(maxsize=512)
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name, or `Refused`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refused(
            "unknown_zone", f"time_zone: {name!r} is no IANA time zone", "time_zone"
        ) from None


def instant_ms(local: str, zone_name: str) -> int:
    """UTC milliseconds of a local time such as `2026-12-01T09:00`, or `Refused`.

    The instant lies in the years 1970 to 9999, as one given in UTC does.

    In a gap (clocks go forward) it is the first valid instant after the gap; in a fold (clocks
    go back) the first of the two. Source: PEP 495, which gives a time in a gap with fold=0 the
    offset before the transition: mapped to UTC and back it lands as far after the gap as it
    stood inside.
    """
    rules = zone(zone_name)
    try:
        naive = datetime.fromisoformat(local)
        aware = naive.replace(tzinfo=rules, fold=0)
        there_and_back = aware.astimezone(UTC).astimezone(rules)
        if there_and_back.replace(tzinfo=None) != naive:
            aware = _end_of_gap(aware, rules)
        instant = milliseconds(aware)
    except ValueError:
        raise Refused("invalid", f"due_local: {local!r} is no local time", "due_local") from None
    except OverflowError:
        # The year 10000 or 0, in UTC.
        instant = -1
    if not 0 <= instant <= INSTANT_MS_MAX:
        raise Refused("out_of_range", "due_local: years 1970 to 9999 are accepted", "due_local")
    return instant


def _end_of_gap(inside: datetime, rules: ZoneInfo) -> datetime:
    """The transition that skips `inside`, found by halving the stretch around it."""
    # Offsets before and after the gap, applied to the same wall time, bracket the transition.
    late = inside.replace(fold=0).astimezone(UTC)
    early = inside.replace(fold=1).astimezone(UTC)
    offset_before = early.astimezone(rules).utcoffset()
    while late - early > timedelta(milliseconds=1):
        middle = early + (late - early) / 2
        if middle.astimezone(rules).utcoffset() == offset_before:
            early = middle
        else:
            late = middle
    # A transition falls on a whole second, and `late` is less than a millisecond past it.
    return late.replace(microsecond=0)
