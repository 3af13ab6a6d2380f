"""What becomes of a turn whose transaction is refused, fails, or ends nobody knows how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streams import kafka as clients
from streams.errors import Fenced
from streams.processor.transaction import COMMIT_TRIES_MAX
from tests.acceptance import upstream
from tests.kafka import RunningKafka
from tests.processor_lab import Lab, SetClock, laboratory

pytestmark = pytest.mark.kafka

COUNT = 30
REFUSED = KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "refused", txn_requires_abort=True)
SILENT = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
BUSY = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "not now", retriable=True)
USELESS = KafkaError(KafkaError._FATAL, "a fatal error came before")
ENDED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)


class Script:
    """What is to go wrong at the next transaction: calls by name, answered in this order.

    A call is made (or not), and then its answer is replaced by the error, or passed on if None.
    """

    def __init__(self, **steps: list[tuple[bool, KafkaError | None]]) -> None:
        self.steps = {name: list(answers) for name, answers in steps.items()}

    def play(self, name: str, call: Any, arguments: Any) -> Any:
        if not self.steps.get(name):
            return call(*arguments)
        made, error = self.steps[name].pop(0)
        result = call(*arguments) if made else None
        if error is not None:
            raise KafkaException(error)
        return result

    @property
    def over(self) -> bool:
        """Whether all of it has happened."""
        return not any(self.steps.values())


MADE, NOT_MADE = True, False
FAULTS: dict[str, dict[str, list[tuple[bool, KafkaError | None]]]] = {
    "offsets refused": {"send_offsets_to_transaction": [(NOT_MADE, REFUSED)]},
    "commit refused": {"commit_transaction": [(NOT_MADE, REFUSED)]},
    "commit refused, abort unanswered": {
        "commit_transaction": [(NOT_MADE, REFUSED)],
        "abort_transaction": [(NOT_MADE, SILENT)],
    },
    "coordinator busy": {"commit_transaction": [(NOT_MADE, BUSY)] * (COMMIT_TRIES_MAX - 1)},
    "coordinator busy for long": {"commit_transaction": [(NOT_MADE, BUSY)] * COMMIT_TRIES_MAX},
    "answer lost, committed": {"commit_transaction": [(MADE, SILENT)]},
    "answer lost, committed, asked again": {"commit_transaction": [(MADE, BUSY)]},
    "answer lost, not committed": {"commit_transaction": [(NOT_MADE, SILENT)]},
    "offsets unanswered": {"send_offsets_to_transaction": [(NOT_MADE, SILENT)]},
    "a record refused by the client": {"produce": [(MADE, None)] * 3 + [(NOT_MADE, REFUSED)]},
}


class Faulty:
    """A transactional producer whose answers follow the script."""

    script = Script()

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._producer, name)
        if name not in Faulty.script.steps:
            return call

        def played(*arguments: Any, **named: Any) -> Any:
            return Faulty.script.play(name, lambda *given: call(*given, **named), arguments)

        return played


@pytest.fixture
def lab(kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Processors whose transactions can be made to fail."""
    made = clients.transactional_producer
    monkeypatch.setattr(clients, "transactional_producer", lambda *said: Faulty(made(*said)))
    monkeypatch.setattr(Faulty, "script", Script())
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        yield lab


@pytest.mark.parametrize("fault", FAULTS)
def test_a_turn_that_failed_is_redone_once(
    lab: Lab, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    """Once while commands are taken in, and once in a pure tick, which consumes nothing."""
    lab.active()
    due_ms = upstream.now_ms() + 5_000
    Faulty.script = Script(**FAULTS[fault])
    lab.send(*(upstream.schedule(f"t-{n}", due_ms, "due") for n in range(COUNT)))
    lab.turn_until(lambda: Faulty.script.over and lab.pending() == COUNT, "all taken in")
    assert lab.due() == []
    Faulty.script = Script(**FAULTS[fault])
    lab.turn_until(lambda: Faulty.script.over and lab.claims() == COUNT, "all fired")
    assert "store wiped" not in capsys.readouterr().out
    history = lab.assert_all_zero("a")
    assert len(history.due) == COUNT


@pytest.mark.parametrize("lasted_s", [0, 11])
@pytest.mark.parametrize("told_at", ["commit_transaction", "produce"])
def test_only_a_transaction_that_did_not_last_too_long_was_ended_by_another_process(
    lab: Lab, told_at: str, lasted_s: int
) -> None:
    """The coordinator says the same of one that took longer than it may.

    Who is told while it produces, is told at first only that the client is of no more use.
    """
    clock = SetClock()
    processor = lab.active(clock=clock)

    def ended(*_: Any, **__: Any) -> None:
        clock.monotonic_ahead_s += lasted_s
        raise KafkaException(ENDED if told_at == "commit_transaction" else USELESS)

    def refused(*_: Any) -> None:
        raise KafkaException(ENDED)

    for producer in processor._producers._producers:
        vars(producer)[told_at] = ended
        vars(producer)["abort_transaction"] = refused
    lab.send(*(upstream.schedule(f"t-{n}", 0, "due") for n in range(COUNT)))
    if lasted_s == 0:
        with pytest.raises(Fenced, match="another process took over"):
            lab.turn_until(lambda: False, "its end")
        lab.close()
        lab.active()
    lab.turn_until(lambda: lab.claims() == COUNT, "all fired")
    history = lab.assert_all_zero("a")
    assert len(history.due) == COUNT
