"""Times as people type them, and as they read them."""

from __future__ import annotations

import re
from typing import Final

from schemas import instants
from schemas.errors import Refused
from schemas.limits import INSTANT_MS_MAX

UNIT_MS: Final = {
    "w": 7 * instants.DAY_MS,
    "d": instants.DAY_MS,
    "h": instants.HOUR_MS,
    "m": instants.MINUTE_MS,
    "s": 1_000,
}
_RELATIVE: Final = re.compile(r"([+-])((?:[0-9]{1,15}[wdhms])+)")
_PART: Final = re.compile(r"([0-9]+)([wdhms])")


def distance_ms(text: str) -> int | None:
    """The milliseconds of `+30s`, `+1h30m` or `-2d`; None if the text is nothing of the kind."""
    match = _RELATIVE.fullmatch(text)
    if match is None:
        return None
    total_ms = sum(int(count) * UNIT_MS[unit] for count, unit in _PART.findall(match[2]))
    return -total_ms if match[1] == "-" else total_ms


def instant(text: str, now_ms: int, field: str) -> str | int:
    """A time as a command carries it: what is relative to now becomes RFC 3339.

    Digits alone are epoch milliseconds. Anything else is left to the command's own check.
    Raises `Refused` naming `field`.
    """
    text = text.strip()
    if text == "now":
        return instants.text(now_ms)
    away_ms = distance_ms(text)
    if away_ms is not None:
        at_ms = now_ms + away_ms
        if not 0 <= at_ms <= INSTANT_MS_MAX:
            raise Refused("out_of_range", f"{field}: years 1970 to 9999 are accepted", field)
        return instants.text(at_ms)
    if text.startswith(("+", "-")):
        raise Refused("invalid", f"{field}: {text!r} is not like +30s, +5m, +2h or +3d", field)
    # ASCII only: there are digits in other scripts, and superscripts that int() refuses.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def said_from_now(at_ms: int, now_ms: int) -> str:
    """The distance in two units at most: `in 2 d 3 h`, `5 min ago`, `now`."""
    seconds = (abs(at_ms - now_ms) + 500) // 1_000
    if seconds == 0:
        return "now"
    parts = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    said = " ".join(parts[:2])
    return f"in {said}" if at_ms > now_ms else f"{said} ago"
