"""Store files damaged while nobody looks: noticed and rebuilt, or healed by the changelog."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buckets.partition import Partition
from buckets.rocks_store import RocksMemory, RocksStore
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment, deployed
from tests.kafka import RunningKafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

COUNT = 2_000


@pytest.fixture
def deployment(kafka: RunningKafka, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment of one partition, so that the damaged store is the one that matters."""
    with deployed(kafka.bootstrap, tmp_path, partitions=1) as deployment:
        yield deployment


def _flip_rows(store: Path) -> None:
    source = random.Random(1)
    for file in store.glob("*.sst"):
        content = bytearray(file.read_bytes())
        for _ in range(20):
            content[source.randrange(len(content))] ^= 1 << source.randrange(8)
        file.write_bytes(content)


def _lose_current(store: Path) -> None:
    (store / "CURRENT").unlink()


def _cut_manifest(store: Path) -> None:
    manifest = next(store.glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[: manifest.stat().st_size // 2])


def _another_topics(store: Path) -> None:
    """The store of a topic of the same name in a cluster long gone."""
    foreign = RocksStore(store, RocksMemory(32 << 20))
    foreign.identify(b'{"cluster":"another","state_topic":"x","partitions":1,"partition":0}')
    foreign.close()


def _grow_old(store: Path) -> None:
    """A disk that comes back after weeks: what was forgotten meanwhile is told no more."""
    old = RocksStore(store, RocksMemory(32 << 20))
    partition = Partition(old)
    partition.mark_current(upstream.now_ms() - 9 * 86_400_000)
    old.close()


@pytest.mark.parametrize(
    "damage", [_flip_rows, _lose_current, _cut_manifest, _another_topics, _grow_old]
)
def test_a_damaged_store_is_rebuilt(deployment: Deployment, damage: Callable[[Path], None]) -> None:
    worker = deployment.worker()
    worker.start()
    worker.wait_ready()
    due_ms = upstream.now_ms() + 6_000
    names = [f"d-{n}" for n in range(COUNT)]
    upstream.send(deployment, *(upstream.schedule(name, due_ms, "due") for name in names))
    wait_until(lambda: upstream.metric(worker, "minutewheel_pending") == COUNT, 30, "all taken in")
    assert worker.stop() == 0
    damage(deployment.data_dir("worker-a") / "processor" / "0")
    worker.start()
    worker.wait_ready()
    wait_until(lambda: upstream.metric(worker, "minutewheel_claims") == COUNT, 30, "all have left")
    assert worker.stop() == 0
    if damage is not _cut_manifest:
        # Half of a manifest may be an earlier whole state, which the changelog brings up to date.
        assert "store wiped" in worker.log.read_text()
    history = zeros.read(deployment.settings)
    zeros.look_into(history, deployment.data_dir("worker-a"))
    zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
    assert sorted(event.id for event in zeros.due_events(history)) == sorted(names)
