"""The delivery worker on a real Kafka: one outcome each, and nobody called twice."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from schemas import events, instants
from schemas.events import Outcome, Status
from schemas.routing import partition_of, routing_key
from streams import kafka as clients
from streams.clock import SystemClock
from streams.delivery import DeliveryWorker
from streams.delivery.inflow import READ_AHEAD_FACTOR
from streams.delivery.partition import Batch
from streams.delivery.recorder import NotRecorded, Recorder, Unknown
from streams.errors import Fenced
from streams.metrics import DUPLICATES
from streams.settings import Settings

pytestmark = pytest.mark.kafka
WAIT_S = 60.0
PARTITIONS = 4


def _until(condition: Callable[[], bool], what: str) -> None:
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
        self.answer = threading.Event()
        self.answer.set()
        self.status = 200
        self.before_answer: Callable[[str], None] = lambda fire_id: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                fire_id = self.headers["webhook-id"]
                self.rfile.read(int(self.headers["content-length"]))
                receiver.seen.append(fire_id)
                receiver.before_answer(fire_id)
                receiver.answer.wait(WAIT_S)
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

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
        self._more = more
        self.settings = Settings(
            **{
                "bootstrap": bootstrap,
                "prefix": f"delivery-{secrets.token_hex(4)}.",
                "partitions": PARTITIONS,
                "data_dir": folder / "1",
                "egress_allow": ("127.0.0.0/8",),
                "session_timeout_ms": 6_000,
                "deliver_timeout_s": 20.0,
            }
            | more
        )
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
def _running(settings: Settings) -> Iterator[DeliveryWorker]:
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


_PROCESS = """
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


def _process(settings: Settings) -> subprocess.Popen[bytes]:
    """A worker in a process of its own, to be killed."""
    said = {field: getattr(settings, field) for field in settings.__slots__}
    said["data_dir"] = str(settings.data_dir)
    return subprocess.Popen([sys.executable, "-c", _PROCESS, orjson.dumps(said).decode()])


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def lab(kafka: Any, tmp_path: Path) -> Lab:
    return Lab(kafka.bootstrap, tmp_path)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_is_delivered_once(
    kafka: Any, tmp_path: Path, receiver: Receiver, protocol: str
) -> None:
    lab = Lab(kafka.bootstrap, tmp_path, group_protocol=protocol)
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(50)]
    logged = lab.due("logged", "channel:log")
    others = lab.due("others", "due")
    mail = lab.due("mail", "mailto:somebody@example.org")
    unknown = lab.due("unknown", "channel:pigeon")
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 53, "53 outcomes")
        _until(lambda: sum(lab.committed().values()) == 54, "all offsets committed")
    statuses = lab.statuses()
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert all(statuses[fire_id] == ["delivered"] for fire_id in [*fire_ids, logged])
    assert statuses[mail] == statuses[unknown] == ["rejected"]
    assert others not in statuses


def test_the_outcome_says_what_the_contract_says(lab: Lab, receiver: Receiver) -> None:
    receiver.status = 503
    lab.due("parent/child", receiver.url, attempt=3)
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 1, "an outcome")
    (outcome,) = lab.outcomes()
    assert (outcome.id, outcome.attempt, outcome.status) == ("parent/child", 3, Status.FAILED)
    assert outcome.detail == "http_503"
    assert outcome.at is not None


def test_rewinding_the_group_calls_nobody_again(
    lab: Lab, receiver: Receiver, tmp_path: Path
) -> None:
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(20)]
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 20, "20 outcomes")
    for settings in (lab.settings, lab.named("1", data_dir=tmp_path / "lost disk")):
        lab.rewind()
        counted = DUPLICATES.labels("delivery")._value.get()
        with _running(settings):
            _until(lambda: sum(lab.committed().values()) == 20, "all offsets committed again")
        assert DUPLICATES.labels("delivery")._value.get() - counted == 20
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert len(lab.outcomes()) == 20


def test_a_next_attempt_is_made_and_a_repeated_one_is_not(lab: Lab, receiver: Receiver) -> None:
    receiver.status = 503
    fire_id = lab.due("invoice", receiver.url, attempt=1)
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 1, "the first outcome")
        lab.due("invoice", receiver.url, attempt=1)
        receiver.status = 200
        lab.due("invoice", receiver.url, attempt=2)
        _until(lambda: len(lab.outcomes()) == 2, "the second outcome")
        lab.due("invoice", receiver.url, attempt=3)
        _until(lambda: sum(lab.committed().values()) == 4, "all offsets committed")
    assert lab.statuses() == {fire_id: ["failed", "delivered"]}
    assert len(receiver.seen) == 2


def test_two_attempts_of_one_never_run_at_once(lab: Lab, receiver: Receiver) -> None:
    receiver.answer.clear()
    fire_id = lab.due("invoice", receiver.url, attempt=1)
    lab.due("invoice", receiver.url, attempt=2)
    marker = next(
        f"marker-{n}"
        for n in range(99)
        if partition_of(f"marker-{n}", PARTITIONS) == partition_of("invoice", PARTITIONS)
    )
    lab.due(marker, "channel:log")
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 1, "the marker, which was read after both")
        assert receiver.seen == [fire_id]
        receiver.answer.set()
        _until(lambda: sum(lab.committed().values()) == 3, "all offsets committed")
    assert receiver.seen == [fire_id]
    assert lab.statuses()[fire_id] == ["delivered"]


def test_revoked_and_stale_are_not_sent(lab: Lab, receiver: Receiver) -> None:
    revoked = lab.due("cancelled", receiver.url)
    lab.write(lab.topics.due, "cancelled", events.revocation(revoked, "paid"))
    stale = lab.due("stale", receiver.url, not_after="2020-01-01T00:00:00.000Z")
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 2, "two outcomes")
        _until(lambda: sum(lab.committed().values()) == 3, "all offsets committed")
    assert lab.statuses() == {revoked: ["cancelled"], stale: ["stale"]}
    assert receiver.seen == []


def test_garbage_is_copied_and_stops_nothing(lab: Lab, receiver: Receiver) -> None:
    lab.write(lab.topics.due, "x", b"\xff not JSON")
    lab.write(lab.topics.due, "x", b'{"revoke": 7}')
    after = lab.due("x", receiver.url)
    with _running(lab.settings):
        _until(lambda: lab.statuses() == {after: ["delivered"]}, "the record after the garbage")
    rejected = lab.records(lab.topics.rejected)
    assert [value for value, _ in rejected] == [b"\xff not JSON", b'{"revoke": 7}']
    assert all(headers["error.topic"] == lab.topics.due.encode() for _, headers in rejected)
    assert [headers["error.offset"] for _, headers in rejected] == [b"0", b"1"]


def test_an_outcome_somebody_else_wrote_counts(lab: Lab, receiver: Receiver) -> None:
    fire_id = lab.due("invoice", receiver.url)
    foreign = Outcome(fire_id=fire_id, id="invoice", attempt=1, status=Status.DELIVERED)
    lab.write(lab.topics.outcomes, "invoice", events.outcome(foreign))
    lab.write(lab.topics.outcomes, "invoice", b"no outcome at all")
    with _running(lab.settings):
        _until(lambda: sum(lab.committed().values()) == 1, "the offset committed")
    assert receiver.seen == []


def test_killed_after_the_answer_and_before_the_record(lab: Lab, receiver: Receiver) -> None:
    """A7. The receiver's 200 was read, nothing is recorded: asked once more, the same id."""
    fire_id = lab.due("invoice", receiver.url)
    never_ms = 600_000
    doomed = _process(lab.named("1", deliver_commit_ms=never_ms))
    try:
        _until(lambda: receiver.seen == [fire_id], "the request")
    finally:
        _kill(doomed)
    assert lab.outcomes() == []
    assert lab.committed() == {}
    with _running(lab.settings):
        _until(lambda: len(lab.outcomes()) == 1, "the outcome")
    assert receiver.seen == [fire_id, fire_id]
    assert lab.statuses() == {fire_id: ["delivered"]}


def test_killed_after_the_record_and_before_the_ledger(lab: Lab, receiver: Receiver) -> None:
    """A8. The outcome is committed, the ledger is not on disk: nobody is asked again."""
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(10)]
    doomed = _process(lab.settings)
    try:
        _until(lambda: len(lab.outcomes()) == 10, "10 outcomes")
    finally:
        _kill(doomed)
    _until(lambda: _rewound(lab), "the killed one to be out of the group")
    with _running(lab.settings):
        _until(lambda: sum(lab.committed().values()) == 10, "all offsets committed again")
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert len(lab.outcomes()) == 10


def _rewound(lab: Lab) -> bool:
    try:
        lab.rewind()
    except Exception:
        return False
    return True


def test_stopping_lets_calls_end_and_starts_none(lab: Lab, receiver: Receiver) -> None:
    """A9. What is under way is recorded, the rest stays for the next one."""
    receiver.answer.clear()
    settings = lab.named("1", deliver_concurrency=2)
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(6)]
    with _running(settings) as worker:
        _until(lambda: len(receiver.seen) == 2, "two requests")
        worker.stop()
        receiver.answer.set()
    assert len(receiver.seen) == 2
    assert set(lab.statuses()) == set(receiver.seen)
    with _running(settings):
        _until(lambda: len(lab.outcomes()) == 6, "all outcomes")
    assert Counter(receiver.seen) == Counter(fire_ids)


def test_more_than_there_is_room_for_is_left_in_the_topic(lab: Lab, receiver: Receiver) -> None:
    receiver.answer.clear()
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(60)]
    worker = DeliveryWorker(lab.named("1", deliver_concurrency=2), SystemClock())
    worker.open()
    backlog: list[int] = []

    def stepped(done: Callable[[], bool]) -> bool:
        worker.step()
        backlog.append(sum(one.backlog for one in worker._owned.open()))
        return done()

    _until(lambda: stepped(lambda: worker._owned.paused), "reading to be paused")
    assert len(receiver.seen) == 2
    receiver.answer.set()
    _until(lambda: stepped(lambda: len(receiver.seen) == 60 and backlog[-1] == 0), "all of it")
    worker.close()
    assert max(backlog) == 2 * READ_AHEAD_FACTOR
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert len(lab.outcomes()) == 60


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_workers_share_and_hand_over(
    kafka: Any, tmp_path: Path, receiver: Receiver, protocol: str
) -> None:
    lab = Lab(kafka.bootstrap, tmp_path, group_protocol=protocol)
    fire_ids = []

    def more(count: int) -> None:
        first = len(fire_ids)
        fire_ids.extend(lab.due(f"n-{n}", receiver.url) for n in range(first, first + count))

    with _running(lab.settings):
        more(50)
        with _running(lab.named("2")):
            more(50)
            _until(lambda: (tmp_path / "2" / "delivery").exists(), "the second one to own some")
            more(100)
            _until(lambda: len(lab.outcomes()) == 200, "200 outcomes")
            more(50)
        more(50)
        _until(lambda: len(lab.outcomes()) == 300, "300 outcomes")
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert Counter(outcome.fire_id for outcome in lab.outcomes()) == Counter(fire_ids)


def test_a_previous_owners_open_transaction_is_waited_for(lab: Lab, receiver: Receiver) -> None:
    """The outcome is written but not committed when the next owner begins."""
    fire_id = lab.due("invoice", receiver.url)
    number = partition_of("invoice", PARTITIONS)
    before = clients.transactional_producer(lab.settings, lab.topics.due + "before", "test")
    member = clients.group_consumer(lab.settings, lab.settings.delivery_group, "test")
    member.subscribe([lab.topics.due])
    _until(lambda: member.poll(0.1) is not None, "the previous owner to own it")
    before.init_transactions(WAIT_S)
    before.begin_transaction()
    outcome = Outcome(fire_id=fire_id, id="invoice", attempt=1, status=Status.DELIVERED)
    before.produce(lab.topics.outcomes, events.outcome(outcome), b"invoice", number)
    before.send_offsets_to_transaction(
        [TopicPartition(lab.topics.due, number, 1)], member.consumer_group_metadata(), WAIT_S
    )
    before.flush(WAIT_S)
    member.close()
    with _running(lab.settings):
        _until(lambda: (lab.settings.data_dir / "delivery").exists(), "the others to be open")
        assert receiver.seen == []
        before.commit_transaction(WAIT_S)
        second = lab.due("invoice", receiver.url, attempt=2)
        _until(lambda: lab.committed().get(number) == 2, "both passed")
    assert second == fire_id
    assert receiver.seen == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_unknown_fate_is_looked_up(
    lab: Lab, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """C5. The coordinator's answer is lost; nothing is assumed and nobody is asked again."""
    record = Recorder.record
    lost: list[int] = []

    def record_and_lose(self: Recorder, batches: list[Batch], group: Any, wait_s: float) -> None:
        if lost:
            record(self, batches, group, wait_s)
            return
        lost.append(len(batches))
        if committed:
            record(self, batches, group, wait_s)
        raise Unknown("the answer was lost")

    monkeypatch.setattr(Recorder, "record", record_and_lose)
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(10)]
    with _running(lab.settings):
        _until(lambda: sum(lab.committed().values()) == 10, "all offsets committed")
    assert lost
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert Counter(outcome.fire_id for outcome in lab.outcomes()) == Counter(fire_ids)


def test_a_failed_transaction_is_recorded_later_and_sends_nothing_again(
    lab: Lab, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Recorder.record
    failures = [NotRecorded("the broker was away")] * 3

    def record_at_last(self: Recorder, batches: list[Batch], group: Any, wait_s: float) -> None:
        if failures:
            raise failures.pop()
        record(self, batches, group, wait_s)

    monkeypatch.setattr(Recorder, "record", record_at_last)
    fire_id = lab.due("invoice", receiver.url)
    with _running(lab.settings):
        _until(lambda: lab.statuses() == {fire_id: ["delivered"]}, "the outcome")
    assert receiver.seen == [fire_id]


def test_a_second_process_of_the_same_name_fences_the_first(lab: Lab, receiver: Receiver) -> None:
    """C4. The old one stops, and nothing of it is to be seen."""
    receiver.answer.clear()
    fire_id = lab.due("invoice", receiver.url)
    old = DeliveryWorker(lab.settings, SystemClock())
    fenced: list[BaseException] = []

    def run() -> None:
        try:
            old.run()
        except Fenced as error:
            fenced.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    _until(lambda: receiver.seen == [fire_id], "the request")
    taken_over = clients.transactional_producer(
        lab.settings, f"{lab.settings.prefix}delivery-{lab.settings.name}", "test"
    )
    taken_over.init_transactions(WAIT_S)
    receiver.answer.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert len(fenced) == 1
    assert lab.outcomes() == []
    assert lab.committed() == {}


def test_one_that_slept_through_its_ownership_records_nothing(lab: Lab, receiver: Receiver) -> None:
    """A11. Stopped past its session, then continued with an answer in its hands."""
    fire_id = lab.due("invoice", receiver.url)
    receiver.answer.clear()
    sleeper = _process(lab.settings)
    try:
        _until(lambda: receiver.seen == [fire_id], "the request")
        os.kill(sleeper.pid, signal.SIGSTOP)
        receiver.answer.set()
        with _running(lab.named("2")):
            _until(lambda: len(lab.outcomes()) == 1, "the outcome of the next owner")
            os.kill(sleeper.pid, signal.SIGCONT)
            _until(lambda: lab.members() == 2, "the sleeper to be back in the group")
            more = [lab.due(f"more-{n}", receiver.url) for n in range(20)]
            _until(lambda: len(lab.outcomes()) == 21, "the outcomes of both")
    finally:
        _kill(sleeper)
    assert lab.statuses()[fire_id] == ["delivered"]
    assert Counter(receiver.seen) == Counter({fire_id: 2} | dict.fromkeys(more, 1))
