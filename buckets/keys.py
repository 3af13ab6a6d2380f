"""Keys of the store, so laid out that byte order is the order the wheel turns in.

    row     lane (1 byte) · at_ms (8 bytes, big-endian) · id (UTF-8)
    index   id (UTF-8)
    counts  hour since 1970 (4 bytes, big-endian) · tenant (UTF-8)

A minute bucket is the range of rows from its first millisecond to the next minute's.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from schemas.instants import MINUTE_MS
from schemas.reminder import PLACE

_PLACE: Final = Struct(">BQ")
_HOUR: Final = Struct(">I")
PLACE_BYTES: Final = _PLACE.size


def row(header: bytes, identifier: bytes) -> bytes:
    """The key of the row a header describes."""
    return header[PLACE] + identifier


def identifier(row_key: bytes) -> bytes:
    """The id in a row's key."""
    return row_key[PLACE_BYTES:]


def at_ms(row_key: bytes) -> int:
    """The time in a row's key."""
    return int.from_bytes(row_key[1:PLACE_BYTES], "big")


def bound(lane: int, instant_ms: int) -> bytes:
    """The smallest key of a lane at an instant: before it lies all that is earlier."""
    return _PLACE.pack(lane, max(instant_ms, 0))


def minute_start_ms(instant_ms: int) -> int:
    """The first millisecond of the minute an instant lies in."""
    return instant_ms - instant_ms % MINUTE_MS


def count(hour: int, tenant: bytes) -> bytes:
    """The key of an hour's counts of a tenant."""
    return _HOUR.pack(hour) + tenant


def count_parts(key: bytes) -> tuple[int, bytes]:
    """Hour and tenant of a count's key."""
    return _HOUR.unpack_from(key)[0], key[_HOUR.size :]
