"""The wheel: never early, in order, in bounded pieces, and never a husk taken for a row."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from buckets import keys
from buckets.memory_store import MemoryStore
from buckets.partition import Applied, Partition
from buckets.store import Batch
from buckets.wheel import AHEAD_MS, OVERFULL, Wheel
from schemas import reminder as codec
from schemas.reminder import Entry, Lane, Reminder
from tests.reminders import MINUTE_MS, NOW_MS, pending

LANE = Lane.CLAIMING
TEN = NOW_MS
"""The minute the tables call 10:00."""


class Turned:
    """A wheel over a memory store, and the writes a partition would make for it."""

    def __init__(self, *, rows_max: int = 20_000, cursor_ms: int = TEN - MINUTE_MS) -> None:
        self.store = MemoryStore()
        self.rows_max = rows_max
        self.wheel = self.made(cursor_ms, b"")
        self.scanned: list[int] = []

    def made(self, cursor_ms: int, husks_below: bytes) -> Wheel:
        return Wheel(
            LANE,
            self.scan,
            self.store.headers,
            cursor_ms=cursor_ms,
            husks_below=husks_below,
            rows_max=self.rows_max,
        )

    def scan(self, lower: bytes, upper: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        found = self.store.scan(lower, upper, rows_max)
        self.scanned.append(len(found))
        return found

    def restart(self) -> None:
        """The wheel as a new process makes it from what was stored."""
        self.wheel = self.made(self.wheel.cursor_ms, self.wheel.husks_below)

    def key(self, name: str) -> bytes:
        header = self.store.headers([name.encode()])[0]
        assert header is not None
        return keys.row(header, name.encode())

    def put(self, name: str, at_ms: int) -> None:
        """Write a reminder, or move it."""
        self.change({name: at_ms})

    def change(self, changes: dict[str, int | None]) -> None:
        batch = Batch(b"")
        for name, at_ms in changes.items():
            identifier = name.encode()
            before = self.store.headers([identifier])[0]
            if before is not None:
                old = keys.row(before, identifier)
                if not self.wheel.remove(old):
                    batch.row_deletes.append(old)
            if at_ms is None:
                batch.index_deletes.append(identifier)
                continue
            value = codec.encode(a_reminder(name, at_ms))
            header = codec.header_of(value)
            key = keys.row(header, identifier)
            batch.index_puts.append((identifier, header))
            batch.row_puts.append((key, value))
            self.wheel.place(key, value)
        self.store.write(batch)

    def take(self, now_ms: int, rows_max: int = 1_000) -> list[str]:
        """The names taken at an instant, each of which is gone afterwards."""
        names = [keys.identifier(key).decode() for key, _ in self.wheel.take_due(now_ms, rows_max)]
        self.change(dict.fromkeys(names))
        return names

    def close(self, now_ms: int) -> None:
        dropped = self.wheel.close_past(now_ms)
        if dropped is not None:
            self.store.write(Batch(b"", row_drops=[dropped]))

    @property
    def heap(self) -> list[str]:
        return [keys.identifier(key).decode() for key in sorted(self.wheel._rows)]

    @property
    def rows(self) -> list[str]:
        return [
            keys.identifier(key).decode() for key, _ in self.store.scan(b"", b"\xff" * 9, 1_000_000)
        ]

    @property
    def husks(self) -> list[str]:
        found = []
        for key, _ in self.store.scan(b"", b"\xff" * 9, 1_000_000):
            identifier = keys.identifier(key)
            header = self.store.headers([identifier])[0]
            if header is None or keys.row(header, identifier) != key:
                found.append(identifier.decode())
        return found

    def marks(self) -> tuple[list[str], int, int, list[str], list[str]]:
        """What a line of the docstring's table says, times in ms from 10:00."""
        open_to = keys.at_ms(self.wheel.open_to) - TEN
        return self.heap, open_to, self.wheel.cursor_ms - TEN, self.rows, self.husks


def a_reminder(name: str, at_ms: int) -> Reminder:
    made = pending()
    return Reminder(name, made.asked, made.state, Entry.FIRE, at_ms, NOW_MS, NOW_MS)


def test_the_table_in_the_docstring() -> None:
    turned = Turned()
    turned.change({"a": TEN + 1_000, "b": TEN + 2_000, "c": TEN + 90_000})
    minute = MINUTE_MS

    assert turned.take(TEN - 6_000) == []
    assert turned.marks() == ([], 0, -minute, ["a", "b", "c"], [])

    assert turned.take(TEN - 5_000) == []
    assert turned.marks() == (["a", "b"], minute, -minute, ["a", "b", "c"], [])

    assert turned.take(TEN + 1_000) == ["a"]
    turned.close(TEN + 1_000)
    assert turned.marks() == (["b"], minute, 0, ["a", "b", "c"], ["a"])

    turned.put("b", TEN + 70_000)
    turned.close(TEN + 2_000)
    assert turned.marks() == ([], minute, 0, ["a", "b", "b", "c"], ["a", "b"])

    assert turned.take(TEN + 55_000) == []
    assert turned.marks() == (["b", "c"], 2 * minute, 0, ["a", "b", "b", "c"], ["a", "b"])

    assert turned.take(TEN + 70_000) == ["b"]
    turned.close(TEN + 70_000)
    assert turned.marks() == (["c"], 2 * minute, minute, ["b", "c"], ["b"])


@pytest.mark.parametrize("edge_ms", [TEN, TEN + 1, TEN - 1, TEN + 30_000])
def test_never_early_and_never_late_at_the_millisecond(edge_ms: int) -> None:
    turned = Turned()
    turned.change({"before": edge_ms - 1, "at": edge_ms, "after": edge_ms + 1})
    assert turned.take(edge_ms - 2) == []
    assert turned.take(edge_ms - 1) == ["before"]
    assert turned.take(edge_ms) == ["at"]
    assert turned.take(edge_ms) == []
    assert turned.take(edge_ms + 1) == ["after"]


def test_a_minute_is_in_memory_before_it_begins() -> None:
    turned = Turned()
    turned.put("a", TEN)
    turned.wheel.take_due(TEN - AHEAD_MS - 1, 10)
    assert turned.heap == []
    turned.wheel.take_due(TEN - AHEAD_MS, 10)
    assert turned.heap == ["a"]
    assert turned.wheel.next_ms() == TEN


def test_what_is_due_comes_in_order_of_time_whatever_the_order_it_came_in() -> None:
    seeded = random.Random(7)
    due = {f"r{number:03}": TEN + seeded.randrange(3 * MINUTE_MS) for number in range(300)}
    early = dict(list(due.items())[:150])
    turned = Turned(rows_max=40)
    turned.change({**early})
    assert turned.take(TEN - 1) == []
    for name in list(due)[150:]:
        turned.put(name, due[name])
    taken: list[str] = []
    while names := turned.take(TEN + 3 * MINUTE_MS, seeded.randrange(1, 30)):
        taken += names
    assert taken == sorted(due, key=lambda name: (due[name], name))


def test_a_big_minute_is_opened_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buckets.wheel.SCAN_ROWS", 50)
    turned = Turned(rows_max=100)
    turned.change({f"r{number:04}": TEN + number for number in range(1_000)})
    taken: list[str] = []
    while names := turned.take(TEN + MINUTE_MS, 30):
        taken += names
        assert len(turned.heap) <= 150
    assert taken == [f"r{number:04}" for number in range(1_000)]
    assert max(turned.scanned) <= 50


def test_an_instant_with_more_rows_than_the_heap_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buckets.wheel.SCAN_ROWS", 7)
    turned = Turned(rows_max=10)
    names = [f"r{number:03}" for number in range(100)]
    turned.change(dict.fromkeys(names, TEN))
    assert turned.take(TEN - 1) == []
    assert turned.take(TEN, 1_000) == names


def test_what_is_not_due_costs_nothing() -> None:
    turned = Turned()
    turned.change({f"r{number}": TEN + 60 * MINUTE_MS + number for number in range(500)})
    for second in range(120):
        turned.take(TEN + second * 1_000)
    assert sum(turned.scanned) == 0


def test_placing_far_too_many_leaves_the_latest_to_the_store() -> None:
    turned = Turned(rows_max=10)
    turned.take(TEN)
    placed = OVERFULL * 10 + 1
    for number in range(placed):
        turned.put(f"r{number:03}", TEN + 59_000 - number)
    assert len(turned.heap) == 10
    assert turned.take(TEN + 59_000) == [f"r{number:03}" for number in reversed(range(placed))]


def test_a_row_shut_out_is_moved_by_husk_and_comes_once() -> None:
    turned = Turned(rows_max=2)
    turned.take(TEN)
    for number in range(OVERFULL * 2 + 1):
        turned.put(f"r{number}", TEN + 1_000 + number)
    assert turned.heap == ["r0", "r1"]
    turned.put("r5", TEN + 500)
    assert "r5" in turned.husks
    assert turned.take(TEN + 50_000) == ["r5", "r0", "r1", "r2", "r3", "r4", "r6"]


def opened_with_husks() -> Turned:
    """a has fired, b has moved to a later minute, c stays; the minute is open."""
    turned = Turned()
    turned.change({"a": TEN + 1, "b": TEN + 2, "c": TEN + 3})
    assert turned.take(TEN + 1) == ["a"]
    turned.put("b", TEN + 90_000)
    assert turned.husks == ["a", "b"]
    return turned


def test_husks_are_recognised_after_a_restart() -> None:
    turned = opened_with_husks()
    turned.restart()
    assert turned.take(TEN + MINUTE_MS) == ["c"]
    assert turned.take(TEN + 90_000) == ["b"]


def test_husks_are_recognised_after_a_failed_turn() -> None:
    turned = opened_with_husks()
    assert [keys.identifier(key) for key, _ in turned.wheel.take_due(TEN + 3, 10)] == [b"c"]
    turned.wheel.reopen()
    assert turned.take(TEN + MINUTE_MS) == ["c"]
    assert turned.take(TEN + 90_000) == ["b"]


def test_a_row_that_moves_onto_a_husk_is_live() -> None:
    turned = opened_with_husks()
    turned.put("b", TEN + 2)
    assert turned.husks == ["a"]
    turned.restart()
    assert turned.take(TEN + MINUTE_MS) == ["b", "c"]


def test_a_row_that_moves_away_and_back_fires_once() -> None:
    turned = Turned()
    turned.put("a", TEN + 5)
    assert turned.take(TEN) == []
    turned.put("a", TEN + 9)
    turned.put("a", TEN + 5)
    assert turned.take(TEN + MINUTE_MS) == ["a"]
    assert turned.take(TEN + MINUTE_MS) == []


def test_a_row_not_yet_opened_is_deleted_and_leaves_no_husk() -> None:
    turned = Turned()
    turned.put("a", TEN + 5 * MINUTE_MS)
    turned.put("a", TEN + 6 * MINUTE_MS)
    assert (turned.rows, turned.husks) == (["a"], [])


def test_only_minutes_that_are_over_and_empty_are_dropped() -> None:
    turned = Turned(cursor_ms=TEN)
    turned.change({"a": TEN, "b": TEN + MINUTE_MS - 1, "c": TEN + MINUTE_MS})
    assert turned.take(TEN + 1) == ["a"]
    assert turned.wheel.close_past(TEN + MINUTE_MS - 1) is None
    # The minute is over, but b is still in it.
    assert turned.wheel.close_past(TEN + 2 * MINUTE_MS) is None
    assert turned.take(TEN + MINUTE_MS - 1) == ["b"]
    assert turned.wheel.close_past(TEN + MINUTE_MS - 1) is None
    dropped = turned.wheel.close_past(TEN + MINUTE_MS)
    assert dropped == (keys.bound(LANE, TEN), keys.bound(LANE, TEN + MINUTE_MS))
    assert turned.wheel.close_past(TEN + MINUTE_MS) is None


def test_a_minute_that_was_never_opened_is_not_closed() -> None:
    turned = Turned(cursor_ms=TEN)
    turned.put("a", TEN + 30 * MINUTE_MS)
    turned.take(TEN)
    turned.close(TEN + 60 * MINUTE_MS)
    assert turned.wheel.cursor_ms == TEN + MINUTE_MS
    assert turned.take(TEN + 60 * MINUTE_MS) == ["a"]


def test_the_cursor_never_passes_a_row() -> None:
    turned = Turned(cursor_ms=TEN)
    turned.change({"a": TEN, "b": TEN + 3 * MINUTE_MS})
    assert turned.take(TEN) == ["a"]
    turned.take(TEN + 10 * MINUTE_MS, 0)
    turned.wheel.open(TEN + 10 * MINUTE_MS)
    turned.close(TEN + 10 * MINUTE_MS)
    assert turned.wheel.cursor_ms == TEN + 3 * MINUTE_MS


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_placed_behind_the_cursor_brings_it_back(restarted: bool) -> None:
    """The clock steps back by an hour, and a reminder is due at once."""
    turned = Turned()
    turned.put("a", TEN)
    assert turned.take(TEN) == ["a"]
    turned.close(TEN + 1)
    assert turned.wheel.cursor_ms == TEN
    early_ms = TEN - 60 * MINUTE_MS + 30_000
    turned.put("late", early_ms)
    assert turned.wheel.cursor_ms == keys.minute_start_ms(early_ms)
    if restarted:
        turned.restart()
    assert turned.take(early_ms - 1) == []
    assert turned.take(early_ms) == ["late"]
    assert turned.take(TEN + MINUTE_MS) == []
    turned.close(TEN + MINUTE_MS)
    assert turned.rows == []


def test_a_clock_that_steps_back_fires_nothing_early() -> None:
    turned = Turned()
    turned.change({"a": TEN, "b": TEN + 10})
    assert turned.take(TEN) == ["a"]
    assert turned.take(TEN - 60 * MINUTE_MS) == []
    assert turned.take(TEN + 9) == []
    assert turned.take(TEN + 10) == ["b"]


def test_times_at_the_ends_of_the_calendar() -> None:
    turned = Turned(cursor_ms=0)
    last_ms = 253_402_300_799_999
    turned.change({"first": 0, "second": 1, "last": last_ms})
    assert turned.take(0) == ["first"]
    assert turned.take(1) == ["second"]
    assert turned.take(last_ms - 1) == []
    assert turned.take(last_ms) == ["last"]


# ---- two lanes in a partition ----


def filled(names_and_destinations: Iterable[tuple[str, str]], due_ms: int) -> Partition:
    partition = Partition(MemoryStore())
    for name, destination in names_and_destinations:
        identifier = name.encode()
        partition.hold([identifier])
        made = pending(due_ms, destination=destination)
        partition.put(
            identifier, Reminder(name, made.asked, made.state, made.entry, due_ms, NOW_MS, NOW_MS)
        )
    partition.settle(1, Applied(), NOW_MS)
    return partition


def test_a_blocked_claiming_lane_does_not_hold_up_the_free_one() -> None:
    partition = filled([("a", "due"), ("b", "topic:x"), ("c", "due"), ("d", "topic:y")], TEN)
    assert [identifier for identifier, _ in partition.take_due(TEN, 10, 0)] == [b"b", b"d"]


def test_claims_leave_no_more_unanswered_than_allowed() -> None:
    partition = filled([(name, "due") for name in "abcde"], TEN)
    assert [identifier for identifier, _ in partition.take_due(TEN, 10, 2)] == [b"a", b"b"]


def test_the_limit_of_a_turn_is_for_both_lanes() -> None:
    partition = filled([("a", "due"), ("b", "topic:x"), ("c", "due"), ("d", "topic:y")], TEN)
    taken = [identifier for identifier, _ in partition.take_due(TEN, 3, 10)]
    assert taken == [b"a", b"b", b"d"]


def test_neither_lane_starves_the_other() -> None:
    many = 40
    for much, little in (("topic:x", "due"), ("due", "topic:x")):
        backlog = [(f"m{number:02d}", much) for number in range(many)]
        partition = filled([*backlog, ("z", little)], TEN)
        taken = [identifier for identifier, _ in partition.take_due(TEN, 10, many)]
        assert b"z" in taken
        assert len(taken) == 10


def test_an_abandoned_turn_gives_back_what_it_took() -> None:
    partition = filled([(name, "due") for name in "abc"], TEN)
    first = partition.take_due(TEN, 2, 10)
    partition.abandon()
    assert partition.take_due(TEN, 2, 10) == first


def test_large_rows_are_opened_and_taken_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buckets.wheel.TAKE_BYTES_MAX", 5_000)
    monkeypatch.setattr("buckets.wheel.SCAN_BYTES", 4_000)
    store = MemoryStore()
    values = {keys.bound(0, TEN) + b"%02d" % number: b"v" * 1_000 for number in range(100)}
    batch = Batch(b"", row_puts=list(values.items()))
    store.write(batch)
    wheel = Wheel(Lane.CLAIMING, store.scan, store.headers, cursor_ms=TEN, bytes_max=20_000)
    opened = 0
    while wheel.open(TEN):
        opened += 1
    assert opened > 0
    taken: list[bytes] = []
    while rows := wheel.take_due(TEN, 1_000):
        assert sum(len(value) for _, value in rows) <= 5_000
        taken += [key for key, _ in rows]
    assert taken == sorted(values)


def test_large_rows_placed_in_an_opened_minute_are_left_to_the_store() -> None:
    store = MemoryStore()
    wheel = Wheel(Lane.CLAIMING, store.scan, store.headers, cursor_ms=TEN, bytes_max=10_000)
    assert wheel.open(TEN)
    names = [keys.bound(0, TEN + number) + b"x" for number in range(60)]
    for name in reversed(names):
        store.write(Batch(b"", row_puts=[(name, b"v" * 1_000)], index_puts=[(b"x", name)]))
        wheel.place(name, b"v" * 1_000)
    assert wheel.open_to < names[-1]
    assert wheel.next_ms() == TEN
