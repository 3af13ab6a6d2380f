"""A processor that slept through the loss of its partitions writes nothing any more."""

from __future__ import annotations

import signal

import pytest

from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.processes import Program
from tests.receiver import Receiver
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

COUNT = 2_000
SPREAD_MS = 40_000


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_stopped_past_its_session_and_continued(
    deployment: Deployment, receiver: Receiver, protocol: str
) -> None:
    deployment.extra |= {"static_membership": "false", "group_protocol": protocol}
    first, second = deployment.worker("a"), deployment.worker("b")
    delivery = deployment.delivery()
    for program in (first, delivery):
        program.start()
    first.wait_ready()
    start_ms = upstream.now_ms() + 10_000
    upstream.send(
        deployment,
        *(
            upstream.schedule(f"z-{n}", start_ms + n * SPREAD_MS // COUNT, receiver.url)
            for n in range(COUNT)
        ),
    )
    second.start()
    second.wait_ready()
    wait_until(lambda: len(_phases(second)) == 2, 60, "two partitions each")
    wait_until(lambda: len(receiver.calls) > 100, 60, "reminders firing")
    first.send(signal.SIGSTOP)
    # Longer than the session: all four partitions come to the other one.
    wait_until(lambda: len(_phases(second)) == 4, 60, "the other one owns everything")
    first.send(signal.SIGCONT)
    wait_until(lambda: len(receiver.ids()) == COUNT, 120, "all called")
    wait_until(lambda: _claims(second, first) == 0, 30, "all answers taken in")
    assert max(receiver.ids().values()) == 1, "called twice"
    assert delivery.stop() == 0
    assert second.stop() == 0, second.tail()
    first.stop()
    history = zeros.read(deployment.settings)
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))


def _phases(worker: Program) -> dict[str, str]:
    """The partitions a worker is turning on."""
    ready = upstream.ready(worker)
    return {number: phase for number, phase in ready.items() if phase == "active"}


def _claims(*workers: Program) -> float:
    return sum(
        upstream.metric(worker, "minutewheel_claims") for worker in workers if worker.running
    )
