"""Reminders fired straight into other topics, two of which cannot take theirs."""

from __future__ import annotations

import pytest
from confluent_kafka.cimpl import NewTopic

from streams import kafka
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

GOOD = 200


def test_only_the_impossible_targets_end_dead(deployment: Deployment) -> None:
    settings = deployment.settings
    wide, narrow = f"{settings.prefix}wide", f"{settings.prefix}narrow"
    cluster = kafka.Cluster(settings)
    created = cluster.admin.create_topics(
        [
            NewTopic(wide, 3, 1),
            NewTopic(narrow, 1, 1, config={"max.message.bytes": "2000"}),
        ]
    )
    for future in created.values():
        future.result()
    worker = deployment.worker()
    worker.start()
    worker.wait_ready()
    due_ms = upstream.now_ms() + 2_000
    retry = {"delays_s": [0], "max_attempts": 2}
    commands = [
        upstream.schedule(f"good-{n}", due_ms, f"topic:{wide}", payload={"n": n})
        for n in range(GOOD)
    ]
    commands.insert(
        GOOD // 3,
        upstream.schedule("nowhere", due_ms, f"topic:{settings.prefix}not-there", retry=retry),
    )
    commands.insert(
        GOOD // 2,
        upstream.schedule("too-large", due_ms, f"topic:{narrow}", payload="x" * 5_000, retry=retry),
    )
    upstream.send(deployment, *commands)
    upstream.send(deployment, upstream.schedule("inside", due_ms, "topic:__consumer_offsets"))

    def ended() -> bool:
        found = [upstream.get(worker, command["id"]) for command in (commands[0], commands[-1])]
        dead = [upstream.get(worker, name) for name in ("nowhere", "too-large")]
        return all(one is not None and one["state"] == "delivered" for one in found) and all(
            one is not None and one["state"] == "dead" for one in dead
        )

    wait_until(ended, 60, "the good ones delivered, the two others dead")
    assert upstream.metric(worker, 'minutewheel_dead_total{reason="attempts_exhausted"}') == 2
    nowhere, large = upstream.get(worker, "nowhere"), upstream.get(worker, "too-large")
    assert nowhere is not None
    assert large is not None
    assert [one["detail"] for one in nowhere["attempts"]] == ["UNKNOWN_TOPIC_OR_PART"] * 2
    assert [one["detail"] for one in large["attempts"]] == ["MSG_SIZE_TOO_LARGE"] * 2
    assert upstream.get(worker, "inside") is None, "a reminder for one of Kafka's own topics"
    assert worker.stop() == 0
    history = zeros.read(settings, targets=[wide])
    delivered = [record.key for record in history.targets]
    assert sorted(delivered) == sorted(f"good-{n}".encode() for n in range(GOOD))
    assert {record.value for record in history.targets} == {
        f'{{"n":{n}}}'.encode() for n in range(GOOD)
    }
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
