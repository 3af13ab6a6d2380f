"""Any node answers for any id, and for everything that is owed."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

import orjson
import pytest

from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT = 40


def _read(worker: Program, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{worker.http}{path}", timeout=10) as answer:
        found: dict[str, Any] = orjson.loads(answer.read())
        return found


def _due(worker: Program, query: str = "") -> dict[str, Any]:
    return _read(worker, f"/v1/due{query}")


def _answers(worker: Program, reminder_id: str) -> bool:
    """Whether a node finds a reminder; while its owner changes, a node may ask for patience."""
    try:
        return upstream.get(worker, reminder_id) is not None
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return False


def test_two_nodes_answer_for_one_another(deployment: Deployment) -> None:
    deployment.extra["static_membership"] = "false"
    first, second = deployment.worker("a"), deployment.worker("b")
    for worker in (first, second):
        worker.start()
    for worker in (first, second):
        worker.wait_ready()
    wait_until(
        lambda: len(upstream.ready(first)) == len(upstream.ready(second)) == 2,
        60,
        "two partitions each",
    )
    due_ms = upstream.now_ms() + 3_600_000
    names = [f"n/{number}" if number % 2 else f"n-{number}" for number in range(COUNT)]
    upstream.send(
        deployment,
        *(upstream.schedule(name, due_ms, "due", tenant=f"t{len(name) % 2}") for name in names),
    )
    wait_until(
        lambda: _due(first)["pending"] == _due(second)["pending"] == COUNT, 30, "both know it all"
    )
    for worker in (first, second):
        for name in names:
            wait_until(lambda w=worker, n=name: _answers(w, n), 30, f"{name} known")
            found = upstream.get(worker, name)
            assert found is not None
            assert found["id"] == name
        assert upstream.get(worker, "nobody") is None
    assert _read(first, "/")["ask"].keys() >= {"/v1/reminders/{id}", "/metrics"}
    by_hour = _due(second, "?by=hour")
    assert by_hour == _due(first, "?by=hour")
    assert sum(bucket["count"] for bucket in by_hour["buckets"]) == COUNT
    assert sum(sum(bucket["tenants"].values()) for bucket in by_hour["buckets"]) == COUNT
    assert first.stop() == 0, first.tail()
    wait_until(lambda: len(upstream.ready(second)) == 4, 30, "the other one takes over at once")
    wait_until(lambda: _answers(second, names[0]), 30, "and answers alone")
    assert second.stop() == 0, second.tail()


def test_a_token_is_asked_for_where_one_is_set(deployment: Deployment) -> None:
    worker = deployment.worker(http_token="told-to-few")
    worker.start()
    worker.wait_ready()
    address = f"http://{worker.http}/v1/due"
    for shown in ({}, {"Authorization": "Bearer guessed"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(address, headers=shown), timeout=10)
        with refused.value as answer:
            assert answer.code == 401
    told = urllib.request.Request(address, headers={"Authorization": "Bearer told-to-few"})
    with urllib.request.urlopen(told, timeout=10) as answer:
        assert answer.status == 200
    assert upstream.metric(worker, "minutewheel_pending") == 0
    assert worker.stop() == 0
    assert "told-to-few" not in worker.log.read_text()
