"""What is owed and when, over all partitions: the sum of every partition's latest figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas import instants
from schemas.errors import Refused

BIN_MS: Final = {
    "minute": instants.MINUTE_MS,
    "hour": instants.HOUR_MS,
    "day": instants.DAY_MS,
}
BUCKETS_MAX: Final = 10_000


def owed(
    figures: Iterable[Mapping[str, Any]], by: str, from_ms: int | None, to_ms: int | None
) -> dict[str, Any]:
    """Counts per bucket and tenant between two instants (the second not included).

    Minutes are known for a day ahead, hours for two weeks, days for 400. Raises `Refused` naming
    the field.
    """
    if by not in BIN_MS:
        raise Refused("invalid", f"by: minute, hour or day, not {by!r}", "by")
    width_ms = BIN_MS[by]
    bins: dict[int, dict[str, int]] = {}
    pending = claims = 0
    for figure in figures:
        pending += figure["pending"]
        claims += figure["claims"]
        names = figure["tenants"]
        for at, counts in figure[by + "s"].items():
            at_ms = int(at) * width_ms
            after_start = from_ms is None or at_ms + width_ms > from_ms
            if after_start and (to_ms is None or at_ms < to_ms):
                shown = bins.setdefault(at_ms, {})
                for number, count in counts:
                    tenant = names[number]
                    shown[tenant] = shown.get(tenant, 0) + count
    return {
        "by": by,
        "from": None if from_ms is None else instants.text(from_ms),
        "to": None if to_ms is None else instants.text(to_ms),
        "pending": pending,
        "claims": claims,
        "buckets": [
            {
                "at": instants.text(at_ms),
                "count": sum(tenants.values()),
                "tenants": dict(sorted(tenants.items(), key=lambda item: -item[1])),
            }
            for at_ms, tenants in sorted(bins.items())[:BUCKETS_MAX]
        ],
    }


def instant(text: str | None, field: str) -> int | None:
    """UTC milliseconds of an RFC 3339 text or epoch milliseconds in a query, or `Refused`."""
    if not text:
        return None
    if text.isdigit():
        return instants.accept(int(text), field)
    return instants.accept(instants.parse(text, field), field)
