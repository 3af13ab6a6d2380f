"""Processors that come, go and get into each other's way, as real processes."""

from __future__ import annotations

import signal
import time
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

COUNT = 1_500
SPREAD_MS = 6_000
HAND_OVER_S_MAX = 5.0


@pytest.fixture
def deployment(kafka: RunningKafka, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment of dynamic members, which hand their partitions over when they stop."""
    with deployed(kafka.bootstrap, tmp_path, static_membership="false") as deployment:
        yield deployment


def _send(deployment: Deployment, name: str, start_ms: int) -> set[str]:
    """Reminders due over some seconds; returns their ids."""
    due_ms = {f"{name}-{n}": start_ms + n * SPREAD_MS // COUNT for n in range(COUNT)}
    upstream.send(deployment, *(upstream.schedule(one, at, "due") for one, at in due_ms.items()))
    return set(due_ms)


def _active(worker: Program) -> int:
    return sum(phase == "active" for phase in upstream.ready(worker).values())


def _assert_all_left_once(deployment: Deployment, data_dir: str, wanted: set[str]) -> None:
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir(data_dir))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
    assert sorted(event.id for event in zeros.due_events(history)) == sorted(wanted)


def test_stopped_under_load_it_hands_its_partitions_over(deployment: Deployment) -> None:
    """A9. SIGTERM while commands come in and due events leave."""
    first, second = deployment.worker("a"), deployment.worker("b")
    first.start()
    second.start()
    first.wait_ready()
    second.wait_ready()
    wait_until(lambda: _active(first) == _active(second) == 2, 30, "two partitions each")
    wanted = _send(deployment, "early", upstream.now_ms() + 1_000)
    wait_until(lambda: upstream.metric(first, "minutewheel_claims") > 50, 30, "it fires")
    wanted |= _send(deployment, "late", upstream.now_ms() + 1_000)
    first.send(signal.SIGTERM)
    told_s = time.monotonic()
    wait_until(lambda: _active(second) == 4, HAND_OVER_S_MAX, "the other one owns everything")
    print(f"handed over within {time.monotonic() - told_s:.1f} s")  # noqa: T201
    assert first.stop() == 0, first.tail()
    wait_until(
        lambda: upstream.metric(second, "minutewheel_claims") == len(wanted), 40, "all have left"
    )
    assert second.stop() == 0, second.tail()
    _assert_all_left_once(deployment, "worker-b", wanted)


@pytest.mark.parametrize("static", ["false", "true"])
def test_the_older_of_two_processes_of_one_name_ends(deployment: Deployment, static: str) -> None:
    """C4. Started twice by mistake, on another disk: the second one goes on alone."""
    deployment.extra["static_membership"] = static
    older, newer = deployment.worker("a"), deployment.worker("b")
    newer.environment["MINUTEWHEEL_NAME"] = older.environment["MINUTEWHEEL_NAME"]
    older.start()
    older.wait_ready()
    wanted = _send(deployment, "twice", upstream.now_ms() + 5_000)
    wait_until(lambda: upstream.metric(older, "minutewheel_claims") > 50, 30, "it fires")
    newer.start()

    def has_ended() -> bool:
        # It learns of the other one with its next transaction, so there has to be one.
        name = f"more-{len(wanted)}"
        wanted.add(name)
        upstream.send(deployment, upstream.schedule(name, upstream.now_ms(), "due"))
        return not older.running

    wait_until(has_ended, 40, "the older one ends")
    assert older.stop() == 1
    assert "another process" in older.tail(), older.tail()
    wait_until(
        lambda: upstream.metric(newer, "minutewheel_claims") == len(wanted), 40, "all have left"
    )
    assert newer.stop() == 0, newer.tail()
    _assert_all_left_once(deployment, "worker-b", wanted)
