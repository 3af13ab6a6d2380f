"""Pressure: how much each partition owes and when, published as absolute figures.

A lost or repeated record heals with the next one, so these go outside any transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from confluent_kafka import KafkaException, Producer

from buckets.partition import Partition
from schemas import instants
from streams import logs
from streams.clock import Clock
from streams.processor.owned import Owned
from streams.settings import Settings

MINUTES_AHEAD: Final = 24 * 60
HOURS_AHEAD: Final = 14 * 24
DAYS_AHEAD: Final = 400
TENANTS_MAX: Final = 20
OTHERS: Final = "(others)"
REPEATED_S: Final = 30.0
"""Unchanged figures are sent again, so that one that came late does not stand for ever."""

SHARE_OF_TIME_MAX: Final = 0.05
"""How much of the loop's time counting may take: with very many tenants it is done less often."""

Bins = dict[int, dict[str, int]]


def figures(partition: Partition, now_ms: int) -> dict[str, Any]:
    """What one partition owes: counts per minute, hour and day since 1970.

    A bin is a list of [index into `tenants`, count]. Minutes are given for a day ahead, hours for
    two weeks, days for 400; all that is overdue by more than an hour is in the first bin. Beyond
    TENANTS_MAX tenants, the smallest are put together. So the record stays below half a megabyte.
    """
    this_hour = now_ms // instants.HOUR_MS
    by_tenant: dict[str, int] = defaultdict(int)
    hours: Bins = defaultdict(lambda: defaultdict(int))
    days: Bins = defaultdict(lambda: defaultdict(int))
    for hour, tenant, count in partition.counts.hours():
        by_tenant[tenant] += count
        if hour < this_hour + HOURS_AHEAD:
            hours[max(hour, this_hour - 1)][tenant] += count
        if hour // 24 < this_hour // 24 + DAYS_AHEAD:
            days[max(hour, this_hour - 1) // 24][tenant] += count
    minutes: Bins = defaultdict(lambda: defaultdict(int))
    for minute, tenant, count in partition.counts.minutes(this_hour * 60 + MINUTES_AHEAD):
        minutes[max(minute, (this_hour - 1) * 60)][tenant] += count
    largest = sorted(by_tenant, key=by_tenant.__getitem__, reverse=True)[:TENANTS_MAX]
    index = {tenant: number for number, tenant in enumerate(largest)}
    return {
        "pending": partition.counts.pending,
        "claims": partition.counts.claims,
        "tenants": [*largest, OTHERS],
        "minutes": _indexed(minutes, index),
        "hours": _indexed(hours, index),
        "days": _indexed(days, index),
    }


def _indexed(bins: Bins, index: dict[str, int]) -> dict[str, list[list[int]]]:
    indexed: dict[str, list[list[int]]] = {}
    for at, tenants in sorted(bins.items()):
        shown: dict[int, int] = {}
        for tenant, count in tenants.items():
            number = index.get(tenant, len(index))
            shown[number] = shown.get(number, 0) + count
        indexed[str(at)] = [[number, count] for number, count in shown.items()]
    return indexed


@dataclass(slots=True)
class _Told:
    """What was last published of a partition, and when it is looked at and repeated."""

    figures: dict[str, Any] | None = None
    look_s: float = 0.0
    repeat_s: float = 0.0


class Publisher:
    """Writes the figures of active partitions to the `pressure` topic when they have changed."""

    def __init__(self, settings: Settings, producer: Producer, interval_s: float = 1.0) -> None:
        self._topic = settings.topics.pressure
        self._owner = settings.http_advertised or settings.http
        self._producer = producer
        self._interval_s = interval_s
        self._log = logs.get("processor")
        self._told: dict[int, _Told] = {}

    def publish(self, partitions: Sequence[Owned], clock: Clock) -> None:
        """Publish what has changed of one partition, the one whose interval is over the longest.

        One at a time: counting a partition takes milliseconds, for which nothing fires.
        """
        # One that went away and came back may have been another's meanwhile: it is told anew.
        self._told = {one.number: self._told.get(one.number, _Told()) for one in partitions}
        owned = min(partitions, key=lambda one: self._told[one.number].look_s)
        told = self._told[owned.number]
        begun_s = clock.monotonic_s()
        if begun_s < told.look_s:
            return
        now_ms = clock.now_ms()
        found = figures(owned.partition, now_ms)
        if found != told.figures or begun_s >= told.repeat_s:
            self._send(owned.number, found, now_ms)
            told.figures, told.repeat_s = found, begun_s + REPEATED_S
        self._producer.poll(0)
        all_take_s = (clock.monotonic_s() - begun_s) * len(partitions)
        told.look_s = begun_s + max(self._interval_s, all_take_s / SHARE_OF_TIME_MAX)

    def _send(self, number: int, found: dict[str, Any], now_ms: int) -> None:
        body = {"partition": number, "owner": self._owner, "at": instants.text(now_ms), **found}
        try:
            self._producer.produce(
                self._topic, orjson.dumps(body), key=str(number).encode(), partition=number
            )
        except (BufferError, KafkaException) as error:
            # The brokers have been away for long, or the topic: the next figures replace these.
            self._log.warning("figures not published", partition=number, error=str(error))
            self._producer.poll(0)
