"""A store in memory, for tests and simulations: it forgets everything when it goes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from buckets.store import Batch, Pair


class MemoryStore:
    """The `Store` protocol over dictionaries and one sorted list of row keys."""

    def __init__(self) -> None:
        self._index: dict[bytes, bytes] = {}
        self._rows: dict[bytes, bytes] = {}
        self._row_keys: list[bytes] = []
        self._counts: dict[bytes, bytes] = {}
        self._position: bytes | None = None
        self._identity: bytes | None = None

    def headers(self, identifiers: list[bytes]) -> list[bytes | None]:
        """See `Store`."""
        return [self._index.get(identifier) for identifier in identifiers]

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        """See `Store`."""
        return [self._rows.get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes, rows_max: int) -> list[Pair]:
        """See `Store`."""
        first = bisect_left(self._row_keys, lower)
        last = min(bisect_left(self._row_keys, upper), first + rows_max)
        return [(key, self._rows[key]) for key in self._row_keys[first:last]]

    def counts(self) -> Iterator[Pair]:
        """See `Store`."""
        yield from self._counts.items()

    def position(self) -> bytes | None:
        """See `Store`."""
        return self._position

    def identity(self) -> bytes | None:
        """See `Store`."""
        return self._identity

    def identify(self, identity: bytes) -> None:
        """See `Store`."""
        self._identity = identity

    def write(self, batch: Batch) -> None:
        """See `Store`."""
        for lower, upper in batch.row_drops:
            first, last = bisect_left(self._row_keys, lower), bisect_left(self._row_keys, upper)
            for key in self._row_keys[first:last]:
                del self._rows[key]
            del self._row_keys[first:last]
        for key in batch.row_deletes:
            if self._rows.pop(key, None) is not None:
                del self._row_keys[bisect_left(self._row_keys, key)]
        for key, value in batch.row_puts:
            if key not in self._rows:
                insort(self._row_keys, key)
            self._rows[key] = value
        for identifier in batch.index_deletes:
            self._index.pop(identifier, None)
        self._index.update(batch.index_puts)
        for key in batch.count_deletes:
            self._counts.pop(key, None)
        self._counts.update(batch.count_puts)
        self._position = batch.position

    def flush(self) -> None:
        """See `Store`."""

    def begin_flush(self) -> None:
        """See `Store`."""

    def check_flush(self) -> None:
        """See `Store`."""

    def size_bytes(self) -> int:
        """See `Store`."""
        return sum(len(key) + len(value) for key, value in self._rows.items())

    def close(self) -> None:
        """See `Store`."""
