"""Processes that must not go on: their topics or their disk do not allow it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from streams import kafka
from streams.errors import EngineFailed, PartitionsChanged
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment, deployed
from tests.kafka import RunningKafka
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT = 200
END_TIMEOUT_S = 30.0


@pytest.fixture
def deployment(kafka: RunningKafka, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment of two partitions."""
    with deployed(kafka.bootstrap, tmp_path, partitions=2) as deployment:
        yield deployment


def _runs_to_its_end(worker: Program) -> int:
    worker.start()
    wait_until(lambda: not worker.running, END_TIMEOUT_S, f"its end; see\n{worker.tail()}")
    return worker.stop()


def _add_partitions(deployment: Deployment, *names: str) -> None:
    cluster = kafka.Cluster(deployment.settings)
    wanted = [NewPartitions(name, 4) for name in names]
    for future in cluster.admin.create_partitions(wanted).values():
        future.result()

    def grown() -> bool:
        try:
            return all(cluster.end_offset(TopicPartition(name, 3)) == 0 for name in names)
        except KafkaException:
            return False

    wait_until(grown, 30, "the partitions are there")


def _ends(deployment: Deployment) -> dict[tuple[str, int], int]:
    """Where every partition of every topic ends, but of the commands, which the test writes."""
    cluster = kafka.Cluster(deployment.settings)
    topics = deployment.settings.topics
    described = cluster.topics([name for name in topics.all() if name != topics.commands])
    return {
        (name, number): cluster.end_offset(TopicPartition(name, number))
        for name, topic in described.items()
        for number in range(len(topic.partitions))
    }


def test_nothing_is_written_once_partitions_were_added(deployment: Deployment) -> None:
    """C10. Ids hash to other partitions now, whether or not the disk is still there."""
    topics = deployment.settings.topics
    worker = deployment.worker()
    worker.start()
    worker.wait_ready()
    far_ms = upstream.now_ms() + 86_400_000
    upstream.send(deployment, *(upstream.schedule(f"p-{n}", far_ms, "due") for n in range(COUNT)))
    wait_until(lambda: upstream.metric(worker, "minutewheel_pending") == COUNT, 30, "taken in")
    assert worker.stop() == 0

    _add_partitions(deployment, topics.commands)
    upstream.send(deployment, *(upstream.schedule(f"q-{n}", 0, "due") for n in range(COUNT)))
    before = _ends(deployment)
    assert _runs_to_its_end(worker) == PartitionsChanged.exit_code
    assert "must all have the same number of partitions" in worker.tail()
    assert _ends(deployment) == before

    _add_partitions(deployment, *(name for name in topics.all() if name != topics.commands))
    before = _ends(deployment)
    worker.log.write_text("")
    assert _runs_to_its_end(worker) == PartitionsChanged.exit_code
    assert "ids hash to other partitions now" in worker.tail()

    # Also where nothing is left that has the old number.
    _add_partitions(deployment, f"{deployment.settings.prefix}worker-pressure-view-changelog")
    for disk in ("kept", "lost"):
        if disk == "lost":
            shutil.rmtree(deployment.data_dir("worker-a"))
        worker.log.write_text("")
        assert _runs_to_its_end(worker) == PartitionsChanged.exit_code, disk
        assert "ids hash to other partitions" in worker.tail(), disk
        assert _ends(deployment) == before, disk


def test_a_disk_that_takes_nothing_ends_the_process_and_costs_nothing(
    deployment: Deployment,
) -> None:
    """B4. The turn is committed and cannot be written: the next start reads it again."""
    worker = deployment.worker()
    due_ms = upstream.now_ms() + 3_000
    names = [f"d-{n}" for n in range(COUNT)]
    upstream.send(deployment, *(upstream.schedule(name, due_ms, "due") for name in names))
    full = Program(
        ["worker"],
        worker.log,
        worker.http,
        worker.environment,
        command=[sys.executable, "-m", "tests.fault.crashing", "disk-full", "2"],
    )
    assert _runs_to_its_end(full) == EngineFailed.exit_code
    assert "No space left on device" in worker.tail()
    worker.start()
    worker.wait_ready()
    wait_until(lambda: upstream.metric(worker, "minutewheel_claims") == COUNT, 30, "all have left")
    assert worker.stop() == 0
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
    assert sorted(event.id for event in zeros.due_events(history)) == sorted(names)
