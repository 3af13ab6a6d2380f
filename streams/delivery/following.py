"""Reading the outcomes: where a partition's ledger has to read up to, and the reading itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from schemas import events
from schemas.errors import Refused
from schemas.events import Outcome
from streams import kafka, logs
from streams.delivery.ledger import Origin
from streams.errors import PartitionsChanged, TopicsMissing
from streams.settings import Settings

THREADS: Final = 4
STABLE_AGAIN_S: Final = 0.05
RECORDS_PER_POLL_MAX: Final = 2_000

_log: Final = logs.get("delivery")


class Unwanted(Exception):
    """The partition was given back while it was looked for."""


@dataclass(frozen=True, slots=True)
class Located:
    """Which outcomes there are to read for a partition, and from where its due events."""

    due_offset: int
    origin: Origin
    first_offset: int
    end_offset: int


class Locator:
    """Finds, in threads, from where to where a partition's outcomes have to be read.

    The end is asked for AFTER the group's offset is stable: the transaction in which a previous
    owner moved that offset has then ended.
    """

    def __init__(self, settings: Settings, cluster: kafka.Cluster) -> None:
        self._settings = settings
        self._cluster = cluster
        self._cluster_id = cluster.cluster_id()
        self._stopped = threading.Event()
        self._threads = ThreadPoolExecutor(THREADS, "delivery-locate")

    def locate(self, partition: int, wanted: Callable[[], bool]) -> Future[Located]:
        """Begin to look, and go on while `wanted` says so (it is asked from another thread).

        The future fails with what is wrong with the topic, or with a `KafkaException`.
        """
        return self._threads.submit(self._locate, partition, wanted)

    def first_offset(self, partition: int) -> Future[int]:
        """Begin to ask for the first outcome that the topic still holds."""
        return self._threads.submit(self._cluster.first_offset, self._place(partition))

    def close(self) -> None:
        """Stop looking; returns when no thread is left."""
        self._stopped.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _locate(self, partition: int, wanted: Callable[[], bool]) -> Located:
        due_offset = self._stable_offset(partition, wanted)
        name = self._settings.topics.outcomes
        topic = self._cluster.topics([name]).get(name)
        if topic is None:
            raise TopicsMissing(f"no topic {name}: run `minutewheel topics create`")
        count = len(topic.partitions)
        if partition >= count:
            raise PartitionsChanged(f"{name} has {count} partitions, no number {partition}")
        origin = Origin(self._cluster_id, str(topic.topic_id), count)
        place = self._place(partition)
        first_offset = self._cluster.first_offset(place)
        return Located(due_offset, origin, first_offset, self._cluster.end_offset(place))

    def _stable_offset(self, partition: int, wanted: Callable[[], bool]) -> int:
        """The group's offset, once no transaction that moves it is open."""
        due = TopicPartition(self._settings.topics.due, partition)
        while wanted() and not self._stopped.is_set():
            try:
                offset = self._cluster.stable_offset(self._settings.delivery_group, due)
            except kafka.Unstable:
                self._stopped.wait(STABLE_AGAIN_S)
            else:
                return OFFSET_BEGINNING if offset is None else offset
        raise Unwanted

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._settings.topics.outcomes, partition)


@dataclass(slots=True)
class News:
    """What was read of one partition's outcomes."""

    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    next_offset: int = 0
    gone: bool = False
    """The topic no longer holds the offset that was to be read: locate the partition anew."""


class Follower:
    """Reads the outcomes of all owned partitions, each from its own offset."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.topics.outcomes
        self._reader = kafka.reader(settings, "delivery-outcomes")
        self._followed: set[int] = set()

    def follow(self, partition: int, offset: int) -> None:
        """Read a partition from `offset` on."""
        self._reader.incremental_assign([TopicPartition(self._topic, partition, offset)])
        self._followed.add(partition)

    def follows(self, partition: int) -> bool:
        """Whether a partition is read."""
        return partition in self._followed

    def leave(self, partition: int) -> None:
        """Read a partition no more."""
        if partition in self._followed:
            self._followed.remove(partition)
            self._reader.incremental_unassign([TopicPartition(self._topic, partition)])

    def poll(self) -> dict[int, News]:
        """What has come since the last look. Does not wait."""
        news: dict[int, News] = {}
        if not self._followed:
            return news
        for message in self._reader.consume(RECORDS_PER_POLL_MAX, 0):
            partition = message.partition()
            if partition in self._followed:
                _add(news.setdefault(partition, News()), message)
        return news

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _add(news: News, message: Message) -> None:
    error = message.error()
    offset = message.offset()
    if error is None:
        assert offset is not None, "a record has an offset"
        news.next_offset = offset + 1
        try:
            news.outcomes.append((offset, events.decode_outcome(message.value() or b"")))
        except Refused:
            # Whoever wrote it is told by the processor, which reads the same topic.
            return
    elif error.code() == KafkaError._PARTITION_EOF:
        assert offset is not None, "the end has an offset"
        news.next_offset = max(news.next_offset, offset)
    elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
        news.gone = True
    else:
        _log.warning("outcomes not readable", error=error.name())
