"""Intake, drain and restore of one processor, and the bare loop they are compared with."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

from confluent_kafka import TopicPartition

from schemas.instants import DAY_MS
from streams import kafka
from streams.clock import SystemClock
from streams.processor.processor import Processor
from streams.settings import Settings

BARE_TRANSACTION_RECORDS = 5_000
DEADLINE_S = 120.0


class ShiftedClock(SystemClock):
    """The machine's clock, set ahead by `shift_ms`."""

    shift_ms = 0

    def now_ms(self) -> int:
        """UTC milliseconds, shifted."""
        return super().now_ms() + self.shift_ms


def bare_loop(settings: Settings, count: int) -> float:
    """Consume `count` commands and produce each again, in transactions; records per second."""
    group = f"{settings.prefix}bare"
    consumer = kafka.group_consumer(settings, group, "bare")
    producer = kafka.transactional_producer(settings, group, "bare")
    producer.init_transactions(30)
    consumer.subscribe([settings.topics.commands])
    topic = settings.topics.dead
    done = open_records = 0
    started = None
    producer.begin_transaction()
    while done < count:
        for message in consumer.consume(1_000, 0.05):
            if message.error() is not None:
                continue
            started = started or time.monotonic()
            producer.produce(
                topic, message.value(), key=message.key(), partition=message.partition()
            )
            done += 1
            open_records += 1
        if open_records >= BARE_TRANSACTION_RECORDS or done >= count:
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            producer.commit_transaction(30)
            open_records = 0
            if done < count:
                producer.begin_transaction()
    assert started is not None
    elapsed_s = time.monotonic() - started
    consumer.close()
    return count / elapsed_s


def _turn_until(processor: Processor, done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        processor.turn()
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"


def _pending(processor: Processor) -> int:
    return sum(owned.partition.counts.pending for owned in processor.active)


def intake_and_drain(settings: Settings, count: int) -> tuple[float, float]:
    """Take in `count` commands from the log, then fire them all at once; records per second."""
    shutil.rmtree(settings.data_dir, ignore_errors=True)
    clock = ShiftedClock()
    processor = Processor(settings, clock)
    processor.join()
    _turn_until(processor, lambda: _pending(processor) > 0, "the first command")
    first, started = _pending(processor), time.monotonic()
    _turn_until(processor, lambda: _pending(processor) == count, "intake")
    intake = (count - first) / (time.monotonic() - started)
    clock.shift_ms = 2 * DAY_MS
    started = time.monotonic()
    _turn_until(processor, lambda: _pending(processor) == 0, "drain")
    drain = count / (time.monotonic() - started)
    processor.close()
    return intake, drain


def restore(settings: Settings) -> tuple[float, int]:
    """Rebuild a lost disk from the changelog; records per second, and how many."""
    shutil.rmtree(settings.data_dir)
    reader = kafka.reader(settings, "bench")
    ends = [reader.get_watermark_offsets(place) for place in _places(settings)]
    records = sum(high for _, high in ends)
    reader.close()
    processor = Processor(settings, SystemClock())
    processor.join()
    _turn_until(processor, lambda: bool(processor.phases()), "assignment")
    started = time.monotonic()
    _turn_until(processor, lambda: processor.ready, "restore")
    elapsed_s = time.monotonic() - started
    processor.close()
    return records / elapsed_s, records


def _places(settings: Settings) -> list[TopicPartition]:
    return [TopicPartition(settings.topics.state, number) for number in range(settings.partitions)]
