"""Asking again what a broker does not know yet, and nothing else."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.console import leaders
from streams.errors import TopicsMissing


class StandingClock:
    """A clock that moves by a second each time it is read."""

    def __init__(self) -> None:
        self.second = 0

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        self.second += 1
        return float(self.second)


def failing(errors: list[Exception]) -> Callable[[], int]:
    def ask() -> int:
        if errors:
            raise errors.pop()
        return 7

    return ask


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "RETRY_INTERVAL_S", 0)


def kafka_error(code: int) -> Exception:
    return KafkaException(KafkaError(code))


def test_what_will_soon_be_known_is_asked_again() -> None:
    errors = [
        TopicsMissing("x"),
        kafka_error(KafkaError.NOT_LEADER_FOR_PARTITION),
        kafka_error(KafkaError.LEADER_NOT_AVAILABLE),
    ]
    assert leaders.answered(failing(errors), StandingClock()) == 7


def test_but_not_for_ever() -> None:
    with pytest.raises(TopicsMissing):
        leaders.answered(failing([TopicsMissing("x")] * 100), StandingClock())


def test_any_other_error_is_one_at_once() -> None:
    errors = [kafka_error(KafkaError.NOT_LEADER_FOR_PARTITION), kafka_error(KafkaError._TIMED_OUT)]
    with pytest.raises(KafkaException):
        leaders.answered(failing(errors), StandingClock())
    assert len(errors) == 1
