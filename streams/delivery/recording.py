"""When to record what is finished, and what to do when that fails."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer

from streams import logs
from streams.clock import Clock
from streams.delivery.ownership import Ownership
from streams.delivery.partition import Batch
from streams.delivery.recorder import NotRecorded, Recorder, Unknown
from streams.metrics import OUTCOMES
from streams.settings import Settings

RECORD_WAIT_S: Final = 15.0
"""How long a transaction may be called for before its fate counts as unknown."""

PROGRESS_WAIT_S: Final = 1.0
"""How long offsets that passed without an outcome may wait."""

AGAIN_S: Final = 0.1
AGAIN_S_MAX: Final = 5.0

_log: Final = logs.get("delivery")


class Recording:
    """Records everything that is finished in one transaction, a little after the first of it."""

    def __init__(
        self, settings: Settings, clock: Clock, consumer: Consumer, owned: Ownership
    ) -> None:
        self._clock = clock
        self._consumer = consumer
        self._owned = owned
        self._recorder = Recorder(settings, clock)
        self._linger_s = settings.deliver_commit_ms / 1_000
        self._since_s: float | None = None
        self._not_before_s = clock.monotonic_s()
        self._again_s = AGAIN_S

    @property
    def waits(self) -> bool:
        """Whether something is finished and not recorded."""
        return self._since_s is not None

    @property
    def works(self) -> bool:
        """Whether outcomes can be recorded, as far as is known: else nothing should be sent."""
        return not self._recorder.broken and self._again_s == AGAIN_S

    def ready(self) -> bool:
        """Have a producer; false if no coordinator answered. Raises `Fenced`, `EngineFailed`."""
        return self._recorder.ready()

    def record_if_due(self) -> None:
        """Record once the oldest finished thing has waited long enough for company."""
        wait_s = self._wait_s()
        if wait_s is None:
            # What could not be recorded went with its partitions: only something new can show
            # whether recording works again.
            self._since_s = None
            self._again_s = AGAIN_S
            return
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s >= wait_s and now_s >= self._not_before_s:
            self.record(RECORD_WAIT_S)

    def record(self, wait_s: float) -> None:
        """Record everything finished of all open partitions; plan to try again if that fails.

        Raises `Fenced` or `EngineFailed`.
        """
        batches = [batch for one in self._owned.open() if (batch := one.batch()) is not None]
        if not batches:
            return
        try:
            if self._recorder.broken:
                raise NotRecorded("no transaction coordinator answered")
            self._recorder.record(batches, self._consumer.consumer_group_metadata(), wait_s)
        except NotRecorded as error:
            self._plan_again(str(error))
        except Unknown as error:
            self._recorder.forget()
            self._owned.relocate()
            self._plan_again(str(error))
        else:
            self._again_s = AGAIN_S
            self._since_s = None
            for batch in batches:
                self._recorded(batch)

    def _wait_s(self) -> float | None:
        """How long what is finished may wait, or None if nothing is."""
        partitions = self._owned.open()
        if any(one.finished for one in partitions):
            return self._linger_s
        if any(one.offsets.moved for one in partitions):
            return max(self._linger_s, PROGRESS_WAIT_S)
        return None

    def _recorded(self, batch: Batch) -> None:
        partition = self._owned.get(batch.partition)
        assert partition is not None, "ownership does not change while a transaction is written"
        partition.recorded(batch)
        for recorded in batch.outcomes:
            OUTCOMES.labels(recorded.channel, recorded.outcome.status).inc()

    def _plan_again(self, why: str) -> None:
        _log.warning("outcomes not recorded, will be tried again", why=why)
        self._not_before_s = self._clock.monotonic_s() + self._again_s
        self._again_s = min(2 * self._again_s, AGAIN_S_MAX)
