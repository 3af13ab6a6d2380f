"""Pressure: how much each partition owes and when, published as absolute figures.

A lost or repeated record heals with the next one, so these go outside any transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import orjson
from confluent_kafka import Producer

from buckets.partition import Partition
from schemas import instants
from streams.processor.owned import Owned
from streams.settings import Settings

MINUTES_AHEAD: Final = 24 * 60
HOURS_AHEAD: Final = 14 * 24
DAYS_AHEAD: Final = 400
TENANTS_MAX: Final = 20
OTHERS: Final = "(others)"

Bins = dict[int, dict[str, int]]


def figures(partition: Partition, now_ms: int) -> dict[str, Any]:
    """What one partition owes: counts by tenant per minute, hour and day since 1970.

    Minutes are given for a day ahead, hours for two weeks, days for 400; what is overdue is in
    the bins it was due in. Beyond TENANTS_MAX tenants, the smallest are put together.
    """
    this_hour = now_ms // instants.HOUR_MS
    by_tenant: dict[str, int] = defaultdict(int)
    hours: Bins = defaultdict(lambda: defaultdict(int))
    days: Bins = defaultdict(lambda: defaultdict(int))
    for hour, tenant, count in partition.counts.hours():
        by_tenant[tenant] += count
        if hour < this_hour + HOURS_AHEAD:
            hours[hour][tenant] += count
        if hour // 24 < this_hour // 24 + DAYS_AHEAD:
            days[hour // 24][tenant] += count
    minutes: Bins = defaultdict(lambda: defaultdict(int))
    for minute, tenant, count in partition.counts.minutes(this_hour * 60 + MINUTES_AHEAD):
        minutes[minute][tenant] += count
    largest = sorted(by_tenant, key=by_tenant.__getitem__, reverse=True)[:TENANTS_MAX]
    return {
        "pending": partition.counts.pending,
        "claims": partition.counts.claims,
        "minutes": _bounded(minutes, set(largest)),
        "hours": _bounded(hours, set(largest)),
        "days": _bounded(days, set(largest)),
    }


def _bounded(bins: Bins, named: set[str]) -> dict[str, dict[str, int]]:
    bounded: dict[str, dict[str, int]] = {}
    for at, tenants in sorted(bins.items()):
        shown: dict[str, int] = {}
        for tenant, count in tenants.items():
            name = tenant if tenant in named else OTHERS
            shown[name] = shown.get(name, 0) + count
        bounded[str(at)] = shown
    return bounded


class Publisher:
    """Writes the figures of active partitions to the `pressure` topic when they have changed."""

    def __init__(self, settings: Settings, producer: Producer, interval_s: float = 1.0) -> None:
        self._topic = settings.topics.pressure
        self._owner = settings.http_advertised or settings.http
        self._producer = producer
        self._interval_s = interval_s
        self._next_s = 0.0
        self._sent: dict[int, dict[str, Any]] = {}

    def publish(self, partitions: Iterable[Owned], now_ms: int, monotonic_s: float) -> None:
        """Publish what has changed, if the interval is over."""
        if monotonic_s < self._next_s:
            return
        self._next_s = monotonic_s + self._interval_s
        current = {owned.number: figures(owned.partition, now_ms) for owned in partitions}
        for number, found in current.items():
            if self._sent.get(number) != found:
                self._send(number, found, now_ms)
        self._sent = current
        self._producer.poll(0)

    def _send(self, number: int, found: dict[str, Any], now_ms: int) -> None:
        body = {"partition": number, "owner": self._owner, "at": instants.text(now_ms), **found}
        try:
            self._producer.produce(
                self._topic, orjson.dumps(body), key=str(number).encode(), partition=number
            )
        except BufferError:
            # The brokers have been away for long; the next figures replace these.
            self._producer.poll(0)
