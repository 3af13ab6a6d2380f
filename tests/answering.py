"""A processor's outside without a processor: reads commands, and answers as it is told to."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import orjson
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from schemas import events
from streams import kafka as clients
from streams.settings import Settings

PARTITIONS = 3


def read(settings: Settings, topic: str, count: int) -> dict[str, Message]:
    """The first `count` records of a topic by the id in their value."""
    found: dict[str, Message] = {}
    with closing(_consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        deadline_s = time.monotonic() + 30
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found[orjson.loads(message.value() or b"{}")["id"]] = message
    return found


def _consumer(settings: Settings) -> Consumer:
    own = {"bootstrap.servers": settings.bootstrap, "group.id": uuid4().hex}
    return Consumer(own | dict(settings.kafka))


@contextmanager
def answering(settings: Settings, status: str) -> Iterator[None]:
    """A processor that knows one answer, and gives one to somebody else before each."""
    ending = threading.Event()

    def answer() -> None:
        producer = clients.plain_producer(settings, "test")
        with closing(_consumer(settings)) as consumer:
            places = [TopicPartition(settings.topics.commands, n, 0) for n in range(PARTITIONS)]
            consumer.assign(places)
            while not ending.is_set():
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    _answer(producer, message, settings.topics.replies, status)
        producer.flush(10)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _answer(producer: Producer, message: Message, topic: str, status: str) -> None:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    reminder_id = orjson.loads(message.value() or b"")["id"]
    for at, said in ((offset + 1_000, "rejected"), (offset, status)):
        source = events.Source(str(message.topic()), partition, at)
        value = events.reply(reminder_id, 0, said, source, 0)
        producer.produce(topic, value, key=message.key(), partition=partition)
    producer.flush(10)
