"""Which partition an id belongs to: murmur2 over its routing key, as Java producers do it."""

from __future__ import annotations

from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def routing_key(reminder_id: str) -> bytes:
    """The id up to its first `/`, so that children live beside their parent."""
    return reminder_id.partition("/")[0].encode()


def murmur2(data: bytes) -> int:
    """Unsigned 32-bit murmur2 with Kafka's seed.

    Source: Austin Appleby's MurmurHash2, with the constants of Kafka's `Utils.murmur2`.
    """
    length = len(data)
    words = length >> 2
    hashed = _SEED ^ length
    for word in unpack_from(f"<{words}I", data):
        mixed = (word * _M) & _MASK
        hashed = ((hashed * _M) ^ ((mixed ^ (mixed >> 24)) * _M)) & _MASK
    rest = data[words << 2 :]
    if rest:
        hashed = ((hashed ^ int.from_bytes(rest, "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)


def partition_of(reminder_id: str, partitions: int) -> int:
    """The partition of an id among `partitions`: the sign bit dropped, then the remainder."""
    return (murmur2(routing_key(reminder_id)) & 0x7FFFFFFF) % partitions
