"""One suite for every store: what the memory store does, the one on RocksDB does as well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from buckets.memory_store import MemoryStore
from buckets.rocks_store import RocksMemory, RocksStore, wipe
from buckets.store import Batch, Store

END = b"\xff" * 16

OpenRocks = Callable[[Path], RocksStore]


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path, open_rocks: OpenRocks) -> Store:
    return MemoryStore() if request.param == "memory" else open_rocks(tmp_path / "store")


def rows_of(store: Store) -> list[tuple[bytes, bytes]]:
    return store.scan(b"", END, 1_000_000)


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.position() is None
    assert store.identity() is None
    assert rows_of(store) == []
    assert list(store.counts()) == []
    assert store.headers([b"a"]) == [None]
    assert store.rows([b"a"]) == [None]


def test_a_batch_brings_everything_it_holds(store: Store) -> None:
    store.write(
        Batch(
            b"position",
            index_puts=[(b"id", b"header")],
            row_puts=[(b"key", b"value")],
            count_puts=[(b"hour", b"block")],
        )
    )
    assert store.position() == b"position"
    assert store.headers([b"id"]) == [b"header"]
    assert store.rows([b"key"]) == [b"value"]
    assert list(store.counts()) == [(b"hour", b"block")]


def test_look_ups_answer_in_the_order_asked(store: Store) -> None:
    store.write(
        Batch(
            b"",
            index_puts=[(b"b", b"2"), (b"a", b"1")],
            row_puts=[(b"y", b"4"), (b"x", b"3")],
        )
    )
    assert store.headers([b"b", b"none", b"a", b"b"]) == [b"2", None, b"1", b"2"]
    assert store.rows([b"y", b"none", b"x", b"y"]) == [b"4", None, b"3", b"4"]
    assert store.headers([]) == []
    assert store.rows([]) == []


def test_the_three_maps_do_not_share_keys(store: Store) -> None:
    same = [(b"same", b"1")]
    store.write(Batch(b"", index_puts=same.copy()))
    assert store.rows([b"same"]) == [None]
    assert list(store.counts()) == []
    store.write(Batch(b"", row_puts=same.copy(), count_puts=same.copy(), index_deletes=[b"same"]))
    assert store.headers([b"same"]) == [None]
    assert store.rows([b"same"]) == [b"1"]
    assert list(store.counts()) == same


def test_drops_come_before_deletes_and_both_before_puts(store: Store) -> None:
    store.write(
        Batch(
            b"1",
            row_puts=[(bytes([n]), b"old") for n in range(6)],
            index_puts=[(b"i", b"old")],
            count_puts=[(b"c", b"old")],
        )
    )
    store.write(
        Batch(
            b"2",
            row_drops=[(b"\x01", b"\x04")],
            row_deletes=[b"\x04"],
            row_puts=[(b"\x02", b"new"), (b"\x04", b"new")],
            index_deletes=[b"i"],
            index_puts=[(b"i", b"new")],
            count_deletes=[b"c"],
            count_puts=[(b"c", b"new")],
        )
    )
    assert rows_of(store) == [
        (b"\x00", b"old"),
        (b"\x02", b"new"),
        (b"\x04", b"new"),
        (b"\x05", b"old"),
    ]
    assert store.headers([b"i"]) == [b"new"]
    assert list(store.counts()) == [(b"c", b"new")]


def test_of_several_puts_to_a_key_the_last_counts(store: Store) -> None:
    store.write(
        Batch(
            b"",
            row_puts=[(b"k", b"2"), (b"k", b"9"), (b"k", b"1")],
            index_puts=[(b"i", b"2"), (b"i", b"9"), (b"i", b"1")],
        )
    )
    assert store.rows([b"k"]) == [b"1"]
    assert store.headers([b"i"]) == [b"1"]


def test_a_drop_takes_its_lower_bound_and_leaves_its_upper(store: Store) -> None:
    store.write(Batch(b"", row_puts=[(key, b"") for key in (b"a", b"b", b"b\0", b"c", b"d")]))
    store.write(Batch(b"", row_drops=[(b"b", b"c")]))
    assert [key for key, _ in rows_of(store)] == [b"a", b"c", b"d"]


def test_what_is_not_there_can_be_deleted(store: Store) -> None:
    store.write(
        Batch(
            b"",
            row_deletes=[b"x"],
            index_deletes=[b"x"],
            count_deletes=[b"x"],
            row_drops=[(b"a", b"b")],
        )
    )
    assert rows_of(store) == []


def test_a_dropped_row_can_be_written_again(store: Store) -> None:
    store.write(Batch(b"", row_puts=[(b"b", b"1")]))
    store.write(Batch(b"", row_drops=[(b"a", b"z")]))
    store.write(Batch(b"", row_puts=[(b"b", b"2")]))
    assert rows_of(store) == [(b"b", b"2")]


@pytest.mark.parametrize(
    ("lower", "upper", "rows_max", "found"),
    [
        (b"", END, 10, b"abcd"),
        (b"b", END, 10, b"bcd"),
        (b"a\0", END, 10, b"bcd"),
        (b"", b"c", 10, b"ab"),
        (b"", b"c\0", 10, b"abc"),
        (b"b", b"b", 10, b""),
        (b"c", b"a", 10, b""),
        (b"e", END, 10, b""),
        (b"", END, 2, b"ab"),
        (b"", END, 4, b"abcd"),
        (b"", END, 0, b""),
        (b"b", b"d", 1, b"b"),
    ],
)
def test_a_scan_keeps_its_bounds(
    store: Store, lower: bytes, upper: bytes, rows_max: int, found: bytes
) -> None:
    store.write(Batch(b"", row_puts=[(bytes([key]), b"v") for key in b"dbca"]))
    assert b"".join(key for key, _ in store.scan(lower, upper, rows_max)) == found


def test_each_batch_replaces_the_position_and_none_the_identity(store: Store) -> None:
    store.identify(b"mine")
    assert store.position() is None
    store.write(Batch(b"1"))
    store.write(Batch(b"2"))
    assert (store.position(), store.identity()) == (b"2", b"mine")


def test_values_of_any_bytes_and_sizes_come_back(store: Store) -> None:
    values = [b"", b"\0", bytes(range(256)), b"x" * 1_100_000]
    pairs = [(bytes([0, number, 255]), value) for number, value in enumerate(values)]
    store.write(Batch(b"", row_puts=pairs.copy(), index_puts=pairs.copy()))
    assert rows_of(store) == pairs
    assert store.headers([key for key, _ in pairs]) == values


def test_flush_and_size_change_nothing(store: Store) -> None:
    store.write(Batch(b"1", row_puts=[(b"k", b"v")]))
    store.flush()
    store.begin_flush()
    store.begin_flush()
    store.flush()
    store.check_flush()
    assert store.size_bytes() > 0
    assert rows_of(store) == [(b"k", b"v")]


def test_it_can_be_closed_twice(store: Store) -> None:
    store.close()
    store.close()


# ---- both at once ----

KEYS = st.binary(min_size=1, max_size=2)
PAIRS = st.lists(st.tuples(KEYS, st.binary(max_size=3)), max_size=6)
BATCHES = st.builds(
    Batch,
    st.binary(min_size=1, max_size=4),
    index_puts=PAIRS,
    index_deletes=st.lists(KEYS, max_size=4),
    row_puts=PAIRS,
    row_deletes=st.lists(KEYS, max_size=4),
    row_drops=st.lists(st.tuples(KEYS, KEYS).filter(lambda drop: drop[0] <= drop[1]), max_size=2),
    count_puts=PAIRS,
    count_deletes=st.lists(KEYS, max_size=4),
)


def copied(batch: Batch) -> Batch:
    """A store may put a batch's lists in another order."""
    return Batch(
        batch.position,
        *(getattr(batch, name).copy() for name in Batch.__slots__ if name != "position"),
    )


class BothStores(RuleBasedStateMachine):
    """Whatever is written, the two stores give the same answers."""

    directory: Path
    memory: RocksMemory
    number = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).number += 1
        self.path = self.directory / str(self.number)
        self.rocks = RocksStore(self.path, self.memory)
        self.model = MemoryStore()

    @rule(batch=BATCHES)
    def write(self, batch: Batch) -> None:
        self.model.write(copied(batch))
        self.rocks.write(copied(batch))

    @rule()
    def flush(self) -> None:
        self.rocks.flush()

    @rule()
    def begin_flush(self) -> None:
        self.rocks.begin_flush()

    @rule()
    def reopen(self) -> None:
        self.rocks.close()
        self.rocks = RocksStore(self.path, self.memory)

    @rule(lower=KEYS, upper=KEYS, rows_max=st.integers(0, 5))
    def scan(self, lower: bytes, upper: bytes, rows_max: int) -> None:
        assert self.rocks.scan(lower, upper, rows_max) == self.model.scan(lower, upper, rows_max)

    @rule(keys=st.lists(KEYS, max_size=5))
    def look_up(self, keys: list[bytes]) -> None:
        assert self.rocks.headers(keys) == self.model.headers(keys)
        assert self.rocks.rows(keys) == self.model.rows(keys)

    @invariant()
    def agree(self) -> None:
        assert self.rocks.position() == self.model.position()
        assert sorted(self.rocks.counts()) == sorted(self.model.counts())
        assert rows_of(self.rocks) == rows_of(self.model)

    def teardown(self) -> None:
        self.rocks.close()
        wipe(self.path)


def test_both_stores_agree_on_random_batches(tmp_path: Path, memory: RocksMemory) -> None:
    class Here(BothStores):
        pass

    Here.directory, Here.memory = tmp_path, memory
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=40,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
