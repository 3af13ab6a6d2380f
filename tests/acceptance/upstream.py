"""An upstream service: writes commands, and asks a node what became of them."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Any

import orjson
from confluent_kafka import Producer

from tests.deployment import Deployment
from tests.processes import Program

FLUSH_TIMEOUT_S = 30.0


def now_ms() -> int:
    """UTC milliseconds."""
    return time.time_ns() // 1_000_000


def schedule(reminder_id: str, due_at_ms: int, destination: str, **more: Any) -> dict[str, Any]:
    """A schedule command."""
    return {
        "type": "schedule",
        "id": reminder_id,
        "due_at": due_at_ms,
        "destination": destination,
        **more,
    }


Raw = tuple[bytes | None, bytes] | tuple[bytes | None, bytes, dict[str, str]]


def send(deployment: Deployment, *commands: dict[str, Any] | Raw) -> None:
    """Write commands as the Java client would place them; raw ones are key, value and headers."""
    producer = Producer(
        {
            "bootstrap.servers": deployment.settings.bootstrap,
            "partitioner": "murmur2_random",
            "message.max.bytes": 2_000_000,
        }
    )
    for command in commands:
        headers: dict[str, str] = {}
        if isinstance(command, dict):
            key, value = str(command["id"]).partition("/")[0].encode(), orjson.dumps(command)
        elif len(command) == 2:
            key, value = command
        else:
            key, value, headers = command
        producer.produce(deployment.settings.topics.commands, value, key, headers=headers)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0


def get(worker: Program, reminder_id: str) -> dict[str, Any] | None:
    """A reminder as a node describes it, None where there is none."""
    address = f"http://{worker.http}/v1/reminders/{reminder_id}"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            found: dict[str, Any] = orjson.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return None
        raise


def ready(worker: Program) -> dict[str, str]:
    """The partitions a worker owns, and how far each has come."""
    try:
        with urllib.request.urlopen(f"http://{worker.http}/health/ready", timeout=10) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
    partitions: dict[str, str] = orjson.loads(body)["partitions"]
    return partitions


def metric(program: Program, name: str) -> float:
    """A sample of a process's /metrics, by its name with labels; 0 where there is none."""
    with urllib.request.urlopen(f"http://{program.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
    return 0.0
