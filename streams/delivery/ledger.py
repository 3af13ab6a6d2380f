"""The ledger of one partition: which attempts already have a recorded outcome.

It is a fold of the partition's `outcomes` topic and of nothing else, kept in RocksDB:

    f <16 bytes of fire_id>   format, status, attempt (>I), offset of the record (>Q)
    m                         JSON: cluster, topic, partitions, the next offset to read

Entries and the next offset are written in one batch, so no write-ahead log is needed: after a
crash the folder holds an older whole state, and the topic is read on from there. An entry is
forgotten once its record has left the topic; so the ledger always equals what a new one, read
from the topic as it is, would hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct as Layout
from typing import Any, Final

import orjson
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from schemas.events import SETTLED, Outcome, Status
from streams import logs

FORMAT: Final = 1
_ENTRY: Final = Layout(">BBIQ")
_META: Final = b"m"
_FIRE: Final = b"f"
_STATUSES: Final = tuple(Status)
_CODES: Final = {status: code for code, status in enumerate(_STATUSES)}
ATTEMPT_MAX: Final = 2**32 - 1
WRITE_BUFFER_BYTES: Final = 8 * 2**20

_log: Final = logs.get("delivery")


@dataclass(frozen=True, slots=True)
class Origin:
    """Which topic a ledger is a fold of."""

    cluster: str
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome that counts for a fire_id: the first settled one, else the last attempt's."""

    attempt: int
    status: Status
    offset: int = 0

    def covers(self, attempt: int) -> bool:
        """Whether nothing is left to do for an attempt."""
        return self.status in SETTLED or self.attempt >= attempt


def merge(known: Entry | None, new: Entry) -> Entry:
    """The fold: the first settled outcome stands, before it the highest attempt does."""
    if known is None:
        return new
    if known.status in SETTLED:
        return known
    if new.status in SETTLED or new.attempt >= known.attempt:
        return new
    return known


class Ledger:
    """The folder of one partition. Used by one thread; open until `close`."""

    def __init__(self, folder: Path, origin: Origin, end_offset: int) -> None:
        """Open the folder; begin anew, loudly, if it holds a fold of something else.

        `end_offset` is the end of the topic's partition: a ledger ahead of it is of a topic that
        was since truncated or recreated. Raises what RocksDB raises if another process has it.
        """
        self._folder = folder
        self._store = _open(folder)
        stored = self._stored()
        why = _strange(stored, origin, end_offset)
        if why:
            _log.warning("ledger wiped, will be read anew", folder=str(folder), why=why)
            self._store.close()
            shutil.rmtree(folder)
            self._store = _open(folder)
            stored = {}
        self._origin = origin
        self._next_offset = int(stored.get("next", 0))
        self._written_offset = self._next_offset
        self._pruned_to = _FIRE

    @property
    def next_offset(self) -> int:
        """The next offset of the outcomes partition to read."""
        return self._next_offset

    def skip_to(self, offset: int) -> None:
        """Go on from `offset`: what lies before it is gone, or is no outcome."""
        self._next_offset = max(self._next_offset, offset)

    def get(self, fire_id: str) -> Entry | None:
        """The entry of a fire_id."""
        value = self._store.get(_key(fire_id))
        return None if value is None else _decode(value)

    def fold(self, outcomes: Iterable[tuple[int, Outcome]], next_offset: int) -> None:
        """Take in outcomes with their offsets, in order, and step to `next_offset`."""
        changed: dict[str, Entry] = {}
        for offset, outcome in outcomes:
            new = Entry(min(outcome.attempt, ATTEMPT_MAX), outcome.status, offset)
            known = changed.get(outcome.fire_id) or self.get(outcome.fire_id)
            merged = merge(known, new)
            if merged is not known:
                changed[outcome.fire_id] = merged
        self.skip_to(next_offset)
        if not changed:
            return
        batch = WriteBatch(raw_mode=True)
        for fire_id, entry in changed.items():
            batch.put(_key(fire_id), _encode(entry))
        self._write(batch)

    def prune(self, first_offset: int, keys_max: int) -> int:
        """Look at up to `keys_max` entries, going round, and forget those that left the topic.

        `first_offset` is the first one the topic still holds. Returns how many were forgotten.
        """
        batch = WriteBatch(raw_mode=True)
        following = _FIRE
        for looked, (key, value) in enumerate(self._store.items(from_key=self._pruned_to)):
            assert isinstance(key, bytes), "raw mode: keys are bytes"
            if not key.startswith(_FIRE):
                break
            if looked == keys_max:
                following = key
                break
            if _decode(value).offset < first_offset:
                batch.delete(key)
        self._pruned_to = following
        forgotten = len(batch)
        if forgotten:
            self._write(batch)
        return forgotten

    def flush(self) -> None:
        """Bring what is in memory to disk, which bounds what is read anew after a crash."""
        if self._next_offset > self._written_offset:
            self._write(WriteBatch(raw_mode=True))
        self._store.flush()

    def close(self) -> None:
        """Flush and give the folder back."""
        self.flush()
        self._store.close()

    def _write(self, batch: WriteBatch) -> None:
        meta = {
            "format": FORMAT,
            "cluster": self._origin.cluster,
            "topic": self._origin.topic,
            "partitions": self._origin.partitions,
            "next": self._next_offset,
        }
        batch.put(_META, orjson.dumps(meta))
        options = WriteOptions()
        options.disable_wal = True  # type: ignore[method-assign, assignment]
        self._store.write(batch, options)
        self._written_offset = self._next_offset

    def _stored(self) -> dict[str, Any]:
        value = self._store.get(_META)
        return {} if value is None else orjson.loads(value)


def _open(folder: Path) -> Rdict:
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(2)
    return Rdict(str(folder), options)


def _strange(stored: dict[str, Any], origin: Origin, end_offset: int) -> str:
    """Why a stored ledger is not one of this topic, or nothing."""
    if not stored:
        return ""
    if stored["format"] != FORMAT:
        return f"its format is {stored['format']}, not {FORMAT}"
    if (stored["cluster"], stored["topic"]) != (origin.cluster, origin.topic):
        return "it belongs to another cluster or another topic of the same name"
    if stored["partitions"] != origin.partitions:
        return "the partition count changed"
    if stored["next"] > end_offset:
        return f"it is ahead of the topic: {stored['next']} > {end_offset}"
    return ""


def _key(fire_id: str) -> bytes:
    return _FIRE + bytes.fromhex(fire_id)


def _encode(entry: Entry) -> bytes:
    return _ENTRY.pack(FORMAT, _CODES[entry.status], entry.attempt, entry.offset)


def _decode(value: bytes) -> Entry:
    _, code, attempt, offset = _ENTRY.unpack(value)
    return Entry(attempt, _STATUSES[code], offset)
