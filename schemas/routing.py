"""Which partition an id belongs to: murmur2 over its routing key, as Java producers do it."""

from __future__ import annotations

from struct import Struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_LAYOUTS: Final = [Struct(f"<{words}I") for words in range(65)]


def routing_key(reminder_id: str) -> bytes:
    """The id up to its first `/`, so that children live beside their parent."""
    return reminder_id.partition("/")[0].encode()


def murmur2(data: bytes) -> int:
    """Unsigned 32-bit murmur2 with Kafka's seed.

    Source: Austin Appleby's MurmurHash2, with the constants of Kafka's `Utils.murmur2`. Every
    command is hashed, so names are local and a product is cut to 32 bits only where it matters.
    """
    m, mask = _M, _MASK
    length = len(data)
    words = length >> 2
    layout = _LAYOUTS[words] if words < len(_LAYOUTS) else Struct(f"<{words}I")
    hashed = _SEED ^ length
    for word in layout.unpack_from(data):
        mixed = word * m & mask
        hashed = (hashed * m ^ (mixed ^ mixed >> 24) * m) & mask
    if length & 3:
        hashed = (hashed ^ int.from_bytes(data[words << 2 :], "little")) * m & mask
    hashed = (hashed ^ hashed >> 13) * m & mask
    return hashed ^ hashed >> 15


def partition_of(reminder_id: str, partitions: int) -> int:
    """The partition of an id among `partitions`."""
    return partition_of_key(routing_key(reminder_id), partitions)


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a routing key: the sign bit dropped, then the remainder."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
