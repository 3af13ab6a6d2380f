"""The store on RocksDB: three column families, no write-ahead log.

The `state` topic is the log: every batch carries the log's position, all families are flushed
together, so after a crash the store is some earlier whole batch and the topic has the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from buckets.errors import StoreDamaged, StoreLocked
from buckets.store import Batch, Pair

WRITE_BUFFER_BYTES: Final = 32 << 20
FILES_OPEN_MAX: Final = 512
_POSITION: Final = b"position"
_IDENTITY: Final = b"identity"


class RocksMemory:
    """One block cache and one write budget, shared by all stores of a process."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache = Cache(cache_bytes)
        self.writes = WriteBufferManager(max(cache_bytes, 4 * WRITE_BUFFER_BYTES), False)


class RocksStore:
    """The `Store` protocol on a directory of its own.

    Raises `StoreLocked` when another process has it open, `StoreDamaged` when it cannot be read.
    """

    def __init__(self, path: Path, memory: RocksMemory) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        try:
            self._open(memory)
        except Exception as error:
            message = str(error)
            if "lock" in message.lower():
                raise StoreLocked(
                    f"{path} is open in another process: stop it, or use another --data-dir"
                ) from None
            raise StoreDamaged(f"{path}: {message}") from None

    def _open(self, memory: RocksMemory) -> None:
        families = {
            "index": _options(memory, looked_up=True),
            "rows": _options(memory),
            "counts": _options(memory),
        }
        self._database = Rdict(str(self._path), _options(memory), column_families=families)
        self._index = self._database.get_column_family("index")
        self._rows = self._database.get_column_family("rows")
        self._counts = self._database.get_column_family("counts")
        self._index_handle = self._database.get_column_family_handle("index")
        self._rows_handle = self._database.get_column_family_handle("rows")
        self._counts_handle = self._database.get_column_family_handle("counts")
        self._no_log = WriteOptions()
        self._no_log.disable_wal = True  # type: ignore[method-assign, assignment]

    def headers(self, identifiers: list[bytes]) -> list[bytes | None]:
        """See `Store`."""
        found: list[bytes | None] = self._index.get(identifiers)  # type: ignore[arg-type, assignment]
        return found

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        """See `Store`."""
        found: list[bytes | None] = self._rows.get(keys)  # type: ignore[arg-type, assignment]
        return found

    def scan(self, lower: bytes, upper: bytes, rows_max: int) -> list[Pair]:
        """See `Store`."""
        within = ReadOptions()
        within.set_iterate_upper_bound(upper)
        found: Any = self._rows.items(from_key=lower, read_opt=within)
        return list(islice(found, rows_max))

    def counts(self) -> Iterator[Pair]:
        """See `Store`."""
        found: Any = self._counts.items()
        yield from found

    def index(self) -> Iterator[Pair]:
        """The whole index, for audits."""
        found: Any = self._index.items()
        yield from found

    def position(self) -> bytes | None:
        """See `Store`."""
        return self._database.get(_POSITION)

    def identity(self) -> bytes | None:
        """See `Store`."""
        return self._database.get(_IDENTITY)

    def identify(self, identity: bytes) -> None:
        """See `Store`."""
        self._database.put(_IDENTITY, identity, self._no_log)
        self.flush()

    def write(self, batch: Batch) -> None:
        """See `Store`. Puts go in key order: neighbours share their way through the memtable."""
        writes = WriteBatch(raw_mode=True)
        index, rows, counts = self._index_handle, self._rows_handle, self._counts_handle
        for lower, upper in batch.row_drops:
            writes.delete_range(lower, upper, rows)
        for key in batch.row_deletes:
            writes.delete(key, rows)
        for key in batch.index_deletes:
            writes.delete(key, index)
        for key in batch.count_deletes:
            writes.delete(key, counts)
        batch.index_puts.sort()
        batch.row_puts.sort()
        put = writes.put
        for key, value in batch.index_puts:
            put(key, value, index)
        for key, value in batch.row_puts:
            put(key, value, rows)
        for key, value in batch.count_puts:
            put(key, value, counts)
        put(_POSITION, batch.position)
        self._database.write(writes, self._no_log)

    def flush(self) -> None:
        """See `Store`."""
        self._database.flush()

    def size_bytes(self) -> int:
        """See `Store`."""
        return sum(file.stat().st_size for file in self._path.iterdir() if file.is_file())

    def close(self) -> None:
        """See `Store`. The lock goes only when every handle has gone, so all are dropped here."""
        if not hasattr(self, "_database"):
            return
        self._database.flush()
        self._database.close()
        for handle in ("index", "rows", "counts"):
            delattr(self, f"_{handle}")
            delattr(self, f"_{handle}_handle")
        del self._database


def wipe(path: Path) -> None:
    """Delete a store that is to be rebuilt."""
    shutil.rmtree(path, ignore_errors=True)


def _options(memory: RocksMemory, *, looked_up: bool = False) -> Options:
    """`looked_up`: point look-ups, mostly of ids not there: Bloom filters in files and memtable."""
    table = BlockBasedOptions()
    table.set_block_cache(memory.cache)
    table.set_cache_index_and_filter_blocks(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_write_buffer_manager(memory.writes)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_open_files(FILES_OPEN_MAX)
    options.set_max_background_jobs(2)
    if looked_up:
        table.set_bloom_filter(10, False)
        options.set_memtable_prefix_bloom_ratio(0.1)
        options.set_memtable_whole_key_filtering(True)
    options.set_block_based_table_factory(table)
    return options
