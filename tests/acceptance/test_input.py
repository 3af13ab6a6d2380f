"""Hostile records between good ones, and a system with next to nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys

import orjson
import pytest

from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.receiver import Receiver
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_bad_records_are_refused_and_good_ones_unharmed(
    deployment: Deployment, receiver: Receiver
) -> None:
    worker, delivery = deployment.worker(), deployment.delivery()
    worker.start()
    delivery.start()
    worker.wait_ready()
    due_ms = upstream.now_ms() + 4_000

    def good(number: int) -> dict[str, object]:
        return upstream.schedule(f"good-{number}", due_ms, receiver.url, tenant="acme")

    huge = orjson.dumps(upstream.schedule("huge", due_ms, receiver.url, payload="x" * 900_000))
    # More than a command may have, and as much as the topic takes.
    giant = b'{"type":"schedule","id":"giant"}' + b" " * 1_250_000
    unknown = orjson.dumps(upstream.schedule("typo", due_ms, receiver.url, not_aftr=due_ms))
    misplaced = orjson.dumps(upstream.schedule("misplaced", due_ms, receiver.url))
    _send_with_a_broken_header_name(deployment, "good-2", '{"id":"nameless"}')
    upstream.send(
        deployment,
        good(0),
        (b"good-0", b"\xff\xfe{garbage"),
        good(1),
        (b"good-1", huge),
        (b"good-1", giant),
        good(2),
        # Under every other id's key: at least one of them hashes to another partition.
        *((f"wrong-{n}".encode(), misplaced) for n in range(8)),
        good(3),
        (b"good-3", unknown),
        good(4),
    )
    wanted = {f"good-{n}" for n in range(5)} | {"misplaced"}
    wait_until(lambda: receiver.ids().keys() == wanted, 60, "the good ones called")
    assert upstream.metric(worker, "minutewheel_forwarded_total") >= 1
    wait_until(lambda: upstream.metric(worker, "minutewheel_claims") == 0, 20, "answers taken in")
    assert delivery.stop() == 0
    assert worker.stop() == 0
    assert max(receiver.ids().values()) == 1

    topic = deployment.settings.topics.rejected
    refused = {
        (record.headers["error.code"], record.headers["error.field"]): (record.key, record.value)
        for record in zeros.read_topic(deployment.settings, topic)
    }
    assert refused == {
        (b"malformed", b""): (b"good-0", b"\xff\xfe{garbage"),
        (b"bad_header", b""): (b"good-2", b'{"id":"nameless"}'),
        (b"too_large", b"payload"): (b"good-1", huge),
        (b"too_large", b""): (b"good-1", giant),
        (b"unknown_field", b"not_aftr"): (b"good-3", unknown),
    }
    history = zeros.read(deployment.settings)
    history.commands = [r for r in history.commands if r.value not in {huge, giant, unknown}]
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))


def _send_with_a_broken_header_name(deployment: Deployment, key: str, value: str) -> None:
    settings = deployment.settings
    words = [settings.bootstrap, settings.topics.commands, key, value]
    subprocess.run(
        [sys.executable, "-m", "tests.acceptance.raw_header", *words],
        env=os.environ | {"AIOKAFKA_NO_EXTENSIONS": "1"},
        timeout=30,
        check=True,
    )


def test_a_quiet_system_fires_its_only_reminder_on_time(
    deployment: Deployment, receiver: Receiver
) -> None:
    worker, delivery = deployment.worker(), deployment.delivery()
    worker.start()
    delivery.start()
    worker.wait_ready()
    due_ms = upstream.now_ms() + 10_000
    upstream.send(deployment, upstream.schedule("only", due_ms, receiver.url))
    wait_until(lambda: len(receiver.calls) > 0, 30, "the only reminder")
    late_ms = receiver.calls[0].at_ms - due_ms
    assert 0 <= late_ms < 1_000, f"{late_ms} ms after it was due"
