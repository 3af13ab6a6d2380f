"""What a partition needs of its store; every implementation passes one conformance suite.

A store holds three sorted maps and two small values:

    index     id → header: is it known, and where is it
    rows      lane, time, id → stored reminder: the minute buckets
    counts    hour, tenant → 60 minute counts
    position  how far the log is contained in the above
    identity  which topics of which cluster it belongs to
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

Pair = tuple[bytes, bytes]


@dataclass(slots=True)
class Batch:
    """One turn's changes. A store writes all of it or nothing."""

    position: bytes
    index_puts: list[Pair] = field(default_factory=list)
    index_deletes: list[bytes] = field(default_factory=list)
    row_puts: list[Pair] = field(default_factory=list)
    row_deletes: list[bytes] = field(default_factory=list)
    row_drops: list[Pair] = field(default_factory=list)
    """Ranges of rows, lower bound in, upper bound out; carried out before the puts."""

    count_puts: list[Pair] = field(default_factory=list)
    count_deletes: list[bytes] = field(default_factory=list)


class Store(Protocol):
    """A partition's store. Not thread-safe: one loop owns it."""

    def headers(self, identifiers: list[bytes]) -> list[bytes | None]:
        """The index's headers of these ids, in their order."""

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        """The stored reminders in these rows, in their order."""

    def scan(self, lower: bytes, upper: bytes, rows_max: int) -> list[Pair]:
        """The first rows from `lower` on and below `upper`, in key order."""

    def counts(self) -> Iterator[Pair]:
        """All counts."""

    def position(self) -> bytes | None:
        """The position of the last batch; None in a new store."""

    def identity(self) -> bytes | None:
        """What `identify` set; None in a new store."""

    def identify(self, identity: bytes) -> None:
        """Mark a new store with the topics it belongs to."""

    def write(self, batch: Batch) -> None:
        """Write a batch: after a crash it is there wholly or not at all, and so are all before."""

    def flush(self) -> None:
        """Bring what was written to disk."""

    def begin_flush(self) -> None:
        """The same beside the caller, who goes on writing; nothing while one is under way."""

    def check_flush(self) -> None:
        """Raise what a flush that was begun and has ended has met."""

    def size_bytes(self) -> int:
        """Bytes on disk, about."""

    def close(self) -> None:
        """Flush and let go of the files."""
