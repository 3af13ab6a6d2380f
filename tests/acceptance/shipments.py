"""The real input: ten thousand shipment reminders, moved and cancelled, by three clients."""

from __future__ import annotations

import random
import shutil
import subprocess
from dataclasses import dataclass, field

import orjson
from confluent_kafka import Producer

from deploy.broker import tool_command

KEY_SEPARATOR = "|"
CONSOLE_PRODUCER, KCAT, PLAIN = range(3)
WRITE_TIMEOUT_S = 60.0


@dataclass
class Shipments:
    """The lines each client is to write, and what must come of them."""

    lines: list[list[tuple[str, bytes]]] = field(default_factory=lambda: [[], [], []])
    due_ms: dict[str, int] = field(default_factory=dict)
    """The reminders that stand, and when each is due."""

    cancelled: set[str] = field(default_factory=set)


def make(count: int, url: str, start_ms: int, spread_ms: int, seed: int) -> Shipments:
    """Reminders due at random over `spread_ms` from `start_ms`; some moved, a tenth cancelled."""
    source = random.Random(seed)
    shipments = Shipments()
    for number in range(count):
        reminder_id = f"shipment-{number:05d}"
        client = number % 3
        due_ms = start_ms + source.randrange(spread_ms)
        _line(shipments, client, _schedule(reminder_id, url, due_ms, version=11))
        fate = source.random()
        if fate < 0.1:
            cancel = {"type": "cancel", "id": reminder_id, "version": 11, "reason": "delivered"}
            _line(shipments, client, cancel)
            shipments.cancelled.add(reminder_id)
            continue
        if fate < 0.2:
            due_ms = start_ms + source.randrange(spread_ms)
            _line(shipments, client, _schedule(reminder_id, url, due_ms, version=12))
        elif fate < 0.3 and client != PLAIN:
            # Without a key the records of one id may pass each other: only versions bear that.
            due_ms = start_ms + source.randrange(spread_ms)
            _line(shipments, client, {"type": "reschedule", "id": reminder_id, "due_at": due_ms})
        shipments.due_ms[reminder_id] = due_ms
    return shipments


def _schedule(reminder_id: str, url: str, due_ms: int, version: int) -> dict[str, object]:
    return {
        "type": "schedule",
        "id": reminder_id,
        "due_at": due_ms,
        "version": version,
        "tenant": "parcels",
        "kind": "shipment.arriving",
        "destination": url,
        "payload": {"text": "Arriving tomorrow", "shipment": reminder_id},
    }


def _line(shipments: Shipments, client: int, command: dict[str, object]) -> None:
    shipments.lines[client].append((str(command["id"]), orjson.dumps(command)))


def write_all(shipments: Shipments, bootstrap: str, topic: str) -> None:
    """All three clients write their share at the same time."""
    running = [
        _pipe(
            tool_command(
                "kafka-console-producer",
                "--bootstrap-server",
                bootstrap,
                "--topic",
                topic,
                "--reader-property",
                "parse.key=true",
                "--reader-property",
                f"key.separator={KEY_SEPARATOR}",
            ),
            shipments.lines[CONSOLE_PRODUCER],
        )
    ]
    kcat = shutil.which("kcat")
    if kcat is not None:
        command = [kcat, "-P", "-b", bootstrap, "-t", topic, "-K", KEY_SEPARATOR]
        running.append(_pipe(command, shipments.lines[KCAT]))
    else:
        # kcat is librdkafka with its default partitioner, CRC32 of the key.
        _produce(bootstrap, topic, shipments.lines[KCAT], keyed=True)
    _produce(bootstrap, topic, shipments.lines[PLAIN], keyed=False)
    for process in running:
        assert process.wait(WRITE_TIMEOUT_S) == 0, f"{process.args} failed"


def _pipe(command: list[str], lines: list[tuple[str, bytes]]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    with process.stdin as pipe:
        for key, value in lines:
            pipe.write(key.encode() + KEY_SEPARATOR.encode() + value + b"\n")
    return process


def _produce(bootstrap: str, topic: str, lines: list[tuple[str, bytes]], *, keyed: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "consistent_random"})
    for key, value in lines:
        producer.produce(topic, value, key=key.encode() if keyed else None)
        producer.poll(0)
    assert producer.flush(WRITE_TIMEOUT_S) == 0
