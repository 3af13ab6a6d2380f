"""The contract's metrics. Counted once per turn or batch, never per record.

No ids, recipients or addresses as labels; tenants only up to a limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from threading import Lock
from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Info
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_LAG_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 3_600)
_SHORT_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class TurnHistogram(Collector):
    """A histogram that takes a whole turn's observations at once: the library's takes one."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        """`bounds`: upper bounds of the buckets in ascending order, without infinity."""
        self._name, self._text, self._bounds = name, text, tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = Lock()
        REGISTRY.register(self)

    def observe_all(self, values: Iterable[float]) -> None:
        """Add every value."""
        with self._lock:
            for value in values:
                self._counts[bisect_left(self._bounds, value)] += 1
                self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What the registry asks for at a scrape."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        running = 0
        buckets = []
        for name, count in zip(names, counts, strict=True):
            running += count
            buckets.append((name, running))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=total)


COMMANDS = Counter("minutewheel_commands", "Commands decided.", ["type", "result"])
FORWARDED = Counter("minutewheel_forwarded", "Commands found on a wrong partition and moved.")
PENDING = Gauge("minutewheel_pending", "Reminders waiting to fire.")
DUE = Gauge("minutewheel_due", "Reminders due within the horizon.", ["horizon"])
CLAIMS = Gauge("minutewheel_claims", "Due events that have not been answered.")
OLDEST_DUE = Gauge(
    "minutewheel_oldest_due_timestamp_seconds", "Due time of the oldest pending reminder, or 0."
)
FIRE_LAG = TurnHistogram("minutewheel_fire_lag_seconds", "Fired minus due, first attempts.", _LAG_S)
DELIVERY_LAG = TurnHistogram("minutewheel_delivery_lag_seconds", "Final outcome minus due.", _LAG_S)
QUEUE_WAIT = Histogram(
    "minutewheel_queue_wait_seconds", "Delivery start minus fired.", buckets=_LAG_S
)
HANDLER = Histogram(
    "minutewheel_handler_seconds", "Time a channel took.", ["channel"], buckets=_LAG_S
)
OUTCOMES = Counter("minutewheel_outcomes", "Outcomes recorded.", ["channel", "status"])
RETRIES = Counter("minutewheel_retries", "Attempts put back into the wheel.")
DEAD = Counter("minutewheel_dead", "Reminders given up.", ["reason"])
DUPLICATES = Counter(
    "minutewheel_duplicates_suppressed", "Repetitions without a second effect.", ["where"]
)
THROTTLED = Counter(
    "minutewheel_throttled",
    "Partitions that held due reminders back, counted once a second while they do.",
    ["by"],
)
ACK_FAILURES = Counter("minutewheel_ack_failures", "Transactions that did not commit.")
TURN = Histogram("minutewheel_turn_seconds", "Length of a turn.", buckets=_SHORT_S)
TURN_RECORDS = Histogram(
    "minutewheel_turn_records",
    "Inputs and due entries of a turn.",
    buckets=(1, 10, 100, 1_000, 5_000),
)
TRANSACTION = Histogram("minutewheel_transaction_seconds", "Length of a commit.", buckets=_SHORT_S)
RESTORE_REMAINING = Gauge("minutewheel_restore_remaining_records", "Changelog left to restore.")
STORE_BYTES = Gauge("minutewheel_store_bytes", "Size of the stores on disk.")
CLOCK_STEP = Gauge(
    "minutewheel_clock_step_seconds", "Last step of the wall clock against monotonic."
)
HEARTBEAT = Gauge("minutewheel_heartbeat_timestamp_seconds", "When the loop last went round.")
BUILD = Info("minutewheel_build", "The release.")
BUILD.info({"version": version("minutewheel")})
