"""Instants: UTC milliseconds since 1970 inside, RFC 3339 outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from schemas.errors import Refused
from schemas.limits import INSTANT_MS_MAX, SECONDS_SUSPECTED_BELOW_MS

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


def milliseconds(instant: datetime) -> int:
    """The instant in UTC milliseconds, a fraction rounded up so that nothing fires early."""
    since = instant - EPOCH
    return since.days * DAY_MS + since.seconds * 1_000 - (-since.microseconds // 1_000)


def accept(value: datetime | int, field: str) -> int:
    """UTC milliseconds of an instant a caller gave, or `Refused` naming `field`."""
    if isinstance(value, int):
        if 0 < value < SECONDS_SUSPECTED_BELOW_MS:
            raise Refused(
                "seconds_for_milliseconds",
                f"{field}: {value} lies before 2001-09-09 as milliseconds; "
                "an integer is epoch milliseconds, not seconds",
                field,
            )
        instant_ms = value
    elif value.tzinfo is None:
        raise Refused("no_offset", f"{field}: needs an offset, such as Z or +02:00", field)
    else:
        instant_ms = milliseconds(value)
    if not 0 <= instant_ms <= INSTANT_MS_MAX:
        raise Refused("out_of_range", f"{field}: years 1970 to 9999 are accepted", field)
    return instant_ms


_MILLISECONDS: Final = [f"{rest_ms:03d}Z" for rest_ms in range(1_000)]


@lru_cache(maxsize=8_192)
def _text_of_second(second: int) -> str:
    return (EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.")


def text(instant_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds: `2026-12-01T09:00:00.000Z`."""
    second, rest_ms = divmod(instant_ms, 1_000)
    return _text_of_second(second) + _MILLISECONDS[rest_ms]


def parse(value: str, field: str) -> datetime:
    """The instant of an RFC 3339 text, or `Refused` naming `field`."""
    try:
        return msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        raise Refused("invalid", f"{field}: {value!r} is no RFC 3339 instant", field) from None
