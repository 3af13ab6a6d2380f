"""The state of one partition: its reminders, its wheel, its counts, and how it changes.

A turn holds the reminders it touches in an overlay. Only `settle` (live, once the turn has
committed) and `restore` (from the changelog) change anything, and both do it through `_apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from buckets import keys
from buckets.counts import Counts
from buckets.store import Batch, Store
from buckets.wheel import Wheel
from schemas import reminder as codec
from schemas.errors import UnknownFormat
from schemas.instants import MINUTE_MS
from schemas.reminder import Lane, Reminder

POSITION_FORMAT: Final = 1


class Applied(Struct, array_like=True):
    """The next offsets of the inputs whose effects are in the state.

    `commands_topic` and `outcomes_topic` are the topics' ids: offsets of a topic that was
    deleted and made anew mean nothing. `partitions` is their count when this was written.
    """

    commands: int = 0
    outcomes: int = 0
    commands_topic: str = ""
    outcomes_topic: str = ""
    partitions: int = 0


class Position(Struct, array_like=True):
    """Stored in the same batch as the changes it speaks of."""

    format: int
    changelog: int
    applied: Applied
    claims: int
    cursors_ms: list[int]
    husks_below: list[bytes]
    current_ms: int = 0


class Partition:
    """One partition's reminders. Ids are their UTF-8 bytes throughout."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._headers: dict[bytes, bytes | None] = {}
        self._standing: dict[bytes, Reminder | None] = {}
        self._changed: dict[bytes, bytes | None] = {}
        self._load()

    def _load(self) -> None:
        """Believe the store and nothing else: at the start, and after a write that failed."""
        store = self._store
        stored = store.position()
        position = self._decode_position(stored) if stored is not None else _new_position()
        self.changelog = position.changelog
        self.applied = position.applied
        self.current_ms = position.current_ms
        self.counts = Counts(store.counts(), position.claims)
        self._wheels = tuple(
            Wheel(lane, store.scan, store.headers, cursor_ms=cursor_ms, husks_below=husks)
            for lane, cursor_ms, husks in zip(
                Lane, position.cursors_ms, position.husks_below, strict=True
            )
        )
        self._clear()

    @staticmethod
    def _decode_position(stored: bytes) -> Position:
        # The format comes first: what follows it may be anything in another release.
        found = msgspec.msgpack.decode(stored)
        if not isinstance(found, list) or not found or found[0] != POSITION_FORMAT:
            written = found[0] if isinstance(found, list) and found else found
            raise UnknownFormat(
                f"the store has format {written}, this release knows {POSITION_FORMAT}: "
                "run the release that wrote it, or delete the store to have it rebuilt"
            )
        return msgspec.convert(found, Position)

    @property
    def store(self) -> Store:
        """The store behind it, for what only concerns files."""
        return self._store

    def hold(self, identifiers: Iterable[bytes]) -> None:
        """Bring these ids' reminders into the overlay, all with one look-up."""
        wanted = [identifier for identifier in identifiers if identifier not in self._headers]
        if not wanted:
            return
        headers = self._store.headers(wanted)
        self._headers.update(zip(wanted, headers, strict=True))
        known = [
            (identifier, keys.row(header, identifier))
            for identifier, header in zip(wanted, headers, strict=True)
            if header is not None
        ]
        if known:
            values = self._store.rows([key for _, key in known])
            for (identifier, _), value in zip(known, values, strict=True):
                assert value is not None, f"the index knows {identifier!r}, its row is gone"
                self._standing[identifier] = codec.decode(value)

    def get(self, identifier: bytes) -> Reminder | None:
        """A held reminder as this turn has left it."""
        return self._standing.get(identifier)

    def look_up(self, identifier: bytes) -> Reminder | None:
        """A reminder as of the last settled turn, outside any turn."""
        header = self._store.headers([identifier])[0]
        if header is None:
            return None
        value = self._store.rows([keys.row(header, identifier)])[0]
        return None if value is None else codec.decode(value)

    def put(self, identifier: bytes, reminder: Reminder) -> bytes:
        """Change a held reminder in this turn; returns its stored form for the changelog."""
        value = codec.encode(reminder)
        self._standing[identifier] = reminder
        self._changed[identifier] = value
        return value

    def forget(self, identifier: bytes) -> None:
        """Remove a held reminder in this turn."""
        self._standing[identifier] = None
        self._changed[identifier] = None

    def take_due(self, now_ms: int, rows_max: int, claims_max: int) -> list[tuple[bytes, Reminder]]:
        """Take what is due at `now_ms` off the wheel into the overlay, earliest first per lane.

        At most `rows_max` in all, and so many on the claiming lane that no more than
        `claims_max` stay unanswered. Each lane has half of it, and what the other leaves: neither
        can starve the other. What this turn has already changed is left out: its new place counts.
        """
        claiming, free = self._wheels[Lane.CLAIMING], self._wheels[Lane.FREE]
        claims = max(0, claims_max - self.counts.claims)
        half = rows_max // 2
        rows = claiming.take_due(now_ms, min(claims, half))
        taken = len(rows)
        rows += free.take_due(now_ms, rows_max - taken)
        if taken == half:
            rows += claiming.take_due(now_ms, min(claims - taken, rows_max - len(rows)))
        due: list[tuple[bytes, Reminder]] = []
        for key, value in rows:
            identifier = keys.identifier(key)
            if identifier in self._changed:
                continue
            reminder = codec.decode(value)
            self._headers[identifier] = codec.header_of(value)
            self._standing[identifier] = reminder
            due.append((identifier, reminder))
        return due

    def next_ms(self, claims_max: int | None = None) -> int | None:
        """When the next opened entry is due.

        With `claims_max`, entries that could not leave for want of a free claim do not count.
        """
        full = claims_max is not None and self.counts.claims >= claims_max
        times = [
            at
            for wheel in self._wheels
            if not (full and wheel.lane is Lane.CLAIMING) and (at := wheel.next_ms()) is not None
        ]
        return min(times, default=None)

    def oldest_pending_ms(self) -> int | None:
        """When the oldest pending reminder is due, None if nothing is pending.

        Exact on the claiming lane. On the other, which holds more than pending reminders, it is
        the end of the first minute that has any: never earlier than the truth.
        """
        minute = self.counts.first_minute()
        if minute is None:
            return None
        claiming_ms = self._wheels[Lane.CLAIMING].next_ms()
        by_count_ms = (minute + 1) * MINUTE_MS
        return by_count_ms if claiming_ms is None else min(claiming_ms, by_count_ms)

    def holds_back(self, now_ms: int, claims_max: int) -> bool:
        """Whether something that is due has to wait until a due event is answered."""
        first_ms = self._wheels[Lane.CLAIMING].next_ms()
        return first_ms is not None and first_ms <= now_ms and self.counts.claims >= claims_max

    def settle(self, changelog: int, applied: Applied, now_ms: int) -> None:
        """The turn has committed: make its changes true and clear the overlay."""
        self._advance(self._changed, self._headers, changelog, applied, now_ms)
        self._clear()

    def restore(
        self, records: Mapping[bytes, bytes | None], changelog: int, applied: Applied
    ) -> None:
        """Apply changelog records, the last of each id, as `settle` once did. None removes."""
        identifiers = list(records)
        headers = dict(zip(identifiers, self._store.headers(identifiers), strict=True))
        self._advance(records, headers, changelog, applied, None)

    def mark_current(self, now_ms: int) -> None:
        """Note in the store that at `now_ms` nothing of the changelog was missing in it."""
        self.current_ms = now_ms
        self._store.write(Batch(self._encode_position()))

    def abandon(self) -> None:
        """The turn did not commit: nothing of it is true."""
        self._clear()
        for wheel in self._wheels:
            wheel.reopen()

    def _advance(
        self,
        changed: Mapping[bytes, bytes | None],
        headers: Mapping[bytes, bytes | None],
        changelog: int,
        applied: Applied,
        now_ms: int | None,
    ) -> None:
        """Apply changes together with the position they bring the state to.

        Where the store does not take them, memory goes back to what the store holds, so that the
        changelog is read again from there: nothing is taken for applied that is not written.
        """
        self.changelog = changelog
        self.applied = applied
        if now_ms is not None:
            self.current_ms = now_ms
        try:
            self._apply(changed, headers, now_ms)
        except Exception:
            self._load()
            raise

    def _clear(self) -> None:
        self._headers.clear()
        self._standing.clear()
        self._changed.clear()

    def _apply(
        self,
        changed: Mapping[bytes, bytes | None],
        headers: Mapping[bytes, bytes | None],
        now_ms: int | None,
    ) -> None:
        """Write changed reminders to the store, and tell wheel and counts."""
        batch = Batch(b"")
        wheels, counts = self._wheels, self.counts
        for identifier, value in changed.items():
            before = headers[identifier]
            key = b""
            if value is not None:
                header = codec.header_of(value)
                key = keys.row(header, identifier)
                batch.index_puts.append((identifier, header))
                batch.row_puts.append((key, value))
                counts.change(header, +1)
            elif before is not None:
                batch.index_deletes.append(identifier)
            if before is not None:
                counts.change(before, -1)
                old_key = keys.row(before, identifier)
                if old_key != key and not wheels[old_key[0]].remove(old_key):
                    batch.row_deletes.append(old_key)
            if value is not None:
                wheels[key[0]].place(key, value)
        counts.write_to(batch)
        if now_ms is not None:
            for wheel in wheels:
                dropped = wheel.close_past(now_ms)
                if dropped is not None:
                    batch.row_drops.append(dropped)
        batch.position = self._encode_position()
        self._store.write(batch)

    def _encode_position(self) -> bytes:
        return msgspec.msgpack.encode(
            Position(
                POSITION_FORMAT,
                self.changelog,
                self.applied,
                self.counts.claims,
                [wheel.cursor_ms for wheel in self._wheels],
                [wheel.husks_below for wheel in self._wheels],
                self.current_ms,
            )
        )

    def every(self) -> Iterator[Reminder]:
        """All reminders as of the last settled turn, in the wheel's order."""
        for lane in Lane:
            lower, upper = keys.bound(lane, 0), keys.bound(lane + 1, 0)
            while found := self._store.scan(lower, upper, 1_000):
                headers = self._store.headers([keys.identifier(key) for key, _ in found])
                for (key, value), header in zip(found, headers, strict=True):
                    if header is not None and keys.row(header, keys.identifier(key)) == key:
                        yield codec.decode(value)
                lower = found[-1][0] + b"\0"


def _new_position() -> Position:
    return Position(POSITION_FORMAT, 0, Applied(), 0, [0 for _ in Lane], [b"" for _ in Lane])
