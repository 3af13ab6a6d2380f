"""The delivery worker killed, fenced, put to sleep and left without answers, on a real Kafka."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from schemas import events
from schemas.events import Outcome, Status
from schemas.routing import partition_of
from streams import kafka as clients
from streams.clock import SystemClock
from streams.delivery import DeliveryWorker
from streams.delivery.partition import Batch
from streams.delivery.recorder import NotRecorded, Recorder, Unknown
from streams.errors import Fenced
from tests.delivery_lab import PARTITIONS, WAIT_S, Lab, Receiver, kill, process, running, until

pytestmark = pytest.mark.kafka


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def lab(kafka: Any, tmp_path: Path) -> Lab:
    return Lab(kafka.bootstrap, tmp_path)


def test_killed_after_the_answer_and_before_the_record(lab: Lab, receiver: Receiver) -> None:
    """A7. The receiver's 200 was read, nothing is recorded: asked once more, the same id."""
    fire_id = lab.due("invoice", receiver.url)
    never_ms = 600_000
    doomed = process(lab.named("1", deliver_commit_ms=never_ms))
    try:
        until(lambda: receiver.answered == [fire_id], "the answer")
    finally:
        kill(doomed)
    assert lab.outcomes() == []
    assert lab.committed() == {}
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 1, "the outcome")
    assert receiver.seen == [fire_id, fire_id]
    assert lab.statuses() == {fire_id: ["delivered"]}


def test_killed_after_the_record_and_before_the_ledger(lab: Lab, receiver: Receiver) -> None:
    """A8. The outcome is committed, the ledger is not on disk: nobody is asked again."""
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(10)]
    doomed = process(lab.settings)
    try:
        until(lambda: len(lab.outcomes()) == 10, "10 outcomes")
    finally:
        kill(doomed)
    until(lambda: _rewound(lab), "the killed one to be out of the group")
    with running(lab.settings):
        until(lambda: sum(lab.committed().values()) == 10, "all offsets committed again")
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert len(lab.outcomes()) == 10


def _rewound(lab: Lab) -> bool:
    try:
        lab.rewind()
    except Exception:
        return False
    return True


def test_a_previous_owners_open_transaction_is_waited_for(lab: Lab, receiver: Receiver) -> None:
    """The outcome is written but not committed when the next owner begins."""
    fire_id = lab.due("invoice", receiver.url)
    number = partition_of("invoice", PARTITIONS)
    other = next(name for name in "abcdefgh" if partition_of(name, PARTITIONS) != number)
    elsewhere = lab.due(other, receiver.url)
    before = clients.transactional_producer(lab.settings, lab.topics.due + "before", "test")
    member = clients.group_consumer(lab.settings, lab.settings.delivery_group, "test")
    member.subscribe([lab.topics.due])
    until(lambda: member.poll(0.1) is not None, "the previous owner to own it")
    before.init_transactions(WAIT_S)
    before.begin_transaction()
    outcome = Outcome(fire_id=fire_id, id="invoice", attempt=1, status=Status.DELIVERED)
    before.produce(lab.topics.outcomes, events.outcome(outcome), b"invoice", number)
    before.send_offsets_to_transaction(
        [TopicPartition(lab.topics.due, number, 1)], member.consumer_group_metadata(), WAIT_S
    )
    before.flush(WAIT_S)
    member.close()
    with running(lab.settings):
        until(lambda: receiver.seen != [], "the other partitions to deliver meanwhile")
        assert receiver.seen == [elsewhere]
        before.commit_transaction(WAIT_S)
        second = lab.due("invoice", receiver.url, attempt=2)
        until(lambda: lab.committed().get(number) == 2, "both passed")
    assert second == fire_id
    assert receiver.seen == [elsewhere]


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
    with running(lab.settings):
        until(lambda: sum(lab.committed().values()) == 10, "all offsets committed")
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
    with running(lab.settings):
        until(lambda: lab.statuses() == {fire_id: ["delivered"]}, "the outcome")
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
    until(lambda: receiver.seen == [fire_id], "the request")
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
    sleeper = process(lab.settings)
    try:
        until(lambda: receiver.seen == [fire_id], "the request")
        os.kill(sleeper.pid, signal.SIGSTOP)
        receiver.answer.set()
        with running(lab.named("2")):
            until(lambda: len(lab.outcomes()) == 1, "the outcome of the next owner")
            os.kill(sleeper.pid, signal.SIGCONT)
            until(lambda: lab.members() == 2, "the sleeper to be back in the group")
            more = [lab.due(f"more-{n}", receiver.url) for n in range(20)]
            until(lambda: len(lab.outcomes()) == 21, "the outcomes of both")
    finally:
        kill(sleeper)
    assert lab.statuses()[fire_id] == ["delivered"]
    assert Counter(receiver.seen) == Counter({fire_id: 2} | dict.fromkeys(more, 1))
