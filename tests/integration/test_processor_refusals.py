"""A target topic that refuses a record: the turn is redone, and one reminder pays for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType
from confluent_kafka.admin._config import ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from schemas.routing import partition_of
from streams import kafka as clients
from streams.processor.owned import Owned
from streams.processor.ownership import Ownership
from tests import zeros
from tests.acceptance import upstream
from tests.kafka import RunningKafka
from tests.processor_lab import Lab, laboratory

pytestmark = pytest.mark.kafka

MANY = 2_500
LARGE = random.Random(1).randbytes(5_000).hex()
"""Not to be compressed into what a narrowed topic takes."""


@pytest.fixture
def lab(kafka: RunningKafka, tmp_path: Path) -> Iterator[Lab]:
    """Processors in this thread."""
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        yield lab


def _limit(lab: Lab, topic: str, record_bytes_max: int) -> None:
    """What the topic's owner may do at any time, also after it has been looked at."""
    admin = clients.Cluster(lab.settings).admin
    limit = ConfigEntry(
        "max.message.bytes", str(record_bytes_max), incremental_operation=AlterConfigOpType.SET
    )
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[limit])
    for future in admin.incremental_alter_configs([changed]).values():
        future.result()


def _make_topic(lab: Lab, name: str) -> str:
    topic = f"{lab.settings.prefix}{name}"
    admin = clients.Cluster(lab.settings).admin
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    return topic


def _known_but_narrowed(lab: Lab) -> str:
    """A target topic that has been found good, and takes only small records since."""
    topic = _make_topic(lab, "narrowed")
    lab.send(upstream.schedule("first", 0, f"topic:{topic}"))
    lab.turn_until(lambda: _state_of(lab, "first") == "delivered", "the first one delivered")
    _limit(lab, topic, 2_000)
    return topic


def _state_of(lab: Lab, reminder_id: str) -> str | None:
    standing = lab.standing(reminder_id)
    return None if standing is None else standing.state.wire


def test_a_refusal_in_the_middle_of_a_turn_costs_only_its_own_reminder(lab: Lab) -> None:
    """C7. The broker refuses the first of many records while the others are still produced."""
    lab.active()
    narrowed, wide = _known_but_narrowed(lab), _make_topic(lab, "wide")
    due_ms = upstream.now_ms() + 4_000
    once = {"delays_s": [0], "max_attempts": 1}
    refused = upstream.schedule("refused", due_ms, f"topic:{narrowed}", payload=LARGE, retry=once)
    topics = [
        upstream.schedule(f"t-{n}", due_ms + 1, f"topic:{wide}", retry=once) for n in range(MANY)
    ]
    events = [upstream.schedule(f"d-{n}", due_ms + 1, "due") for n in range(MANY)]
    lab.send(refused, *topics, *events)
    lab.turn_until(lambda: lab.claims() == MANY, "all due events have left")
    lab.turn_until(lambda: _state_of(lab, "refused") == "dead", "the refused one given up")
    history = lab.assert_all_zero("a", targets=(wide, narrowed))
    assert len(history.targets) == MANY + 1


def test_a_refusal_is_remembered_until_its_own_partition_is_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed turn the partitions come back one by one, and turns go on with the first."""
    lab.active()
    narrowed = _known_but_narrowed(lab)
    slow = partition_of("refused", lab.settings.partitions)
    activate = Ownership._activate
    held_back: list[int] = []

    def activate_later(self: Ownership, owned: Owned) -> None:
        held_back.append(owned.number)
        if owned.number != slow or held_back.count(slow) % 4 == 0:
            activate(self, owned)

    monkeypatch.setattr(Ownership, "_activate", activate_later)
    once = {"delays_s": [0], "max_attempts": 1}
    destination = f"topic:{narrowed}"
    lab.send(upstream.schedule("refused", 0, destination, payload=LARGE, retry=once))
    lab.turn_until(lambda: _state_of(lab, "refused") == "dead", "given up", timeout_s=15)
    lab.assert_all_zero("a", targets=(narrowed,))


def test_many_small_records_for_a_topic_that_takes_only_small_batches(lab: Lab) -> None:
    """The limit of a topic is a batch's, and a batch that is refused is refused as a whole."""
    lab.active()
    topic = _make_topic(lab, "small")
    _limit(lab, topic, 20_000)
    source = random.Random(2)
    due_ms = upstream.now_ms() + 2_000
    lab.send(
        *(
            upstream.schedule(
                f"s-{n}", due_ms, f"topic:{topic}", payload=source.randbytes(500).hex()
            )
            for n in range(400)
        )
    )
    lab.turn_until(lambda: lab.pending() == 400, "all taken in")
    lab.turn_until(lambda: lab.pending() == 0, "all have left")
    history = lab.assert_all_zero("a", targets=(topic,))
    assert len(history.targets) == 400


def test_thousands_of_targets_are_asked_about_together(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other they would take longer than a transaction may."""
    lab.active()
    wide = _make_topic(lab, "wide")
    asked: list[int] = []
    described = clients.Cluster.described

    def counted(cluster: clients.Cluster, names: list[str]) -> Any:
        asked.append(len(names))
        return described(cluster, names)

    monkeypatch.setattr(clients.Cluster, "described", counted)
    due_ms = upstream.now_ms() + 3_000
    once = {"delays_s": [0], "max_attempts": 1}
    lost = [upstream.schedule(f"l-{n}", due_ms, f"topic:no-{n}", retry=once) for n in range(MANY)]
    good = [upstream.schedule(f"g-{n}", due_ms, f"topic:{wide}", retry=once) for n in range(MANY)]
    lab.send(*lost, *good)
    lab.turn_until(lambda: lab.pending() == 2 * MANY, "all taken in")
    lab.turn_until(lambda: lab.pending() == 0, "all have left or are given up")
    assert sum(asked) >= MANY
    assert len(asked) < 50
    history = lab.assert_all_zero("a", targets=(wide,))
    assert len(history.targets) == MANY
    dead = zeros.read_topic(lab.settings, lab.settings.topics.dead)
    assert len(dead) == MANY
    assert all(b"UNKNOWN_TOPIC_OR_PART" in (record.value or b"") for record in dead)
