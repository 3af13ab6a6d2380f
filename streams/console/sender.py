"""Commands into the log, each on the partition of its id, and the answers out of `replies`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from schemas import commands
from schemas.commands import Command
from schemas.events import Source
from schemas.routing import partition_of, routing_key
from streams import kafka
from streams.clock import Clock
from streams.console.leaders import answered
from streams.errors import BrokerUnreachable, PartitionsChanged, TopicsMissing
from streams.settings import Settings

POLL_S: Final = 0.05
CONFIRM_TIMEOUT_S: Final = 10.0
UNCONFIRMED_MAX: Final = 20_000
"""Commands on their way at a time: enough to fill batches, little enough to bound memory."""

QUEUE_KIB: Final = 65_536

Reply = dict[str, Any]


class Sender:
    """Writes commands. Raises `TopicsMissing`, `PartitionsChanged`, KafkaException."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._topic = settings.topics.commands
        self._cluster = kafka.Cluster(settings)
        self._partitions = self._count()
        bounded = {"queue.buffering.max.kbytes": str(QUEUE_KIB), **settings.kafka}
        self._producer = kafka.plain_producer(replace(settings, kafka=bounded), "console")
        self._unconfirmed = 0
        self._confirmed = 0
        self._failure: KafkaError | None = None

    @property
    def confirmed(self) -> int:
        """How many commands are known to be in the log."""
        return self._confirmed

    def send(self, command: Command) -> Source:
        """Write one command and wait until it is in the log; returns where it lies there.

        Raises `BrokerUnreachable` if that is not known in time.
        """
        found: list[tuple[KafkaError | None, Message]] = []
        self._produce(command, lambda error, message: found.append((error, message)))
        self._producer.flush(CONFIRM_TIMEOUT_S)
        if not found:
            raise BrokerUnreachable(
                f"{self._settings.bootstrap} did not confirm the command within "
                f"{CONFIRM_TIMEOUT_S:g} s: whether it is in the log is not known; "
                "sending it again is safe"
            )
        error, message = found[0]
        if error is not None:
            raise KafkaException(error)
        partition, offset = message.partition(), message.offset()
        assert partition is not None, "a confirmed record has a place"
        assert offset is not None, "a confirmed record has a place"
        return Source(self._topic, partition, offset)

    def ask(self, command: Command, timeout_s: float) -> tuple[Source, bytes | None]:
        """Write one command and wait for its reply, which is None if none came in time."""
        partition = partition_of(command.id, self._partitions)
        with closing(kafka.reader(self._settings, "replies")) as reader:
            replies = TopicPartition(self._settings.topics.replies, partition)
            # Where to read from is settled before the command exists, so its reply lies after.
            replies.offset = answered(lambda: self._cluster.end_offset(replies), self._clock)
            reader.assign([replies])
            source = self.send(command)
            return source, self._reply(reader, source, timeout_s)

    def submit(self, command: Command) -> None:
        """Write one of many commands, without waiting for it. Raises KafkaException for any."""
        while self._unconfirmed >= UNCONFIRMED_MAX:
            self._serve(POLL_S)
        while True:
            try:
                self._produce(command, self._on_confirmed)
                break
            except BufferError:
                self._serve(POLL_S)
        self._unconfirmed += 1
        self._serve(0)

    def finish(self, on_progress: Callable[[int], None]) -> None:
        """Wait until all submitted commands are in the log. Raises KafkaException for any."""
        while self._unconfirmed:
            self._serve(POLL_S)
            on_progress(self._confirmed)

    def abandon(self, timeout_s: float) -> None:
        """Drop what has not left yet, and wait a little for what has."""
        self._producer.purge(in_queue=True, in_flight=False, blocking=True)
        self._producer.flush(timeout_s)

    def _produce(self, command: Command, on_delivery: Callable[[Any, Message], None]) -> None:
        self._producer.produce(
            self._topic,
            commands.encode(command),
            key=routing_key(command.id),
            partition=partition_of(command.id, self._partitions),
            on_delivery=on_delivery,
        )

    def _on_confirmed(self, error: KafkaError | None, _: Message) -> None:
        self._unconfirmed -= 1
        if error is None:
            self._confirmed += 1
        elif self._failure is None:
            self._failure = error

    def _serve(self, wait_s: float) -> None:
        self._producer.poll(wait_s)
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _reply(self, reader: Consumer, source: Source, timeout_s: float) -> bytes | None:
        deadline_s = self._clock.monotonic_s() + timeout_s
        while (left_s := deadline_s - self._clock.monotonic_s()) > 0:
            message = reader.poll(min(left_s, POLL_S))
            if message is None:
                continue
            error = message.error()
            if error is not None:
                # The end of the partition is no error, and a lost connection comes back.
                if error.code() == KafkaError._PARTITION_EOF or error.retriable():
                    continue
                raise KafkaException(error)
            value = message.value()
            if value is not None and _answers(value, source):
                return value
        return None

    def _count(self) -> int:
        """How many partitions ids are spread over."""
        names = [self._settings.topics.commands, self._settings.topics.replies]
        found = self._cluster.topics(names)
        missing = [name for name in names if name not in found]
        if missing:
            raise TopicsMissing(
                f"no topic {', '.join(missing)} at {self._settings.bootstrap}: "
                "run `minutewheel topics create`"
            )
        counts = {len(topic.partitions) for topic in found.values()}
        if len(counts) > 1:
            raise PartitionsChanged(f"{' and '.join(names)} differ in their partition counts")
        return counts.pop()


class _Answer(msgspec.Struct):
    command: Source


_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def _answers(value: bytes, source: Source) -> bool:
    """Whether a reply is the one to the command that lies at `source`."""
    try:
        origin = _decode_answer(value).command
    except msgspec.DecodeError:
        return False
    return (origin.partition, origin.offset) == (source.partition, source.offset)
