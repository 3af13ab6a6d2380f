"""The store on RocksDB: three column families, no write-ahead log.

The `state` topic is the log: every batch carries the log's position, all families are flushed
together, so after a crash the store is some earlier whole batch and the topic has the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    CompactOptions,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from buckets.errors import BucketsError, StoreDamaged, StoreLocked, StoreUnavailable
from buckets.store import Batch, Pair

WRITE_BUFFER_BYTES: Final = 32 << 20
FILES_OPEN_MAX: Final = 512
BACKGROUND_JOBS_MAX: Final = 4
"""One flush, and enough compactions that the small one of `flush` finds room beside a long one."""

_POSITION: Final = b"position"
_IDENTITY: Final = b"identity"
_DAMAGED_MARK: Final = "DAMAGED"
_KEY: Final = itemgetter(0)
_UNAVAILABLE: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "Permission denied",
    "Too many open files",
    "Cannot allocate memory",
)
"""What a healthy store's file system may answer. The store is not to be wiped for it."""


class RocksMemory:
    """What all stores of a process share: block cache, write budget, and a thread that flushes."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache = Cache(cache_bytes)
        self.writes = WriteBufferManager(max(cache_bytes, 4 * WRITE_BUFFER_BYTES), False)
        self.flushes = ThreadPoolExecutor(1, "flush")


class RocksStore:
    """The `Store` protocol on a directory of its own.

    Any call raises `StoreDamaged` when the files cannot be read, and `StoreUnavailable` when the
    file system refuses. Opening raises `StoreLocked` when another process has the store open.
    """

    def __init__(self, path: Path, memory: RocksMemory) -> None:
        self._path = path
        self._flushes = memory.flushes
        self._flushing: Future[None] | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            marked = (path / _DAMAGED_MARK).exists()
        except OSError as error:
            raise StoreUnavailable(f"{path}: {error.strerror}") from None
        if marked:
            raise StoreDamaged(f"{path}: it was found damaged when it was last open")
        try:
            self._open(memory)
            # Both are read when a store is taken over; better to hear of damage here.
            self.position()
            self.identity()
        except BucketsError:
            self._let_go()
            raise
        except Exception as error:
            raise self._failure(error) from None

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
        self._beside_others = CompactOptions()
        self._beside_others.set_exclusive_manual_compaction(False)
        self._no_log = WriteOptions()
        self._no_log.disable_wal = True  # type: ignore[method-assign, assignment]

    def _failure(self, error: Exception) -> BucketsError:
        """RocksDB's complaint, told apart by its text: it has only one type of exception."""
        message = str(error)
        # Not just the word: a block checksum has a lock in it as well.
        if f"{self._path}/LOCK: " in message:
            return StoreLocked(
                f"{self._path} is open in another process: stop it, or use another --data-dir"
            )
        if any(reason in message for reason in _UNAVAILABLE):
            return StoreUnavailable(f"{self._path}: {message}")
        # Opening reads little, so the next opening would not find what this call has found.
        with suppress(OSError):
            (self._path / _DAMAGED_MARK).touch()
        return StoreDamaged(f"{self._path}: {message}")

    def headers(self, identifiers: list[bytes]) -> list[bytes | None]:
        """See `Store`."""
        return self._look_up(self._index, identifiers)

    def rows(self, keys: list[bytes]) -> list[bytes | None]:
        """See `Store`."""
        return self._look_up(self._rows, keys)

    def _look_up(self, family: Rdict, keys: list[bytes]) -> list[bytes | None]:
        try:
            found: list[bytes | None] = family.get(keys)  # type: ignore[arg-type, assignment]
        except Exception as error:
            raise self._failure(error) from None
        return found

    def scan(self, lower: bytes, upper: bytes, rows_max: int) -> list[Pair]:
        """See `Store`."""
        within = ReadOptions()
        within.set_iterate_upper_bound(upper)
        items: Any = self._rows.items(from_key=lower, read_opt=within)
        found = list(islice(items, rows_max))
        if len(found) < rows_max:
            self._check_end(self._rows, within, found[-1][0] + b"\0" if found else lower)
        return found

    def _check_end(self, family: Rdict, within: ReadOptions, after: bytes) -> None:
        """Make sure that an iteration ended because there is no more.

        The binding's iterators end without a word at a block that cannot be read. Setting one
        down behind the last key found meets that block again, and this one has a status.
        """
        end = family.iter(within)
        end.seek(after)
        try:
            end.status()
        except Exception as error:
            raise self._failure(error) from None
        if end.valid():
            raise self._failure(Exception("an iteration ended before its end"))

    def counts(self) -> Iterator[Pair]:
        """See `Store`."""
        return self._every(self._counts)

    def index(self) -> Iterator[Pair]:
        """The whole index, for audits."""
        return self._every(self._index)

    def _every(self, family: Rdict) -> Iterator[Pair]:
        items: Any = family.items()
        after = b""
        for key, value in items:
            after = key + b"\0"
            yield key, value
        self._check_end(family, ReadOptions(), after)

    def position(self) -> bytes | None:
        """See `Store`."""
        return self._look_up(self._database, [_POSITION])[0]

    def identity(self) -> bytes | None:
        """See `Store`."""
        return self._look_up(self._database, [_IDENTITY])[0]

    def identify(self, identity: bytes) -> None:
        """See `Store`."""
        try:
            self._database.put(_IDENTITY, identity, self._no_log)
        except Exception as error:
            raise self._failure(error) from None
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
        batch.index_puts.sort(key=_KEY)
        batch.row_puts.sort(key=_KEY)
        put = writes.put
        for key, value in batch.index_puts:
            put(key, value, index)
        for key, value in batch.row_puts:
            put(key, value, rows)
        for key, value in batch.count_puts:
            put(key, value, counts)
        put(_POSITION, batch.position)
        try:
            self._database.write(writes, self._no_log)
        except Exception as error:
            raise self._failure(error) from None

    def flush(self) -> None:
        """See `Store`.

        The binding's own flush writes one family and leaves the others in memory: after a crash
        the position would speak of rows that are not there. A compaction of the default family,
        which holds two small values, first flushes all families as one, because of
        `atomic_flush`; where nothing was written since the last time it does nothing. It shares
        the background with other compactions, so as not to wait for the long ones.
        """
        try:
            self._database.compact_range(None, None, self._beside_others)
        except Exception as error:
            raise self._failure(error) from None

    def begin_flush(self) -> None:
        """See `Store`. A disk may take a quarter of a second, for which nothing would fire."""
        self.check_flush()
        if self._flushing is None:
            self._flushing = self._flushes.submit(self.flush)

    def check_flush(self) -> None:
        """See `Store`."""
        if self._flushing is not None and self._flushing.done():
            ended, self._flushing = self._flushing, None
            ended.result()

    def size_bytes(self) -> int:
        """See `Store`. A compaction may take files away while they are looked at."""
        total = 0
        for file in self._path.iterdir():
            with suppress(FileNotFoundError):
                total += file.stat().st_size
        return total

    def close(self) -> None:
        """See `Store`. What cannot be flushed any more is left to the log."""
        if not hasattr(self, "_database"):
            return
        if self._flushing is not None:
            wait([self._flushing])
        try:
            with suppress(BucketsError):
                self.flush()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Drop every handle: the lock goes only when all have gone."""
        with suppress(Exception):
            self._database.close()
        for name in ("index", "rows", "counts"):
            for handle in (f"_{name}", f"_{name}_handle"):
                with suppress(AttributeError):
                    delattr(self, handle)
        with suppress(AttributeError):
            del self._database


def wipe(path: Path) -> None:
    """Delete a store that is to be rebuilt. Raises `StoreUnavailable` where that is refused."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be deleted: {error.strerror}") from None


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
    options.set_max_background_jobs(BACKGROUND_JOBS_MAX)
    if looked_up:
        table.set_bloom_filter(10, False)
        options.set_memtable_prefix_bloom_ratio(0.1)
        options.set_memtable_whole_key_filtering(True)
    options.set_block_based_table_factory(table)
    return options
