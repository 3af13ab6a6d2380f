"""What a partition writes to its part of the `state` topic, and how it is read back.

A record's key is the reminder's id and its value the stored reminder, or null once it is
forgotten. One more key, which no id can equal, holds how far the inputs have been applied.
"""

from __future__ import annotations

from typing import Final

import msgspec

from buckets.partition import Applied
from schemas.errors import UnknownFormat

APPLIED_KEY: Final = b"\x00applied"
_FORMAT: Final = 1


def encode_applied(applied: Applied) -> bytes:
    """The value under `APPLIED_KEY`."""
    return bytes([_FORMAT]) + msgspec.msgpack.encode(applied)


def decode_applied(value: bytes) -> Applied:
    """The offsets in a value under `APPLIED_KEY`, or `UnknownFormat`."""
    if value[0] != _FORMAT:
        raise UnknownFormat(
            f"the state topic has format {value[0]}, this release knows {_FORMAT}: "
            "run the release that wrote it, or a later one"
        )
    return msgspec.msgpack.decode(value[1:], type=Applied)
