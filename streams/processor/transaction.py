"""One turn's Kafka transaction: everything it writes and the offsets it read, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas.events import headers_bytes
from streams import metrics
from streams.errors import Fenced
from streams.settings import Settings

COMMIT_TRIES_MAX: Final = 3
REFUSED_RECORD: Final = {
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "INVALID_TOPIC_EXCEPTION",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "POLICY_VIOLATION",
}
"""What is said of one record and its topic, not of the transaction or the broker."""

FENCED: Final = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID"}
OFFSETS_TIMEOUT_S: Final = 5.0
"""A coordinator answers within milliseconds; after a restart of its broker, maybe never."""

BATCH_BYTES_MAX: Final = 1_000_000
"""The client's own limit of a batch. A topic that takes these needs no care."""

RECORD_OVERHEAD_BYTES: Final = 128
"""What a record has at most around key, value and headers."""

Headers = Sequence[tuple[str, str | bytes | None]]


class TurnFailed(Exception):
    """The turn's transaction did not commit; `unknown` if it may have."""

    def __init__(self, error: KafkaError, *, unknown: bool = False) -> None:
        super().__init__(error.str())
        self.error = error
        self.unknown = unknown
        self.unanswered = unknown or error.retriable()
        """Nobody has answered in time, so nobody will answer an abort either."""


class Transaction:
    """Produces into a transaction, which begins with the first record."""

    def __init__(self, producer: Producer, settings: Settings) -> None:
        self._producer = producer
        self._state = settings.topics.state
        self._timeout_s = settings.transaction_timeout_ms / 1_000
        self._begun = False
        self.changelog: dict[int, int] = {}
        """Partition → the offset of its last state record, once delivered."""

        self.refused: dict[tuple[int, bytes], str] = {}
        """(partition, id) → why its target topic did not take it."""

        self._unsent_bytes: dict[str, int] = {}
        """Target topic → what may still be put into one batch for it."""

    def _produce(self, *record: Any, **more: Any) -> None:
        """As the client's `produce`: topic, value, key, partition; by name what few records have.

        Every record passes here, and names cost a third of a call.
        """
        if not self._begun:
            self._call(self._producer.begin_transaction)
            self._begun = True
        while True:
            try:
                self._producer.produce(*record, **more)
                return
            except BufferError:
                # The client's queue is full: let deliveries make room.
                self._call(partial(self._producer.poll, 0.1))
            except KafkaException as raised:
                # Mostly that an earlier record, refused meanwhile, has broken the transaction.
                raise _failure(raised.args[0], unknown=False) from None

    def state(self, partition: int, identifier: bytes, value: bytes | None) -> None:
        """A reminder's new record, or null."""
        self._produce(self._state, value, identifier, partition)

    def applied(self, partition: int, key: bytes, value: bytes) -> None:
        """The last state record of a partition in this turn; its offset is noted."""
        noted = partial(self._note_changelog, partition)
        self._produce(self._state, value, key, partition, on_delivery=noted)

    def _note_changelog(self, partition: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is None and offset is not None:
            self.changelog[partition] = offset

    def ours(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """A record for one of the contract's topics."""
        self._produce(topic, value, key, partition, headers=list(headers))

    def target(
        self,
        topic: str,
        partition: int,
        identifier: bytes,
        value: bytes,
        headers: Headers,
        batch_bytes_max: int,
    ) -> None:
        """A reminder fired into its own topic; a refusal is noted, and the transaction fails."""
        noted = partial(self._note_refusal, (partition, identifier))
        if batch_bytes_max < BATCH_BYTES_MAX:
            size_bytes = len(identifier) + len(value) + RECORD_OVERHEAD_BYTES
            size_bytes += headers_bytes(headers)
            self._keep_batches_small(topic, size_bytes, batch_bytes_max)
        try:
            self._produce(topic, value, identifier, headers=list(headers), on_delivery=noted)
        except TurnFailed as failed:
            # Where the transaction is broken already, another record's refusal has done it.
            if failed.error.name() in REFUSED_RECORD:
                self.refused[partition, identifier] = failed.error.name()
            raise

    def _keep_batches_small(self, topic: str, size_bytes: int, batch_bytes_max: int) -> None:
        """Send what waits before it gets too large for the topic, which would refuse all of it."""
        unsent_bytes = self._unsent_bytes.get(topic, 0) + size_bytes
        if unsent_bytes > batch_bytes_max:
            self._call(partial(self._producer.flush, self._timeout_s))
            self._unsent_bytes.clear()
            unsent_bytes = size_bytes
        self._unsent_bytes[topic] = unsent_bytes

    def _note_refusal(
        self, which: tuple[int, bytes], error: KafkaError | None, _message: Message
    ) -> None:
        # Others are taken along where the transaction breaks, or fail with the broker.
        if error is not None and error.name() in REFUSED_RECORD:
            self.refused[which] = error.name()

    def commit(self, offsets: list[TopicPartition], group_metadata: Any) -> None:
        """Commit records and offsets together. Raises `TurnFailed`, `Fenced`.

        The offsets are what fences a process that lost its partitions: the group's coordinator
        refuses them from a member of an older generation.
        """
        with metrics.TRANSACTION.time():
            self._commit(offsets, group_metadata)

    def _commit(self, offsets: list[TopicPartition], group_metadata: Any) -> None:
        if not self._begun:
            self._call(self._producer.begin_transaction)
            self._begun = True
        self._call(
            partial(
                self._producer.send_offsets_to_transaction,
                offsets,
                group_metadata,
                OFFSETS_TIMEOUT_S,
            )
        )
        for tries_left in reversed(range(COMMIT_TRIES_MAX)):
            try:
                self._producer.commit_transaction(self._timeout_s)
            except KafkaException as raised:
                error = raised.args[0]
                # Who has not answered for so long will not be waited for once more.
                silent = error.code() == KafkaError._TIMED_OUT
                if error.retriable() and tries_left and not silent:
                    continue
                raise _failure(error, unknown=not error.txn_requires_abort()) from None
            return

    def abort(self, failed: TurnFailed) -> None:
        """Take it all back, as far as anybody answers; the next producer does so anyway.

        Afterwards every record has its answer, and the producer is not used again. Raises `Fenced`:
        a record that is produced after that only hears that the producer is of no more use.
        """
        answer: KafkaError | None = None
        if self._begun and not failed.unanswered:
            try:
                self._producer.abort_transaction(self._timeout_s)
            except KafkaException as raised:
                answer = raised.args[0]
        self._producer.purge()
        self._call(partial(self._producer.poll, 0))
        if answer is not None and answer.name() in FENCED:
            raise _failure(answer, unknown=False)

    @staticmethod
    def _call(step: Any) -> None:
        try:
            step()
        except KafkaException as raised:
            raise _failure(raised.args[0], unknown=False) from None


def _failure(error: KafkaError, *, unknown: bool) -> Exception:
    if error.name() in FENCED:
        return Fenced(
            "another process took over this one's transactional id, or its transaction timed out "
            f"({error.name()}): give each process its own --name, then start again"
        )
    return TurnFailed(error, unknown=unknown or error.fatal())
