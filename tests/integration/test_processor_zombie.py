"""A processor that has lost its partitions writes nothing, whatever it still believes."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.processor.processor import Processor
from streams.processor.transaction import TurnFailed
from tests.acceptance import upstream
from tests.kafka import RunningKafka
from tests.processor_lab import SESSION_MS, laboratory

pytestmark = pytest.mark.kafka

COUNT = 20


def _tick_unpolled(processor: Processor) -> None:
    """What a turn does after its poll, with nothing consumed: only time has passed."""
    try:
        processor._one_turn(processor.active, [], 0.0)
    finally:
        for owned in processor.active:
            # As after any failed turn: what was taken off the wheel is due again.
            owned.partition.abandon()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_tick_of_one_that_lost_its_partitions_is_refused(
    kafka: RunningKafka, tmp_path: Path, protocol: str
) -> None:
    said = {"group_protocol": protocol, "poll_interval_ms_max": SESSION_MS}
    with laboratory(kafka.bootstrap, tmp_path, **said) as lab:
        sleeper = lab.active("sleeper")
        due_ms = upstream.now_ms() + 3_000
        lab.send(*(upstream.schedule(f"z-{n}", due_ms, "due") for n in range(COUNT)))
        lab.turn_until(lambda: lab.pending() == COUNT, "all taken in")
        del lab.running["sleeper"]
        other = lab.processor("other")
        lab.turn_until(lambda: lab.claims() == COUNT, "the other one has fired everything")
        assert len(sleeper.active) == len(other.active), "it still believes that it owns them"
        with pytest.raises(TurnFailed):
            _tick_unpolled(sleeper)
        # With nobody left in the group there is nobody to take them from: refused all the same.
        lab.close("other")
        with pytest.raises(TurnFailed):
            _tick_unpolled(sleeper)
        assert len(lab.due()) == COUNT
        lab.running["sleeper"] = sleeper
        lab.send(upstream.schedule("after", 0, "due"))
        lab.turn_until(lambda: lab.claims() == COUNT + 1, "it has joined again and works")
        lab.assert_all_zero("sleeper")
