"""The one place that reads the machine's clocks."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time, injected. Two calls, and which of them may jump."""

    def now_ms(self) -> int:
        """UTC milliseconds. May jump either way: an operator, NTP or a resumed VM sets it."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start. Never goes back; may stand still while suspended."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """UTC milliseconds, rounded down: a reminder fires at its millisecond, never before."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()
