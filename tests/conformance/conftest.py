"""Stores on RocksDB that are closed when a test is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buckets.rocks_store import RocksMemory, RocksStore

CACHE_BYTES = 8 << 20


@pytest.fixture(scope="session")
def memory() -> RocksMemory:
    return RocksMemory(CACHE_BYTES)


@pytest.fixture
def open_rocks(memory: RocksMemory) -> Iterator[Callable[[Path], RocksStore]]:
    """Opens stores that are closed at the end of the test."""
    opened: list[RocksStore] = []

    def open_one(path: Path) -> RocksStore:
        opened.append(RocksStore(path, memory))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
