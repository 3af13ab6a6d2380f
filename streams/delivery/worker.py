"""The delivery worker: one loop that reads due events, has them sent, and records outcomes.

Only this loop's thread touches partitions, ledgers and the producer. Calls run in an event loop
of their own and report through a queue; nothing happens in a callback of theirs.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from streams import kafka, logs
from streams.clock import Clock
from streams.delivery.calls import Calls
from streams.delivery.channels import Channels, LogChannel
from streams.delivery.following import Follower, Locator
from streams.delivery.inflow import Inflow
from streams.delivery.intake import Job
from streams.delivery.ownership import Ownership
from streams.delivery.partition import Partition
from streams.delivery.recording import Recording
from streams.delivery.webhook import WebhookChannel
from streams.metrics import HEARTBEAT, QUEUE_WAIT
from streams.settings import Settings

IDLE_WAIT_S: Final = 0.05
BUSY_WAIT_S: Final = 0.005
REVOKE_SHARE: Final = 0.2
"""The share of the poll interval within which a revoked partition is given back."""

_log: Final = logs.get("delivery")


class DeliveryWorker:
    """One member of the delivery group.

    `run` blocks until `stop`, which any thread may call. Tests call `open`, `step` and `close`.
    """

    def __init__(self, settings: Settings, clock: Clock, channels: Channels | None = None) -> None:
        """`channels` replaces the built-in ones. Raises `BadSetting`."""
        self._settings = settings
        self._clock = clock
        self._channels = channels or Channels(WebhookChannel(settings, clock), [LogChannel()])
        self._calls = Calls(
            self._channels, clock, settings.deliver_timeout_s, settings.deliver_concurrency
        )
        self._stop = threading.Event()
        self._tokens = count()
        self._jobs: dict[int, tuple[Job, str]] = {}
        self._failed = False
        self.ready = False
        """Whether everything this worker owns is being delivered. Read by other threads."""

    def run(self) -> None:
        """Deliver until `stop`; then let the calls under way end, record them and leave.

        Raises `Fenced`, `EngineFailed` and what `open` raises.
        """
        self.open()
        try:
            while not self._stop.is_set():
                self.step()
            self._drain()
        except BaseException:
            self._failed = True
            raise
        finally:
            self.close()

    def stop(self) -> None:
        """Begin to stop. Returns at once."""
        self._stop.set()

    def open(self) -> None:
        """Join the group. Raises `BrokerUnreachable`, `TopicsMissing` or `PartitionsChanged`."""
        settings, clock = self._settings, self._clock
        cluster = kafka.Cluster(settings)
        cluster.our_topics()
        self._consumer = kafka.group_consumer(settings, settings.delivery_group, "delivery")
        locator = Locator(settings, cluster)
        self._owned = Ownership(settings, clock, self._consumer, locator, Follower(settings))
        self._inflow = Inflow(self._consumer, self._owned, clock, settings.deliver_concurrency)
        self._recording = Recording(settings, clock, self._consumer, self._owned)
        # Before the group is joined: it ends the transaction that an earlier process of this name
        # may have left open, which would otherwise hold up its partitions until it times out.
        while not self._recording.ready() and not self._stop.is_set():
            _log.info("waiting for the transaction coordinator")
        self._calls.open()
        self._consumer.subscribe(
            [settings.topics.due],
            on_assign=self._owned.assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )
        _log.info("delivery worker started", group=settings.delivery_group)

    def step(self) -> None:
        """Go round once: read, fold, collect, start, record. Waits a little for records."""
        if not self._inflow.receive(self._wait_s(), taking=not self._stop.is_set()):
            self._collect(BUSY_WAIT_S)
        self._owned.advance()
        self._collect()
        if self._recording.ready() and self._recording.works and not self._stop.is_set():
            self._start()
        self._recording.record_if_due()
        self.ready = len(self._owned.open()) == len(self._owned)
        HEARTBEAT.set(self._clock.now_ms() / 1_000)

    def close(self) -> None:
        """Record what is finished, leave the group, give everything back."""
        self._owned.close_locator()
        try:
            self._consumer.close()
        finally:
            self._calls.close()
            self._owned.close()
        _log.info("delivery worker stopped", group=self._settings.delivery_group)

    # -- calling ---------------------------------------------------------------------------

    def _start(self) -> None:
        """Start calls up to the bound, the partitions in turn."""
        turn = self._owned.in_turn()
        while turn and len(self._jobs) < self._settings.deliver_concurrency:
            partition = turn.popleft()
            if self._start_one(partition):
                turn.append(partition)

    def _start_one(self, partition: Partition) -> bool:
        now_ms = self._clock.now_ms()
        found = partition.next_call(self._channels, now_ms)
        if found is None:
            return False
        job, channel = found
        token = next(self._tokens)
        self._jobs[token] = job, channel.name
        QUEUE_WAIT.observe(max(0.0, (now_ms - job.fired_at_ms) / 1_000))
        self._calls.start(token, channel, job.call)
        return True

    def _collect(self, wait_s: float = 0.0) -> None:
        """Take in the calls that ended."""
        for end in self._calls.finished(wait_s):
            if end.token in self._jobs:
                job, channel = self._jobs.pop(end.token)
                partition = self._owned.get(job.partition)
                assert partition is not None, "the calls of a lost partition are forgotten with it"
                partition.finish(job, end.result, channel, self._clock.now_ms())

    def _wait_s(self) -> float:
        """How long to wait for records: less when something else may need the loop."""
        restoring = len(self._owned.open()) < len(self._owned)
        busy = bool(self._jobs) or restoring or self._recording.waits
        return BUSY_WAIT_S if busy else IDLE_WAIT_S

    # -- giving back -----------------------------------------------------------------------

    def _revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        """Give partitions back: let calls under way end, record, close. One deadline for all."""
        numbers = [place.partition for place in places]
        if not self._failed:
            budget_s = REVOKE_SHARE * self._settings.poll_interval_ms_max / 1_000
            deadline_s = self._clock.monotonic_s() + budget_s
            self._owned.drop_waiting(numbers)
            if not self._stop.is_set():
                # Half of the time is for the calls, the other half is left to record them.
                self._wait_for_calls(numbers, deadline_s - budget_s / 2)
            self._recording.record(max(0.1, deadline_s - self._clock.monotonic_s()))
        self._let_go(numbers)

    def _lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        """Partitions that are another's already: whatever was not recorded is the other's work."""
        _log.warning("partitions lost", partitions=[place.partition for place in places])
        self._let_go([place.partition for place in places])

    def _let_go(self, numbers: list[int]) -> None:
        left = {token for token, (job, _) in self._jobs.items() if job.partition in numbers}
        self._calls.cancel(left)
        for token in left:
            del self._jobs[token]
        self._owned.let_go(numbers)

    def _wait_for_calls(self, numbers: list[int], deadline_s: float) -> None:
        while any(job.partition in numbers for job, _ in self._jobs.values()):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._collect(min(left_s, IDLE_WAIT_S))

    def _drain(self) -> None:
        """Go on, starting nothing, until no call is under way or the grace is over."""
        deadline_s = self._clock.monotonic_s() + self._settings.deliver_grace_s
        while self._jobs and self._clock.monotonic_s() < deadline_s:
            self.step()
