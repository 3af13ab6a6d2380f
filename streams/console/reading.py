"""Where a partition begins and ends, asked until its leader answers."""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.clock import Clock
from streams.kafka import REQUEST_TIMEOUT_S

RETRY_INTERVAL_S: Final = 0.1

_TRANSIENT: Final = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
}
"""What a broker says of a topic that was made, or that moved, a moment ago."""

_never: Final = threading.Event()


def bounds(reader: Consumer, place: TopicPartition, clock: Clock) -> tuple[int, int]:
    """The first offset there is and the next one there will be. Raises KafkaException."""
    deadline_s = clock.monotonic_s() + REQUEST_TIMEOUT_S
    while True:
        try:
            found: tuple[int, int] = reader.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
            return found
        except KafkaException as error:
            if error.args[0].code() not in _TRANSIENT or clock.monotonic_s() >= deadline_s:
                raise
        _never.wait(RETRY_INTERVAL_S)
