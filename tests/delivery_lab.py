"""What tests of the delivery worker share: topics of their own, a receiver, processes to kill."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from schemas import events, instants
from schemas.events import Outcome
from schemas.routing import partition_of, routing_key
from streams import kafka as clients
from streams.clock import SystemClock
from streams.delivery import DeliveryWorker
from streams.settings import Settings

WAIT_S = 60.0
PARTITIONS = 4


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, bounded."""
    deadline_s = time.monotonic() + WAIT_S
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {WAIT_S} s: {what}"
        tick.wait(0.02)


class _Server(ThreadingHTTPServer):
    # The default of 5 makes connections wait for seconds when many come at once.
    request_queue_size = 256

    def handle_error(self, *_: Any) -> None:
        return


class Receiver:
    """A receiver of webhooks that remembers the ids it was asked with."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.answered: list[str] = []
        self.answer = threading.Event()
        self.answer.set()
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                fire_id = self.headers["webhook-id"]
                self.rfile.read(int(self.headers["content-length"]))
                receiver.seen.append(fire_id)
                receiver.answer.wait(WAIT_S)
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()
                receiver.answered.append(fire_id)

            def log_message(self, *_: Any) -> None:
                return

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.answer.set()
        self._server.shutdown()
        self._server.server_close()


class Lab:
    """The topics of one test, and what is in them."""

    def __init__(self, bootstrap: str, folder: Path, **more: Any) -> None:
        self._folder = folder
        said: dict[str, Any] = {
            "bootstrap": bootstrap,
            "prefix": f"delivery-{secrets.token_hex(4)}.",
            "partitions": PARTITIONS,
            "data_dir": folder / "1",
            "egress_allow": ("127.0.0.0/8",),
            "session_timeout_ms": 6_000,
            "deliver_timeout_s": 20.0,
        }
        self.settings = Settings(**said | more)
        self.topics = self.settings.topics
        self.cluster = clients.Cluster(self.settings)
        wanted = [NewTopic(name, PARTITIONS, 1) for name in self.topics.all()]
        for future in self.cluster.admin.create_topics(wanted).values():
            future.result()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})

    def named(self, name: str, **more: Any) -> Settings:
        """The settings of another process of the group."""
        said = {field: getattr(self.settings, field) for field in self.settings.__slots__}
        return Settings(**said | {"name": name, "data_dir": self._folder / name} | more)

    def due(self, reminder_id: str, destination: str, **more: Any) -> str:
        """Write a due event; returns its fire_id."""
        fire_id = events.fire_id(reminder_id, "", 0)
        now = instants.text(SystemClock().now_ms())
        said = {
            "fire_id": fire_id,
            "id": reminder_id,
            "version": 0,
            "occurrence": 0,
            "attempt": 1,
            "tenant": "default",
            "kind": "reminder",
            "destination": destination,
            "due_at": now,
            "fired_at": now,
            **more,
        }
        self.write(self.topics.due, reminder_id, orjson.dumps(said))
        return fire_id

    def write(self, topic: str, reminder_id: str, value: bytes) -> None:
        """Write a record to where it belongs."""
        self._producer.produce(
            topic, value, routing_key(reminder_id), partition_of(reminder_id, PARTITIONS)
        )
        assert self._producer.flush(WAIT_S) == 0

    def records(self, topic: str) -> list[tuple[bytes, dict[str, Any]]]:
        """All committed records of a topic, with their headers."""
        reader = Consumer(
            {
                "bootstrap.servers": self.settings.bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found, ends = [], 0
        while ends < PARTITIONS:
            message = reader.poll(WAIT_S)
            assert message is not None, "a topic ends"
            if message.error() is not None:
                ends += 1
                continue
            headers = message.headers()
            found.append((message.value() or b"", dict(headers or ())))
        reader.close()
        return found

    def outcomes(self) -> list[Outcome]:
        """All recorded outcomes."""
        return [events.decode_outcome(value) for value, _ in self.records(self.topics.outcomes)]

    def statuses(self) -> dict[str, list[str]]:
        """The recorded statuses by fire_id, in order."""
        found: dict[str, list[str]] = {}
        for outcome in self.outcomes():
            found.setdefault(outcome.fire_id, []).append(str(outcome.status))
        return found

    def committed(self) -> dict[int, int]:
        """The group's offsets by partition."""
        group = self.settings.delivery_group
        future = self.cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)]
        )[group]
        return {place.partition: place.offset for place in future.result().topic_partitions}

    def members(self) -> int:
        """How many are in the group."""
        group = self.settings.delivery_group
        return len(self.cluster.admin.describe_consumer_groups([group])[group].result().members)

    def rewind(self) -> None:
        """Set the group back to the beginning, as Kafka's own tool does it."""
        group = self.settings.delivery_group
        places = [TopicPartition(self.topics.due, number, 0) for number in range(PARTITIONS)]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        self.cluster.admin.alter_consumer_group_offsets(wanted)[group].result()


@contextmanager
def running(settings: Settings) -> Iterator[DeliveryWorker]:
    """A worker in a thread; leaves it stopped, and fails with what it failed with."""
    worker = DeliveryWorker(settings, SystemClock())
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive()
    assert failures == []


_PROGRAM = """
import sys
from pathlib import Path
from streams.clock import SystemClock
from streams.delivery import DeliveryWorker
from streams.delivery.inflow import READ_AHEAD_FACTOR
from streams.delivery.partition import Batch
from streams.delivery.recorder import NotRecorded, Recorder, Unknown
from streams.errors import Fenced
from streams.settings import Settings, load
import orjson
DeliveryWorker(load(orjson.loads(sys.argv[1]), environment={}), SystemClock()).run()
"""


def process(settings: Settings) -> subprocess.Popen[bytes]:
    """A worker in a process of its own, to be killed."""
    said = {field: getattr(settings, field) for field in settings.__slots__}
    said["data_dir"] = str(settings.data_dir)
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, orjson.dumps(said).decode()])


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
