"""Contiguous offsets: never past unfinished work, whatever the order work finishes in."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as some

from streams.delivery.offsets import ContiguousOffsets


def test_the_example_of_the_docstring() -> None:
    offsets = ContiguousOffsets()
    assert all(offsets.read(offset) for offset in (5, 6, 8, 9))
    offsets.finish(6)
    offsets.finish(8)
    assert offsets.next_unfinished == 5
    assert not offsets.moved
    offsets.finish(5)
    assert offsets.next_unfinished == 9
    assert offsets.moved
    offsets.finish(9)
    assert offsets.next_unfinished == 10
    assert len(offsets) == 0


def test_nothing_read_is_nothing_to_commit() -> None:
    assert not ContiguousOffsets().moved


def test_a_record_read_again_is_told_apart() -> None:
    offsets = ContiguousOffsets()
    assert offsets.read(3)
    assert not offsets.read(3)
    assert not offsets.read(2)
    assert offsets.read(4)


def test_committed_is_not_moved_until_more_finishes() -> None:
    offsets = ContiguousOffsets()
    offsets.read(0)
    offsets.finish(0)
    offsets.committed(offsets.next_unfinished)
    assert not offsets.moved
    offsets.read(1)
    assert not offsets.moved
    offsets.finish(1)
    assert offsets.moved


@given(some.sets(some.integers(0, 60), min_size=1), some.randoms())
def test_every_offset_below_is_finished_and_the_next_is_not(read: set[int], random: Random) -> None:
    offsets = ContiguousOffsets()
    for offset in sorted(read):
        offsets.read(offset)
    order = sorted(read)
    random.shuffle(order)
    left = set(read)
    for offset in order:
        offsets.finish(offset)
        left.discard(offset)
        assert offsets.next_unfinished == min(left, default=max(read) + 1)
