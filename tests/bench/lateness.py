"""How late due events are seen, received minus due, by a read_committed reader at a steady rate."""

from __future__ import annotations

import gc
import multiprocessing
import random
import shutil
import time
from multiprocessing.synchronize import Event

import orjson

from schemas.instants import HOUR_MS
from schemas.routing import partition_of, routing_key
from streams import kafka, logs, topics
from streams.clock import SystemClock
from streams.processor.processor import Processor
from streams.settings import Settings
from tests.bench import workload

AHEAD_MS = (3_000, 6_000)
GRACE_S = 15.0
READY_S = 120.0


def run_processor(settings: Settings, pending: int, ready: Event, stop: Event) -> None:
    """The body of the processor's own process; ready once it has taken in all that is pending."""
    logs.configure("CRITICAL")
    processor = Processor(settings, SystemClock())
    # As a worker does before its first turn.
    gc.freeze()
    processor.join()
    while not stop.is_set():
        processor.turn()
        if processor.ready and not ready.is_set() and _pending(processor) >= pending:
            ready.set()
    processor.close()


def _pending(processor: Processor) -> int:
    return sum(owned.partition.counts.pending for owned in processor.active)


def steady(settings: Settings, rate_per_s: int, seconds: int, pending: int = 0) -> list[float]:
    """Lateness in milliseconds of every due event, in the order received.

    Meanwhile `pending` other reminders wait for the day that begins in an hour.
    """
    shutil.rmtree(settings.data_dir, ignore_errors=True)
    topics.create(kafka.Cluster(settings), settings)
    if pending:
        workload.write(settings, pending, SystemClock().now_ms() + HOUR_MS)
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    process = context.Process(target=run_processor, args=(settings, pending, ready, stop))
    process.start()
    assert ready.wait(READY_S), "the processor did not become ready"
    total = rate_per_s * seconds
    writer = context.Process(target=_write, args=(settings, rate_per_s, total))
    writer.start()
    late_ms = _receive(settings, total, seconds)
    writer.join()
    stop.set()
    process.join(30)
    return late_ms


def _write(settings: Settings, rate_per_s: int, total: int) -> None:
    producer = kafka.plain_producer(settings, "bench")
    source = random.Random(11)
    pace = multiprocessing.Event()
    start = time.monotonic()
    for number in range(total):
        reminder_id = f"steady-{number}"
        due_ms = time.time_ns() // 1_000_000 + source.randrange(*AHEAD_MS)
        value = orjson.dumps(
            {
                "type": "schedule",
                "id": reminder_id,
                "due_at": due_ms,
                "tenant": "acme",
                "kind": "shipment.arriving",
                "payload_ref": f"s3://letters/{number:064d}",
                "headers": {"locale": "de-DE"},
            }
        )
        producer.produce(
            settings.topics.commands,
            value,
            key=routing_key(reminder_id),
            partition=partition_of(reminder_id, settings.partitions),
        )
        producer.poll(0)
        ahead_s = start + number / rate_per_s - time.monotonic()
        if ahead_s > 0.002:
            pace.wait(ahead_s)
    producer.flush()


def _receive(settings: Settings, total: int, seconds: int) -> list[float]:
    consumer = workload.reader(settings, settings.topics.due)
    late_ms: list[float] = []
    deadline = time.monotonic() + seconds + AHEAD_MS[1] / 1_000 + GRACE_S
    while len(late_ms) < total and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        now_ms = time.time_ns() / 1e6
        late_ms.append(now_ms - _due_ms(message.value()))
    consumer.close()
    assert len(late_ms) == total, f"{total - len(late_ms)} due events did not come"
    return late_ms


def _due_ms(value: bytes) -> float:
    from schemas import instants

    return instants.milliseconds(instants.parse(orjson.loads(value)["due_at"], "due_at"))
