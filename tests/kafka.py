"""The Kafka of the test suite: `kafka` is a real broker.

It is started once per run and stopped at its end. With MINUTEWHEEL_TEST_BOOTSTRAP set, the
running cluster it names is used instead, and left alone.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deploy.broker import LocalCluster
from deploy.broker.probe import is_free
from deploy.broker.settings import CONTROLLER_PORT_DISTANCE, Layout

# Below the range from which the system takes the ports of outgoing connections.
PORT_RANGE = (20_000, 30_000)
PORT_ATTEMPTS_MAX = 100


def free_port(nodes: int = 1) -> int:
    """A port such that a cluster of `nodes` nodes finds all its ports free."""
    # Not from the seeded generator: two runs at once must not try the same ports.
    source = random.SystemRandom()
    for _ in range(PORT_ATTEMPTS_MAX):
        port = source.randrange(*PORT_RANGE)
        layout = Layout(nodes, port, port + CONTROLLER_PORT_DISTANCE, "1g")
        if all(is_free(each) for each in [*layout.ports(), *layout.controller_ports()]):
            return port
    raise AssertionError(f"no free ports in {PORT_RANGE}")


@dataclass(frozen=True)
class RunningKafka:
    """A real Kafka that tests may talk to."""

    bootstrap: str


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """A real Kafka of one node."""
    if running := os.environ.get("MINUTEWHEEL_TEST_BOOTSTRAP"):
        yield RunningKafka(running)
        return
    data_dir = tmp_path_factory.mktemp("kafka")
    with LocalCluster(data_dir, port=free_port(), heap="1g") as cluster:
        yield RunningKafka(cluster.bootstrap)
