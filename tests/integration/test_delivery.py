"""The delivery worker on a real Kafka: one outcome each, and nobody called twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas import events
from schemas.events import Outcome, Status
from schemas.routing import partition_of
from streams.clock import SystemClock
from streams.delivery import DeliveryWorker
from streams.delivery.inflow import READ_AHEAD_FACTOR
from streams.metrics import DUPLICATES
from tests.delivery_lab import PARTITIONS, Lab, Receiver, running, until

pytestmark = pytest.mark.kafka


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
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 53, "53 outcomes")
        until(lambda: sum(lab.committed().values()) == 54, "all offsets committed")
    statuses = lab.statuses()
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert all(statuses[fire_id] == ["delivered"] for fire_id in [*fire_ids, logged])
    assert statuses[mail] == statuses[unknown] == ["rejected"]
    assert others not in statuses


def test_the_outcome_says_what_the_contract_says(lab: Lab, receiver: Receiver) -> None:
    receiver.status = 503
    lab.due("parent/child", receiver.url, attempt=3)
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 1, "an outcome")
    (outcome,) = lab.outcomes()
    assert (outcome.id, outcome.attempt, outcome.status) == ("parent/child", 3, Status.FAILED)
    assert outcome.detail == "http_503"
    assert outcome.at is not None


def test_rewinding_the_group_calls_nobody_again(
    lab: Lab, receiver: Receiver, tmp_path: Path
) -> None:
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(20)]
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 20, "20 outcomes")
    for settings in (lab.settings, lab.named("1", data_dir=tmp_path / "lost disk")):
        lab.rewind()
        counted = DUPLICATES.labels("delivery")._value.get()
        with running(settings):
            until(lambda: sum(lab.committed().values()) == 20, "all offsets committed again")
        assert DUPLICATES.labels("delivery")._value.get() - counted == 20
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert len(lab.outcomes()) == 20


def test_a_next_attempt_is_made_and_a_repeated_one_is_not(lab: Lab, receiver: Receiver) -> None:
    receiver.status = 503
    fire_id = lab.due("invoice", receiver.url, attempt=1)
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 1, "the first outcome")
        lab.due("invoice", receiver.url, attempt=1)
        receiver.status = 200
        lab.due("invoice", receiver.url, attempt=2)
        until(lambda: len(lab.outcomes()) == 2, "the second outcome")
        lab.due("invoice", receiver.url, attempt=3)
        until(lambda: sum(lab.committed().values()) == 4, "all offsets committed")
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
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 1, "the marker, which was read after both")
        assert receiver.seen == [fire_id]
        receiver.answer.set()
        until(lambda: sum(lab.committed().values()) == 3, "all offsets committed")
    assert receiver.seen == [fire_id]
    assert lab.statuses()[fire_id] == ["delivered"]


def test_revoked_and_stale_are_not_sent(lab: Lab, receiver: Receiver) -> None:
    revoked = lab.due("cancelled", receiver.url)
    lab.write(lab.topics.due, "cancelled", events.revocation(revoked, "paid"))
    stale = lab.due("stale", receiver.url, not_after="2020-01-01T00:00:00.000Z")
    with running(lab.settings):
        until(lambda: len(lab.outcomes()) == 2, "two outcomes")
        until(lambda: sum(lab.committed().values()) == 3, "all offsets committed")
    assert lab.statuses() == {revoked: ["cancelled"], stale: ["stale"]}
    assert receiver.seen == []


def test_garbage_is_copied_and_stops_nothing(lab: Lab, receiver: Receiver) -> None:
    lab.write(lab.topics.due, "x", b"\xff not JSON")
    lab.write(lab.topics.due, "x", b'{"revoke": 7}')
    after = lab.due("x", receiver.url)
    with running(lab.settings):
        until(lambda: lab.statuses() == {after: ["delivered"]}, "the record after the garbage")
    rejected = lab.records(lab.topics.rejected)
    assert [value for value, _ in rejected] == [b"\xff not JSON", b'{"revoke": 7}']
    assert all(headers["error.topic"] == lab.topics.due.encode() for _, headers in rejected)
    assert [headers["error.offset"] for _, headers in rejected] == [b"0", b"1"]


def test_an_outcome_somebody_else_wrote_counts(lab: Lab, receiver: Receiver) -> None:
    fire_id = lab.due("invoice", receiver.url)
    foreign = Outcome(fire_id=fire_id, id="invoice", attempt=1, status=Status.DELIVERED)
    lab.write(lab.topics.outcomes, "invoice", events.outcome(foreign))
    lab.write(lab.topics.outcomes, "invoice", b"no outcome at all")
    with running(lab.settings):
        until(lambda: sum(lab.committed().values()) == 1, "the offset committed")
    assert receiver.seen == []


def test_stopping_lets_calls_end_and_starts_none(lab: Lab, receiver: Receiver) -> None:
    """A9. What is under way is recorded, the rest stays for the next one."""
    receiver.answer.clear()
    settings = lab.named("1", deliver_concurrency=2)
    fire_ids = [lab.due(f"invoice-{n}", receiver.url) for n in range(6)]
    with running(settings) as worker:
        until(lambda: len(receiver.seen) == 2, "two requests")
        worker.stop()
        receiver.answer.set()
    assert len(receiver.seen) == 2
    assert set(lab.statuses()) == set(receiver.seen)
    with running(settings):
        until(lambda: len(lab.outcomes()) == 6, "all outcomes")
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

    until(lambda: stepped(lambda: worker._owned.paused), "reading to be paused")
    assert len(receiver.seen) == 2
    receiver.answer.set()
    until(lambda: stepped(lambda: len(receiver.seen) == 60 and backlog[-1] == 0), "all of it")
    worker.close()
    assert max(backlog) == 2 * READ_AHEAD_FACTOR
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert len(lab.outcomes()) == 60


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_workers_share_and_hand_over(
    kafka: Any, tmp_path: Path, receiver: Receiver, protocol: str
) -> None:
    lab = Lab(kafka.bootstrap, tmp_path, group_protocol=protocol)
    fire_ids: list[str] = []

    def more(count: int) -> None:
        first = len(fire_ids)
        fire_ids.extend(lab.due(f"n-{n}", receiver.url) for n in range(first, first + count))

    with running(lab.settings):
        more(50)
        with running(lab.named("2")):
            more(50)
            until(lambda: (tmp_path / "2" / "delivery").exists(), "the second one to own some")
            more(100)
            until(lambda: len(lab.outcomes()) == 200, "200 outcomes")
            more(50)
        more(50)
        until(lambda: len(lab.outcomes()) == 300, "300 outcomes")
    assert Counter(receiver.seen) == Counter(fire_ids)
    assert Counter(outcome.fire_id for outcome in lab.outcomes()) == Counter(fire_ids)
