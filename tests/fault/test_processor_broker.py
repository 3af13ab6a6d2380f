"""All brokers away across a due minute: everybody waits, and catches up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.broker import LocalCluster
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import deployed
from tests.kafka import free_port
from tests.receiver import receiving
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT = 40
AWAY_MS = 15_000
"""Longer than a session and a transaction may last."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A Kafka of one node that the test may kill."""
    with LocalCluster(tmp_path / "kafka", port=free_port(), heap="512m") as cluster:
        yield cluster


def test_brokers_away_while_reminders_fall_due(cluster: LocalCluster, tmp_path: Path) -> None:
    """C2. No crash loop; what is overdue is called once they are back, in a bounded time."""
    with deployed(cluster.bootstrap, tmp_path, partitions=2) as deployment, receiving() as receiver:
        worker, delivery = deployment.worker(), deployment.delivery()
        worker.start()
        delivery.start()
        worker.wait_ready()
        now_ms = upstream.now_ms()
        # The first are under way when the brokers go, the others fall due while they are gone.
        due_ms = {f"b-{n}": now_ms + 2_000 + n * 10_000 // COUNT for n in range(COUNT)}
        upstream.send(
            deployment,
            *(upstream.schedule(name, at, receiver.url) for name, at in due_ms.items()),
        )
        wait_until(lambda: len(receiver.ids()) > 2, 30, "the first are called")
        cluster.kill_node(1)
        gone_ms = upstream.now_ms()
        wait_until(lambda: upstream.now_ms() > gone_ms + AWAY_MS, 30, "the outage is over")
        assert worker.running, worker.tail()
        assert delivery.running, delivery.tail()
        assert len(receiver.ids()) < COUNT
        cluster.start_node(1)
        wait_until(lambda: receiver.ids().keys() == due_ms.keys(), 40, "all are called")
        assert worker.running, worker.tail()
        assert delivery.running, delivery.tail()
        wait_until(lambda: upstream.metric(worker, "minutewheel_claims") == 0, 20, "all answered")
        assert delivery.stop() == 0, delivery.tail()
        assert worker.stop() == 0, worker.tail()
        history = zeros.read(deployment.settings)
        zeros.look_into(history, deployment.data_dir("worker-a"))
        zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
        assert len(history.due) == COUNT
