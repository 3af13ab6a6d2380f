"""SIGKILL at every gap between the steps of a turn, on a real broker; the failure table's rows."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment, deployed
from tests.kafka import RunningKafka
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT = 400

# The gap, and the range of the times it is passed before the process dies in it.
INTAKE = {
    "commands-polled-nothing-decided": (1, 4),
    "half-of-a-turn-produced": (1, COUNT),
    "everything-produced-nothing-committed": (1, 3),
    "committed-not-settled": (1, 5),
    "settled-in-part": (1, 5),
}
FIRING = {
    "bucket-read-nothing-produced": (1, 20),
    "some-fired-nothing-committed": (1, COUNT // 2),
    "inside-a-flush": (1, 2),
}


@pytest.fixture
def deployment(kafka: RunningKafka, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment whose store is flushed every second, so that kills meet flushes too."""
    with deployed(kafka.bootstrap, tmp_path, store_flush_s="1") as deployment:
        yield deployment


def _crashing(worker: Program, gap: str, times: int) -> Program:
    return Program(
        ["worker"],
        worker.log,
        worker.http,
        worker.environment,
        command=[sys.executable, "-m", "tests.fault.crashing", gap, str(times)],
    )


def _run_until_dead(program: Program) -> None:
    program.start()
    process = program.process
    assert process is not None
    wait_until(lambda: process.poll() is not None, 60, f"the kill at {program.command}")
    assert process.returncode == -9, program.tail()
    program.kill()


def _send(deployment: Deployment, first: int, seed: int) -> dict[str, int]:
    """Reminders due within three seconds, a tenth of them cancelled at once."""
    source = random.Random(seed)
    start_ms = upstream.now_ms() + 2_000
    due_ms = {f"k-{first + n}": start_ms + source.randrange(3_000) for n in range(COUNT)}
    cancelled = set(source.sample(sorted(due_ms), COUNT // 10))
    upstream.send(
        deployment,
        *(upstream.schedule(name, at, "due", version=1) for name, at in due_ms.items()),
        *({"type": "cancel", "id": name} for name in cancelled),
    )
    return {name: at for name, at in due_ms.items() if name not in cancelled}


def _assert_fired_once(deployment: Deployment, worker: Program, due_ms: dict[str, int]) -> None:
    """A healthy process takes over: everything that stands leaves once, and all zeros are 0."""
    worker.start()
    worker.wait_ready()
    wait_until(
        lambda: upstream.metric(worker, "minutewheel_claims") == len(due_ms),
        40,
        "everything that stands has left",
    )
    assert worker.stop() == 0, worker.tail()
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
    left = [event.id for event in zeros.due_events(history)]
    assert sorted(left) == sorted(due_ms)


@pytest.mark.parametrize("gap", INTAKE | FIRING)
def test_killed_in_the_gap(deployment: Deployment, gap: str) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")  # noqa: T201
    times = random.Random(seed).randint(*(INTAKE | FIRING)[gap])
    worker = deployment.worker()
    due_ms = _send(deployment, 0, seed)
    _run_until_dead(_crashing(worker, gap, times))
    _assert_fired_once(deployment, worker, due_ms)


@pytest.mark.parametrize("gap", ["restoring", "restored-not-resumed"])
def test_killed_three_times_while_restoring_a_lost_disk(deployment: Deployment, gap: str) -> None:
    worker = deployment.worker()
    worker.start()
    worker.wait_ready()
    due_ms = _send(deployment, 0, 1)
    wait_until(
        lambda: upstream.metric(worker, "minutewheel_claims") == len(due_ms), 40, "all have left"
    )
    worker.kill()
    shutil.rmtree(deployment.data_dir("worker-a"))
    for times in (1, 1, 1):
        _run_until_dead(_crashing(worker, gap, times))
    due_ms |= _send(deployment, COUNT, 2)
    _assert_fired_once(deployment, worker, due_ms)
