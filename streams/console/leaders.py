"""Topics that were made, or moved, a moment ago: asked about until their leaders answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._topic import TopicDescription

from streams.clock import Clock
from streams.errors import TopicsMissing
from streams.kafka import REQUEST_TIMEOUT_S, Cluster

RETRY_INTERVAL_S: Final = 0.1

_TRANSIENT: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    # A broker that has just been restarted lags behind what the controller has told the client.
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}

_never: Final = threading.Event()

Answer = TypeVar("Answer")


def bounds(cluster: Cluster, place: TopicPartition, clock: Clock) -> tuple[int, int]:
    """The first offset a partition holds and the next one it will have. Raises KafkaException."""
    return answered(lambda: (cluster.first_offset(place), cluster.end_offset(place)), clock)


def wait_visible(cluster: Cluster, clock: Clock) -> None:
    """Return once all topics of the contract can be read and written.

    A broker creates topics before it shows them. Raises `TopicsMissing`, `PartitionsChanged`,
    KafkaException where that does not end.
    """
    wait_readable(cluster, clock, answered(cluster.our_topics, clock))


def wait_readable(cluster: Cluster, clock: Clock, found: Mapping[str, TopicDescription]) -> None:
    """Return once every partition of these topics has a leader that answers."""
    for name, topic in found.items():
        for number in range(len(topic.partitions)):
            answered(partial(cluster.end_offset, TopicPartition(name, number)), clock)


def described(cluster: Cluster, clock: Clock, name: str) -> dict[str, TopicDescription]:
    """A topic that was made a moment ago, as soon as the brokers know it."""

    def ask() -> dict[str, TopicDescription]:
        found = cluster.topics([name])
        if not found:
            raise TopicsMissing(f"no topic {name}")
        return found

    return answered(ask, clock)


def answered(ask: Callable[[], Answer], clock: Clock) -> Answer:
    """What `ask` returns, asked again for a while where that will soon be another answer."""
    deadline_s = clock.monotonic_s() + REQUEST_TIMEOUT_S
    while True:
        try:
            return ask()
        except (TopicsMissing, KafkaException) as error:
            over = clock.monotonic_s() >= deadline_s
            if over or not (isinstance(error, TopicsMissing) or _is_transient(error)):
                raise
        _never.wait(RETRY_INTERVAL_S)


def _is_transient(error: KafkaException) -> bool:
    return error.args[0].code() in _TRANSIENT
