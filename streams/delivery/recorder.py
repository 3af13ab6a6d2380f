"""The transaction that records outcomes and moves offsets, together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from schemas import events
from schemas.routing import routing_key
from streams import kafka, logs
from streams.clock import Clock
from streams.delivery.partition import Batch
from streams.errors import EngineFailed, Fenced
from streams.metrics import ACK_FAILURES, TRANSACTION
from streams.settings import Settings

CALL_S_MAX: Final = 5.0
"""How long one request to the coordinator may take before it is made again."""

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)

_log: Final = logs.get("delivery")


class NotRecorded(Exception):
    """The transaction was aborted: nothing of it is to be seen. It may be tried again."""


class Unknown(Exception):
    """Nobody answered whether the transaction was committed. The topics have to be read."""


class Recorder:
    """The transactional producer of a worker."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._topics = settings.topics
        self._timeout_ms = settings.transaction_timeout_ms
        self._clock = clock
        self._producer: Producer | None = None
        self._becoming: Producer | None = None

    @property
    def broken(self) -> bool:
        """Whether there is no producer at the moment."""
        return self._producer is None

    def ready(self) -> bool:
        """Whether a transaction can be begun; makes the producer if need be.

        Making it ends the transaction that an earlier producer of this name left open, one way or
        the other. False if no coordinator answered in time: ask again. Raises `Fenced`.
        """
        if self._producer is not None:
            return True
        if self._becoming is None:
            name = f"{self._settings.prefix}delivery-{self._settings.name}"
            self._becoming = kafka.transactional_producer(self._settings, name, "delivery")
        try:
            self._becoming.init_transactions(CALL_S_MAX)
        except KafkaException as error:
            if error.args[0].retriable():
                _log.warning("no transaction coordinator answered", error=error.args[0].name())
                return False
            raise _fatal(error.args[0]) from None
        self._producer, self._becoming = self._becoming, None
        return True

    def forget(self) -> None:
        """Drop the producer, whose last transaction's fate is unknown."""
        if self._producer is not None:
            self._producer.purge()
        self._producer = None

    def record(self, batches: list[Batch], group: Any, wait_s: float) -> None:
        """Write the outcomes of `batches` and move their offsets, in five steps.

        1. begin the transaction;
        2. produce every outcome, and a copy of every refused record, to the partition's own number;
        3. add the offset of EVERY partition written for, with the group's metadata: a worker that
           lost a partition is refused here;
        4. commit, calling again while the coordinator does not answer, up to `wait_s`;
        5. the caller moves the finished outcomes from its hands to its overlay.

        Raises `NotRecorded` (aborted), `Unknown`, `Fenced` or `EngineFailed`.
        """
        producer = self._producer
        assert producer is not None, "ready() comes first"
        began_s = self._clock.monotonic_s()
        deadline_s = began_s + wait_s
        with TRANSACTION.time():
            try:
                producer.begin_transaction()
                self._produce(producer, batches)
                offsets = [
                    TopicPartition(self._topics.due, batch.partition, batch.next_offset)
                    for batch in batches
                ]
                self._insist(
                    lambda s: producer.send_offsets_to_transaction(offsets, group, s), deadline_s
                )
            except (KafkaException, BufferError) as error:
                self._abort(producer, error, began_s, deadline_s)
            try:
                self._insist(producer.commit_transaction, deadline_s)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort() and not error.args[0].fatal():
                    ACK_FAILURES.inc()
                    raise Unknown(error.args[0].name()) from None
                self._abort(producer, error, began_s, deadline_s)

    def _produce(self, producer: Producer, batches: list[Batch]) -> None:
        for batch in batches:
            for recorded in batch.outcomes:
                producer.produce(
                    self._topics.outcomes,
                    events.outcome(recorded.outcome),
                    routing_key(recorded.outcome.id),
                    batch.partition,
                )
            for refusal in batch.refusals:
                due = refusal.due
                source = events.Source(self._topics.due, batch.partition, due.offset)
                key, value, headers = events.rejected(
                    due.key, due.value, due.headers or (), refusal.why, source
                )
                producer.produce(
                    self._topics.rejected, value, key, batch.partition, headers=headers
                )

    def _insist(self, call: Callable[[float], object], deadline_s: float) -> None:
        """Make a call again while its error says so and there is time."""
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            try:
                call(max(0.1, min(CALL_S_MAX, left_s)))
            except KafkaException as error:
                if not error.args[0].retriable() or self._clock.monotonic_s() >= deadline_s:
                    raise
            else:
                return

    def _abort(
        self, producer: Producer, error: Exception, began_s: float, deadline_s: float
    ) -> None:
        """Abort, and raise what the caller has to know. Never returns."""
        ACK_FAILURES.inc()
        cause: KafkaError | None = error.args[0] if isinstance(error, KafkaException) else None
        if cause is not None and (cause.fatal() or cause.code() in _FENCED):
            self.forget()
            lasted_s = self._clock.monotonic_s() - began_s
            if cause.code() in _FENCED and lasted_s * 1_000 >= self._timeout_ms:
                # The coordinator ends a transaction that lasts too long under the same error.
                raise Unknown(cause.name()) from None
            raise _fatal(cause) from None
        if cause is not None and cause.retriable():
            # Nobody has answered in time. A client left in the middle of that may never work again.
            raise Unknown(cause.name()) from None
        try:
            self._insist(producer.abort_transaction, max(deadline_s, self._soon_s()))
        except KafkaException as failed:
            if failed.args[0].fatal():
                self.forget()
                raise _fatal(failed.args[0]) from None
            raise Unknown(failed.args[0].name()) from None
        raise NotRecorded(cause.name() if cause is not None else str(error)) from None

    def _soon_s(self) -> float:
        return self._clock.monotonic_s() + CALL_S_MAX


def _fatal(error: KafkaError) -> Fenced | EngineFailed:
    if error.code() in _FENCED:
        return Fenced(
            "another process took over this delivery worker's transactional id, or its transaction "
            f"timed out ({error.name()}): give each process its own --name, then start again"
        )
    return EngineFailed(f"the transactional producer failed: {error.str()}")
