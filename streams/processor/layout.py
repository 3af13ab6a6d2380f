"""Whether ids still hash to the partitions that the state was written with.

A partition that was added holds nothing that could tell, and a process may own no other. So before
an empty partition is worked on, the count is looked up where it was last written, in any partition.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams import kafka
from streams.clock import Clock
from streams.errors import PartitionsChanged
from streams.processor import changelog
from streams.settings import Settings

LOOKED_BACK_MAX: Final = 1_000
"""Each turn ends with the record that holds the count; behind it are at most aborted ones."""

READ_RECORDS_MAX: Final = 5_000


def refuse_another_count(found: set[int], partitions: int) -> None:
    """Raise `PartitionsChanged` where a count that was found is not today's; 0 says nothing."""
    for count in found - {0, partitions}:
        raise PartitionsChanged(
            f"the state was written with {count} partitions, "
            f"the topics now have {partitions}: ids hash to other partitions"
        )


def written_counts(
    settings: Settings, cluster: kafka.Cluster, clock: Clock, partitions: int
) -> set[int]:
    """The partition counts that the state was last written with. Raises `KafkaException`."""
    places = [TopicPartition(settings.topics.state, number) for number in range(partitions)]
    ends = [
        TopicPartition(place.topic, place.partition, max(first, end - LOOKED_BACK_MAX))
        for place, (first, end) in zip(places, cluster.committed_spans(places), strict=True)
        if end > first
    ]
    if not ends:
        return set()
    reader = kafka.reader(settings, "layout")
    try:
        reader.assign(ends)
        return _read(reader, len(ends), clock)
    finally:
        reader.close()


def _read(reader: Consumer, unread: int, clock: Clock) -> set[int]:
    counts: set[int] = set()
    deadline_s = clock.monotonic_s() + kafka.REQUEST_TIMEOUT_S
    while unread:
        if clock.monotonic_s() > deadline_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the state was not read"))
        for message in reader.consume(READ_RECORDS_MAX, 0.1):
            error, value = message.error(), message.value()
            if error is not None:
                unread -= error.code() == KafkaError._PARTITION_EOF
            elif message.key() == changelog.APPLIED_KEY and value is not None:
                counts.add(changelog.decode_applied(value).partitions)
    return counts
