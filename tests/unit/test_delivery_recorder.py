"""The recording transaction: what it holds, and what each way of failing leads to."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas.errors import Refused
from schemas.events import Outcome, Status
from streams import kafka
from streams.clock import SystemClock
from streams.delivery.partition import Batch, Due, Recorded, Refusal
from streams.delivery.recorder import NotRecorded, Recorder, Unknown
from streams.errors import EngineFailed, Fenced
from streams.settings import Settings
from tests.processor_lab import SetClock

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "x", retriable=True)
ABORTABLE = KafkaError(KafkaError.ILLEGAL_GENERATION, "x", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "x", fatal=True)
FATAL = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "x", fatal=True)


class FakeProducer:
    """Notes what is called, and fails as it is told to."""

    def __init__(self, **failures: list[KafkaError]) -> None:
        self.calls: list[str] = []
        self.produced: list[tuple[Any, ...]] = []
        self.offsets: list[tuple[str, int, int]] = []
        self._failures = failures

    def _call(self, name: str) -> None:
        self.calls.append(name)
        failures = self._failures.get(name)
        if failures:
            raise KafkaException(failures.pop(0) if len(failures) > 1 else failures[0])

    def init_transactions(self, _: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, **_: Any) -> None:
        self._call("produce")
        self.produced.append((topic, key, partition, value))

    def send_offsets_to_transaction(self, offsets: list[Any], group: Any, _: float) -> None:
        self._call("offsets")
        self.offsets = [(one.topic, one.partition, one.offset) for one in offsets]

    def commit_transaction(self, _: float) -> None:
        self._call("commit")

    def abort_transaction(self, _: float) -> None:
        self._call("abort")

    def purge(self) -> None:
        self._call("purge")


class Once(list[KafkaError]):
    """A failure that happens one time."""

    def __len__(self) -> int:
        return 2 if super().__len__() else 0


def _batches() -> list[Batch]:
    outcome = Outcome(fire_id="0" * 32, id="a/b", attempt=1, status=Status.DELIVERED, at=0)
    refusal = Refusal(Due(6, b"key", b"\xff", None), Refused("malformed", "not JSON"))
    return [
        Batch(0, 5, [Recorded(outcome, "webhook")], []),
        Batch(1, 7, [], [refusal]),
        Batch(2, 9, [], []),
    ]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(**failures: list[KafkaError]) -> tuple[Recorder, FakeProducer]:
        producer = FakeProducer(**failures)
        monkeypatch.setattr(kafka, "transactional_producer", lambda *_: producer)
        recorder = Recorder(Settings(prefix="p."), SystemClock())
        assert recorder.ready()
        return recorder, producer

    return made


def test_every_partition_of_the_transaction_has_its_offset_in_it(make: Any) -> None:
    recorder, producer = make()
    recorder.record(_batches(), None, 1.0)
    assert producer.calls == ["init", "begin", "produce", "produce", "offsets", "commit"]
    assert producer.offsets == [("p.due", 0, 5), ("p.due", 1, 7), ("p.due", 2, 9)]
    assert [(topic, key, number) for topic, key, number, _ in producer.produced] == [
        ("p.outcomes", b"a", 0),
        ("p.rejected", b"key", 1),
    ]
    assert producer.produced[1][3] == b"\xff"


@pytest.mark.parametrize("step", ["begin", "offsets", "commit"])
def test_what_must_be_aborted_is_aborted_and_may_be_tried_again(make: Any, step: str) -> None:
    recorder, producer = make(**{step: [ABORTABLE]})
    with pytest.raises(NotRecorded):
        recorder.record(_batches(), None, 1.0)
    assert producer.calls[-1] == "abort"
    assert not recorder.broken


@pytest.mark.parametrize("step", ["offsets", "commit"])
def test_what_may_be_called_again_is(make: Any, step: str) -> None:
    recorder, producer = make(**{step: Once([TIMED_OUT])})
    recorder.record(_batches(), None, 1.0)
    assert producer.calls.count(step) == 2
    assert "abort" not in producer.calls


def test_a_commit_nobody_answers_is_of_unknown_fate_and_not_aborted(make: Any) -> None:
    recorder, producer = make(commit=[TIMED_OUT])
    with pytest.raises(Unknown):
        recorder.record(_batches(), None, 0.01)
    assert "abort" not in producer.calls


def test_an_abort_nobody_answers_is_of_unknown_fate(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.delivery.recorder.CALL_S_MAX", 0.01)
    recorder, _ = make(offsets=[ABORTABLE], abort=[TIMED_OUT])
    with pytest.raises(Unknown):
        recorder.record(_batches(), None, 0.01)


@pytest.mark.parametrize("step", ["begin", "offsets", "commit"])
@pytest.mark.parametrize(("error", "raised"), [(FENCED, Fenced), (FATAL, EngineFailed)])
def test_what_cannot_be_healed_stops_the_worker(
    make: Any, step: str, error: KafkaError, raised: type[Exception]
) -> None:
    recorder, producer = make(**{step: [error]})
    with pytest.raises(raised):
        recorder.record(_batches(), None, 1.0)
    assert "abort" not in producer.calls
    assert recorder.broken


def test_a_coordinator_that_does_not_answer_is_asked_again(monkeypatch: Any) -> None:
    producer = FakeProducer(init=Once([TIMED_OUT]))
    monkeypatch.setattr(kafka, "transactional_producer", lambda *_: producer)
    recorder = Recorder(Settings(), SystemClock())
    assert not recorder.ready()
    assert recorder.broken
    assert recorder.ready()
    assert producer.calls == ["init", "init"]


@pytest.mark.parametrize("step", ["begin", "offsets"])
def test_a_client_nobody_has_answered_is_not_used_again(make: Any, step: str) -> None:
    """It may wait for ever on what it was not told: a new one asks what became of it."""
    recorder, producer = make(**{step: [TIMED_OUT]})
    with pytest.raises(Unknown):
        recorder.record(_batches(), None, 0.01)
    assert "abort" not in producer.calls


@pytest.mark.parametrize("step", ["offsets", "commit"])
def test_a_transaction_that_lasted_too_long_is_not_taken_for_fencing(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The coordinator ends it under the same error."""
    producer = FakeProducer(**{step: [FENCED]})
    monkeypatch.setattr(kafka, "transactional_producer", lambda *_: producer)
    clock = SetClock()
    recorder = Recorder(Settings(), clock)
    assert recorder.ready()
    produce = producer.produce

    def slowly(*said: Any, **more: Any) -> None:
        clock.monotonic_ahead_s += 6
        produce(*said, **more)

    monkeypatch.setattr(producer, "produce", slowly)
    with pytest.raises(Unknown):
        recorder.record(_batches(), None, 1.0)
    assert recorder.broken
