"""What operators do: a stop in the middle of work, a group wound forward, one name twice."""

from __future__ import annotations

import signal

import pytest

from deploy.broker import run_tool
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT = 100
FIRING = 2_000
FIRING_MS = 8_000


def _schedule(deployment: Deployment, prefix: str) -> None:
    due_ms = upstream.now_ms() + 86_400_000
    wanted = [upstream.schedule(f"{prefix}-{n}", due_ms, "due") for n in range(COUNT)]
    upstream.send(deployment, *wanted)


def _assert_zeros(deployment: Deployment, directory: str) -> zeros.History:
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir(directory))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
    return history


def test_a_group_wound_forward_skips_nothing(deployment: Deployment) -> None:
    worker = deployment.worker(static_membership="false")
    worker.start()
    worker.wait_ready()
    _schedule(deployment, "before")
    wait_until(lambda: upstream.metric(worker, "minutewheel_pending") == COUNT, 30, "taken in")
    assert worker.stop() == 0, worker.tail()
    _schedule(deployment, "passed")
    settings = deployment.settings
    done = run_tool(
        "kafka-consumer-groups",
        *("--bootstrap-server", settings.bootstrap),
        *("--group", settings.processor_group, "--topic", settings.topics.commands),
        *("--reset-offsets", "--to-latest", "--execute"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    worker.start()
    worker.wait_ready()
    wait_until(lambda: upstream.metric(worker, "minutewheel_pending") == 2 * COUNT, 30, "all")
    assert "group offset is ahead of what was applied: not skipping" in worker.log.read_text()
    assert worker.stop() == 0, worker.tail()
    _assert_zeros(deployment, "worker-a")


def test_of_two_processors_of_one_name_the_older_ends(deployment: Deployment) -> None:
    deployment.extra |= {"static_membership": "false"}
    older, newer = deployment.worker("a"), deployment.worker("b")
    newer.environment["MINUTEWHEEL_NAME"] = older.environment["MINUTEWHEEL_NAME"]
    older.start()
    older.wait_ready()
    _schedule(deployment, "before")
    wait_until(lambda: upstream.metric(older, "minutewheel_pending") == COUNT, 30, "taken in")
    newer.start()
    sent = 0

    def has_ended() -> bool:
        # The older one learns of it with its next transaction, so there has to be one.
        nonlocal sent
        sent += 1
        _schedule(deployment, f"more-{sent}")
        return not older.running

    wait_until(has_ended, 60, "the older one ended")
    assert older.process is not None
    assert older.process.returncode == 1
    assert "another process took over this one's transactional id" in older.log.read_text()
    newer.wait_ready()
    total = (1 + sent) * COUNT
    wait_until(lambda: upstream.metric(newer, "minutewheel_pending") == total, 60, "all taken in")
    assert newer.stop() == 0, newer.tail()
    _assert_zeros(deployment, "worker-b")


@pytest.mark.parametrize("kind", ["worker", "delivery"])
def test_asked_by_a_signal_it_tells_what_its_threads_are_at_and_goes_on(
    deployment: Deployment, kind: str
) -> None:
    program = deployment.worker() if kind == "worker" else deployment.delivery()
    program.start()
    program.wait_ready()
    program.send(signal.SIGUSR1)
    wait_until(lambda: "most recent call first" in program.log.read_text(), 20, "the stacks")
    assert program.stop() == 0, program.tail()


def _wait_for_claims(worker: Program, wanted: int) -> None:
    wait_until(lambda: upstream.metric(worker, "minutewheel_claims") > wanted, 30, "some fired")


def test_stopped_while_it_fires(deployment: Deployment) -> None:
    worker = deployment.worker(static_membership="false")
    worker.start()
    worker.wait_ready()
    start_ms = upstream.now_ms() + 1_000
    upstream.send(
        deployment,
        *(
            upstream.schedule(f"s-{n}", start_ms + n * FIRING_MS // FIRING, "due")
            for n in range(FIRING)
        ),
    )
    for wanted in (FIRING // 4, FIRING // 2):
        _wait_for_claims(worker, wanted)
        assert worker.stop() == 0, worker.tail()
        worker.start()
        worker.wait_ready()
    wait_until(lambda: upstream.metric(worker, "minutewheel_claims") == FIRING, 30, "all fired")
    assert worker.stop() == 0, worker.tail()
    history = _assert_zeros(deployment, "worker-a")
    assert len(zeros.due_events(history)) == FIRING
