"""Replay with Kafka's own tool: both groups wound back to the beginning, and nothing happens."""

from __future__ import annotations

import pytest

from deploy.broker import run_tool
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.processes import Program
from tests.receiver import Receiver
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

COUNT = 300


def _wind_back(deployment: Deployment, group: str, topic: str) -> None:
    done = run_tool(
        "kafka-consumer-groups",
        "--bootstrap-server",
        deployment.settings.bootstrap,
        "--group",
        group,
        "--topic",
        topic,
        "--reset-offsets",
        "--to-earliest",
        "--execute",
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_happens_twice_when_the_groups_are_wound_back(
    deployment: Deployment, receiver: Receiver
) -> None:
    # Dynamic members, so that the groups are empty once their processes have stopped.
    worker = deployment.worker(static_membership="false")
    delivery = deployment.delivery(static_membership="false")
    worker.start()
    delivery.start()
    worker.wait_ready()
    due_ms = upstream.now_ms() + 3_000
    asked = [upstream.schedule(f"r-{n}", due_ms, receiver.url) for n in range(COUNT)]
    # The moves and the cancels carry no version: decided again, they would change something.
    moves = [
        {"type": "reschedule", "id": f"r-{n}", "due_at": due_ms + 500} for n in range(0, COUNT, 3)
    ]
    cancels = [{"type": "cancel", "id": f"r-{n}"} for n in range(1, COUNT, 3)]
    again = [
        upstream.schedule(f"r-{n}", due_ms + 86_400_000, receiver.url, version=1)
        for n in range(1, COUNT, 6)
    ]
    upstream.send(deployment, *asked, *moves, *cancels, *again)
    stand = {command["id"] for command in asked} - {command["id"] for command in cancels}
    wait_until(lambda: receiver.ids().keys() == stand, 60, "all called")
    wait_until(
        lambda: upstream.metric(worker, "minutewheel_claims") == 0, 20, "all answers taken in"
    )
    assert delivery.stop() == 0, delivery.tail()
    assert worker.stop() == 0, worker.tail()

    settings = deployment.settings
    _wind_back(deployment, settings.processor_group, settings.topics.commands)
    _wind_back(deployment, settings.delivery_group, settings.topics.due)
    worker.start()
    delivery.start()
    worker.wait_ready()
    upstream.send(deployment, *(upstream.schedule(f"last-{n}", 0, receiver.url) for n in range(20)))
    last = {f"last-{n}" for n in range(20)}
    wait_until(lambda: last <= receiver.ids().keys(), 60, "what came after the replay")

    replayed = len(asked) + len(moves) + len(cancels) + len(again)
    suppressed = 'minutewheel_duplicates_suppressed_total{where="commands"}'
    assert upstream.metric(worker, suppressed) == replayed
    wait_until(
        lambda: _suppressed_by_delivery(delivery) == len(stand), 30, "the replayed due events"
    )
    assert receiver.ids().keys() == stand | last
    assert max(receiver.ids().values()) == 1, "called twice"
    for command in again:
        standing = upstream.get(worker, command["id"])
        assert standing is not None
        assert standing["state"] == "pending"
    assert worker.stop() == 0
    assert delivery.stop() == 0
    history = zeros.read(settings)
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))


def _suppressed_by_delivery(delivery: Program) -> float:
    return upstream.metric(delivery, 'minutewheel_duplicates_suppressed_total{where="delivery"}')
