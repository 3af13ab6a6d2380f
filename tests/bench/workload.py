"""What is measured on: commands like those of a shipment service, some 260 bytes each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.instants import DAY_MS
from schemas.routing import partition_of, routing_key
from streams import kafka, topics
from streams.settings import Settings


def shifted_settings(bootstrap: str, prefix: str, data_dir: Path) -> Settings:
    """Settings of a bench run: nothing may wait for an answer that nobody gives."""
    return Settings(
        bootstrap=bootstrap,
        prefix=prefix,
        data_dir=data_dir,
        claims_max=100_000_000,
        name="bench",
        # The broker of the run is gone before its last clients: nothing to print.
        kafka={"log_level": "0"},
    )


def commands(count: int, now_ms: int) -> Iterator[tuple[str, bytes]]:
    """Ids and schedule commands, due at random over the day after `now_ms`."""
    source = random.Random(7)
    for number in range(count):
        reminder_id = f"shipment-{number:012d}"
        due_ms = now_ms + 60_000 + source.randrange(DAY_MS)
        value = (
            f'{{"type":"schedule","id":"{reminder_id}","tenant":"acme","kind":"shipment.arriving",'
            f'"due_at":{due_ms},"version":1,"group":"order-{number % 50_000}","destination":"due",'
            f'"payload_ref":"s3://letters/{number:032d}","headers":{{"locale":"de-DE"}}}}'
        )
        yield reminder_id, value.encode()


def write(settings: Settings, count: int, now_ms: int) -> int:
    """Create the topics and write the commands; returns the bytes of one."""
    cluster = kafka.Cluster(settings)
    topics.create(cluster, settings)
    producer: Producer = kafka.plain_producer(settings, "bench")
    size = 0
    for reminder_id, value in commands(count, now_ms):
        place = partition_of(reminder_id, settings.partitions)
        size = len(value)
        while True:
            try:
                producer.produce(
                    settings.topics.commands, value, key=routing_key(reminder_id), partition=place
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return size


def reader(settings: Settings, topic: str) -> Consumer:
    """A read_committed consumer of a whole topic from its beginning."""
    consumer = kafka.reader(settings, "bench")
    consumer.assign([TopicPartition(topic, number, 0) for number in range(settings.partitions)])
    return consumer
