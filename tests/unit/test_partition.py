"""A partition's turn: settled, abandoned, or refused by the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from buckets.errors import StoreUnavailable
from buckets.memory_store import MemoryStore
from buckets.partition import Applied, Partition
from buckets.store import Batch
from schemas.errors import UnknownFormat
from schemas.reminder import State
from tests.reminders import DUE_MS, MINUTE_MS, NOW_MS, fired, pending


class FullDisk(MemoryStore):
    """A store that can be made to refuse."""

    full = False

    def write(self, batch: Batch) -> None:
        """See `Store`."""
        if self.full:
            raise StoreUnavailable("no space left")
        super().write(batch)


def settled(store: MemoryStore | None = None) -> Partition:
    """A partition with one pending reminder, at changelog offset 10."""
    partition = Partition(store or MemoryStore())
    partition.hold([b"a"])
    partition.put(b"a", pending())
    partition.settle(10, Applied(commands=3), NOW_MS)
    return partition


def test_what_a_turn_changes_is_seen_by_the_turn_alone_until_it_settles() -> None:
    partition = settled()
    partition.hold([b"a", b"b"])
    assert partition.get(b"b") is None
    partition.put(b"a", fired(pending()))
    held, stored = partition.get(b"a"), partition.look_up(b"a")
    assert held is not None
    assert stored is not None
    assert (held.state, stored.state) == (State.CLAIMED, State.PENDING)
    partition.settle(11, Applied(), NOW_MS)
    stored = partition.look_up(b"a")
    assert stored is not None
    assert stored.state is State.CLAIMED
    assert partition.get(b"a") is None


def test_an_abandoned_turn_leaves_no_trace() -> None:
    partition = settled()
    partition.hold([b"a", b"b"])
    partition.put(b"b", pending())
    partition.forget(b"a")
    partition.abandon()
    assert partition.get(b"a") is None
    assert partition.look_up(b"a") is not None
    assert partition.look_up(b"b") is None
    assert (partition.changelog, partition.counts.pending) == (10, 1)


@pytest.mark.parametrize("how", ["settle", "restore"])
def test_what_the_store_refuses_is_not_taken_for_applied(how: str) -> None:
    store = FullDisk()
    partition = settled(store)
    due = partition.take_due(DUE_MS, 10, 10)
    value = partition.put(b"a", fired(due[0][1]))
    store.full = True
    applied = Applied(commands=9)
    records = {b"a": value, b"b": value}
    advance: Callable[[], None] = (
        partial(partition.settle, 20, applied, DUE_MS)
        if how == "settle"
        else partial(partition.restore, records, 20, applied)
    )
    with pytest.raises(StoreUnavailable):
        advance()
    assert (partition.changelog, partition.applied.commands) == (10, 3)
    assert (partition.counts.pending, partition.counts.claims) == (1, 0)
    store.full = False
    partition.restore({b"a": value}, 20, Applied(commands=9))
    assert (partition.changelog, partition.applied.commands) == (20, 9)
    assert (partition.counts.pending, partition.counts.claims) == (0, 1)
    assert partition.take_due(DUE_MS + MINUTE_MS, 10, 10) == []


@pytest.mark.parametrize("stored", [[2, "another shape"], [0], [], "x", None])
def test_a_position_of_another_format_is_refused_with_the_action(stored: object) -> None:
    store = MemoryStore()
    store.write(Batch(msgspec.msgpack.encode(stored)))
    with pytest.raises(UnknownFormat, match="run the release that wrote it"):
        Partition(store)


def test_counts_are_by_minute_and_tenant_of_what_is_pending() -> None:
    partition = Partition(MemoryStore())
    for number, (tenant, minute) in enumerate([("x", 0), ("x", 0), ("y", 0), ("x", 61)]):
        identifier = b"%d" % number
        partition.hold([identifier])
        partition.put(identifier, pending(DUE_MS + minute * MINUTE_MS, tenant=tenant))
    partition.settle(1, Applied(), NOW_MS)
    first = DUE_MS // MINUTE_MS
    assert sorted(partition.counts.minutes(first + 1_000)) == [
        (first, "x", 2),
        (first, "y", 1),
        (first + 61, "x", 1),
    ]
    assert sorted(partition.counts.hours()) == [
        (first // 60, "x", 2),
        (first // 60, "y", 1),
        ((first + 61) // 60, "x", 1),
    ]
    assert Partition(partition.store).counts.pending == 4
