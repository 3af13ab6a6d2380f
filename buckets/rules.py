"""The configured rules that decisions follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.instants import DAY_MS, HOUR_MS
from schemas.reminder import Asked

RETRY_AFTER_S_MAX: Final = 86_400
"""A receiver that asks for a longer wait is given a day."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Durations in milliseconds unless named otherwise."""

    retry_delays_s: tuple[int, ...] = (30, 300, 1_800)
    retry_attempts_max: int = 4
    lease_ms: int = HOUR_MS
    dedupe_retention_ms: int = 7 * DAY_MS
    cancel_memory_ms: int = DAY_MS
    claims_max: int = 50_000

    def retry_delay_ms(
        self, asked: Asked, failures: int, retry_after_s: float | None
    ) -> int | None:
        """How long after its n-th failure a reminder is tried again; None once it is given up.

        The reminder's own rule comes before the configured one. The delay of a failure past the
        end of the list is the last one's. A receiver's Retry-After can only lengthen it.
        """
        delays_s, attempts_max = self.retry_delays_s, self.retry_attempts_max
        if asked.retry is not None:
            delays_s, attempts_max = asked.retry.delays_s, asked.retry.attempts_max
        if failures >= attempts_max:
            return None
        delay_s: float = delays_s[min(failures, len(delays_s)) - 1]
        if retry_after_s is not None:
            delay_s = max(delay_s, min(retry_after_s, RETRY_AFTER_S_MAX))
        return int(delay_s * 1_000)
