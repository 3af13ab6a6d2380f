"""Ids go to the partitions that a Java producer would choose for their routing keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import routing

# Source: Kafka's own UtilsTest.testMurmur2, signed there as Java has it.
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "signed"), KAFKA_VECTORS.items())
def test_murmur2_is_kafkas(data: bytes, signed: int) -> None:
    assert routing.murmur2(data) == signed & 0xFFFFFFFF


def reference_murmur2(data: bytes) -> int:
    """Kafka's `Utils.murmur2`, line by line."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4
    for place in range(0, whole * 4, 4):
        k = int.from_bytes(data[place : place + 4], "little")
        k = k * m & mask
        k ^= k >> 24
        k = k * m & mask
        h = h * m & mask
        h ^= k
    rest = data[whole * 4 :]
    if len(rest) == 3:
        h ^= rest[2] << 16
    if len(rest) >= 2:
        h ^= rest[1] << 8
    if len(rest) >= 1:
        h ^= rest[0]
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ h >> 15


@given(st.binary(max_size=300))
def test_murmur2_of_any_bytes(data: bytes) -> None:
    assert routing.murmur2(data) == reference_murmur2(data)


@given(st.text(), st.integers(1, 1_000))
def test_partition_is_the_positive_hash_of_the_routing_key(
    reminder_id: str, partitions: int
) -> None:
    partition = routing.partition_of(reminder_id, partitions)
    assert (
        partition == (reference_murmur2(routing.routing_key(reminder_id)) & 0x7FFFFFFF) % partitions
    )


@given(st.text().filter(lambda parent: "/" not in parent), st.text(), st.integers(1, 1_000))
def test_children_lie_beside_their_parent(parent: str, child: str, partitions: int) -> None:
    assert routing.routing_key(f"{parent}/{child}") == parent.encode()
    assert routing.partition_of(f"{parent}/{child}", partitions) == routing.partition_of(
        parent, partitions
    )


@given(st.lists(st.binary(max_size=24), max_size=60), st.integers(1, 1_000))
def test_many_are_placed_like_each_alone(keys: list[bytes], partitions: int) -> None:
    # Each several times: keys of one length are hashed side by side only where there are many.
    keys *= 8
    expected = [(reference_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert routing.partitions_of(keys, partitions) == expected


@given(st.integers(0, 600), st.binary(min_size=1, max_size=8), st.integers(1, 20))
def test_long_keys_are_placed_like_each_alone(length: int, filling: bytes, count: int) -> None:
    keys = [(bytes([number]) + filling * length)[:length] for number in range(count)]
    expected = [(reference_murmur2(key) & 0x7FFFFFFF) % 4_096 for key in keys]
    assert routing.partitions_of(keys, 4_096) == expected
