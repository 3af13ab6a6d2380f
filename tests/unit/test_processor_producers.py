"""The transactional producers take turns, and are all there or none."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams import kafka, logs
from streams.errors import EngineFailed
from streams.processor.producers import Producers
from streams.settings import Settings

SILENT = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
REFUSED = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not allowed")


class Made:
    """What of a producer matters here: when it was made, and that it is let go of properly."""

    def __init__(self, name: str, answer: KafkaError | None) -> None:
        self.name = name
        self.answer = answer
        self.done: list[str] = []

    def init_transactions(self, _timeout_s: float) -> None:
        if self.answer is not None:
            raise KafkaException(self.answer)

    def purge(self) -> None:
        self.done.append("purge")

    def poll(self, _timeout_s: float) -> None:
        self.done.append("poll")


class Broker:
    """Answers each initialisation as it was told to, and then with yes."""

    def __init__(self) -> None:
        self.answers: list[KafkaError | None] = []
        self.made: list[Made] = []

    def make(self, _settings: Settings, name: str, _role: str) -> Any:
        self.made.append(Made(name, self.answers.pop(0) if self.answers else None))
        return self.made[-1]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(kafka, "transactional_producer", broker.make)
    return broker


@pytest.fixture
def producers() -> Producers:
    return Producers(Settings(name="a", prefix="p."), logs.get("test"))


def _names(made: list[Made]) -> list[str]:
    return [one.name for one in made]


def test_a_turn_that_committed_gives_way_to_the_other_one(
    broker: Broker, producers: Producers
) -> None:
    producers.open()
    used: list[Any] = []
    for committed in (True, False, False, True, True):
        used.append(producers.current)
        if committed:
            producers.committed()
    first, second = broker.made
    assert used == [first, second, second, second, first]


def test_both_ids_are_the_processs_own(broker: Broker, producers: Producers) -> None:
    producers.open()
    producers.open()
    assert _names(broker.made) == ["p.processor-a-0", "p.processor-a-1"]


@pytest.mark.parametrize("answers", [[SILENT], [None, SILENT]])
def test_with_one_missing_there_is_none_and_next_time_both_are_made_anew(
    broker: Broker, producers: Producers, answers: list[KafkaError | None]
) -> None:
    broker.answers = list(answers)
    producers.open()
    assert not producers.ready
    producers.open()
    assert producers.ready
    assert _names(broker.made[len(answers) :]) == ["p.processor-a-0", "p.processor-a-1"]


def test_one_that_is_not_allowed_ends_the_process(broker: Broker, producers: Producers) -> None:
    broker.answers = [None, REFUSED]
    with pytest.raises(EngineFailed, match=r"no transactions as p\.processor-a-1: not allowed"):
        producers.open()


def test_dropped_ones_are_emptied_so_that_their_threads_can_end(
    broker: Broker, producers: Producers
) -> None:
    producers.open()
    producers.drop()
    assert not producers.ready
    assert [one.done for one in broker.made] == [["purge", "poll"]] * 2
