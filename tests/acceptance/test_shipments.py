"""The main job on real input: other people's clients write, an HTTP receiver is called."""

from __future__ import annotations

import random
import shutil
import time

import pytest

from schemas.reminder import Entry
from tests import zeros
from tests.acceptance import shipments
from tests.acceptance.shipments import Shipments
from tests.deployment import Deployment
from tests.processes import Program
from tests.receiver import Receiver, receiving
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(420)]

COUNT = 10_000
LEAD_MS = 25_000
SPREAD_MS = 120_000
KILLS_EACH = 10


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _write(deployment: Deployment, receiver: Receiver, seed: int) -> Shipments:
    written = shipments.make(COUNT, receiver.url, _now_ms() + LEAD_MS, SPREAD_MS, seed)
    shipments.write_all(written, deployment.settings.bootstrap, deployment.settings.topics.commands)
    return written


def _lateness_ms(written: Shipments, receiver: Receiver) -> list[int]:
    """Of each reminder's first call, sorted; negative would be early."""
    first: dict[str, int] = {}
    for call in receiver.calls:
        first.setdefault(call.body["id"], call.at_ms)
    return sorted(first[name] - due_ms for name, due_ms in written.due_ms.items())


def _assert_called(written: Shipments, receiver: Receiver, label: str) -> list[int]:
    """Everything that stands was called, nothing that was cancelled, and nothing early."""
    called = receiver.ids()
    assert written.due_ms.keys() - called.keys() == set(), "not called"
    assert called.keys() & written.cancelled == set(), "cancelled, and called"
    late_ms = _lateness_ms(written, receiver)
    assert late_ms[0] >= 0, "called before it was due"
    p50, p99 = late_ms[len(late_ms) // 2], late_ms[int(len(late_ms) * 0.99)]
    print(f"{label}: lateness p50 {p50} ms, p99 {p99} ms, max {late_ms[-1]} ms")  # noqa: T201
    return late_ms


def _wait_until_called(written: Shipments, receiver: Receiver) -> None:
    wait_until(
        lambda: len(receiver.ids().keys() & written.due_ms.keys()) == len(written.due_ms),
        (LEAD_MS + SPREAD_MS) / 1_000 + 90,
        "every reminder that stands called",
    )


def _settled(deployment: Deployment) -> bool:
    """Whether every due event has its answer in the state."""
    states = zeros.final_states(zeros.read(deployment.settings)).values()
    return all(reminder is None or reminder.entry is Entry.EXPIRE for reminder in states)


def test_ten_thousand_shipments_are_called_once(deployment: Deployment) -> None:
    worker, delivery = deployment.worker(), deployment.delivery()
    worker.start()
    delivery.start()
    worker.wait_ready()
    with receiving() as receiver:
        written = _write(deployment, receiver, seed=1)
        _wait_until_called(written, receiver)
        assert delivery.stop() == 0, delivery.tail()
        wait_until(lambda: _settled(deployment), 20, "every answer taken in")
        assert worker.stop() == 0, worker.tail()
        _assert_called(written, receiver, "ten thousand shipments")
        assert max(receiver.ids().values()) == 1, "called twice"
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, _now_ms()))


def test_shipments_survive_random_kills_and_a_lost_disk(deployment: Deployment) -> None:
    """Ten SIGKILLs of each process at random moments, once with all local data deleted."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")  # noqa: T201
    source = random.Random(seed)
    worker, delivery = deployment.worker(), deployment.delivery()
    worker.start()
    delivery.start()
    worker.wait_ready()
    with receiving() as receiver:
        written = _write(deployment, receiver, seed)
        victims = [worker, delivery] * KILLS_EACH
        source.shuffle(victims)
        disk_lost_at = source.randrange(len(victims))
        for number, victim in enumerate(victims):
            _let_pass(source.randrange(100, 600), written, receiver)
            _kill(victim, deployment, lose_disk=number == disk_lost_at)
        worker.wait_ready()
        _wait_until_called(written, receiver)
        wait_until(lambda: _settled(deployment), 60, "every answer taken in")
        assert delivery.stop() == 0, delivery.tail()
        assert worker.stop() == 0, worker.tail()
        _assert_called(written, receiver, "with kills")
        _assert_repeated_only_by_kills(receiver)
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, _now_ms()))


def _let_pass(calls: int, written: Shipments, receiver: Receiver) -> None:
    """A random moment: so many more calls from now, or all of them."""
    wanted = min(len(receiver.calls) + calls, len(written.due_ms))
    wait_until(lambda: len(receiver.calls) >= wanted, 120, f"{wanted} calls")


def _kill(victim: Program, deployment: Deployment, *, lose_disk: bool) -> None:
    victim.kill()
    if lose_disk:
        for program in deployment.programs:
            program.kill()
        for name in ("worker-a", "delivery-a"):
            shutil.rmtree(deployment.data_dir(name), ignore_errors=True)
        for program in deployment.programs:
            program.start()
    else:
        victim.start()


def _assert_repeated_only_by_kills(receiver: Receiver) -> None:
    """A call may be repeated when its answer could not be recorded, with the same webhook-id.

    Each kill of the delivery worker interrupts at most as many calls as it makes at a time.
    """
    by_name: dict[str, set[str]] = {}
    for call in receiver.calls:
        by_name.setdefault(call.body["id"], set()).add(call.webhook_id)
    assert all(len(ids) == 1 for ids in by_name.values()), "one reminder, two webhook-ids"
    repeated = sum(count - 1 for count in receiver.ids().values())
    assert repeated <= (KILLS_EACH + 1) * 64, f"{repeated} repeated calls"
