"""The wheel: which reminders are due now, at a cost that depends on what is due.

The problem: among millions of pending reminders, find those whose time has come, in order of
time, many times a second, after a crash as well, without holding them all in memory and without
walking over those long gone.

The store keeps rows sorted by (lane, at_ms, id), so the minute M is a range of keys. The wheel
turns over these ranges with three marks on each lane, cursor ≤ heap ≤ open_to:

    time ──────────┬───────────────────────────┬──────────────────────────────▶
      closed:      │ open:                     │ unopened:
      dropped as   │ rows live in the heap;    │ rows live in the store
      a range      │ fired ones stay as husks  │ only
                 cursor                     open_to

- `cursor_ms`: the first minute that is not closed. No live row lies before it.
- `open_to`: a key. Every live row below it is in the heap, and no live row at or above it is.
- A bucket opens AHEAD_MS before its minute begins (or in pieces, at most `rows_max` rows at a
  time), so the first millisecond of a minute finds its rows in memory.
- A row that fires or moves while open leaves the heap, but its bytes stay in the store: a husk.
  No delete is written for it. When all of the minute is in the past and none of it is in the heap,
  the range from the cursor to there is dropped by one range delete.
- A row that moves before it was opened is deleted by its key: no husk, so nothing to check later.
- Husks matter only to whoever opens the same range again: after a restart, or after a turn that
  failed. `husks_below` remembers how far the range was ever opened; rows below it are compared
  with the index on loading. Rows above it never are.

A worked table, lane 0, minute 10:00 with a (10:00:01), b (10:00:02), and c (10:01:30):

    clock     event               heap       open_to  cursor  store rows        husks
    09:59:54  -                   -          10:00    09:59   a b c             -
    09:59:55  10:00 opens         a b        10:01    09:59   a b c             -
    10:00:01  a fires             b          10:01    10:00*  a b c             a
    10:00:02  b moves to          -          10:01    10:00   a b b' c          a b
              10:01:10: b'
    10:00:55  10:01 opens         b' c       10:02    10:00   a b b' c          a b
    10:01:10  b' fires            c          10:02    10:01   b' c              b'
              (10:00 is dropped: its minute is past and the heap starts later)

    * closing rides on a turn that writes anyway; 09:59 had nothing in it.

When the wall clock steps back and something is placed before the cursor, the cursor goes back to
its minute: the mark is a promise about what lies before it, not a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from buckets import keys
from buckets.store import Pair
from schemas.instants import MINUTE_MS
from schemas.reminder import PLACE, Lane

AHEAD_MS: Final = 5_000
OPEN_ROWS_MAX: Final = 20_000
OPEN_BYTES_MAX: Final = 32 << 20
OVERFULL: Final = 3
SCAN_ROWS: Final = 5_000
SCAN_BYTES: Final = 4 << 20
SCAN_ROWS_FIRST: Final = 64
TAKE_BYTES_MAX: Final = 16 << 20
"""Rows of a legal size may be 300 times as large as usual ones, so all is bounded in bytes too."""

Scan = Callable[[bytes, bytes, int], list[Pair]]
Headers = Callable[[list[bytes]], list[bytes | None]]


class Wheel:
    """One lane of a partition's wheel."""

    def __init__(
        self,
        lane: Lane,
        scan: Scan,
        headers: Headers,
        *,
        cursor_ms: int = 0,
        husks_below: bytes = b"",
        rows_max: int = OPEN_ROWS_MAX,
        bytes_max: int = OPEN_BYTES_MAX,
    ) -> None:
        """`cursor_ms` and `husks_below` as a previous wheel of this store left them."""
        self.lane = lane
        self.cursor_ms = cursor_ms
        self._cursor_key = keys.bound(lane, cursor_ms)
        self.open_to = self._cursor_key
        self.husks_below = max(husks_below, self.open_to)
        self._scan = scan
        self._headers = headers
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._scan_rows = min(SCAN_ROWS_FIRST, SCAN_ROWS)
        self._heap: list[bytes] = []
        self._rows: dict[bytes, bytes] = {}
        self._bytes = 0

    def next_ms(self) -> int | None:
        """When the earliest live row is due; None if no opened minute holds one."""
        first = self._first()
        return None if first is None else keys.at_ms(first)

    def take_due(self, now_ms: int, rows_max: int) -> list[Pair]:
        """Take up to `rows_max` rows due at `now_ms` out of the heap, earliest first.

        Fewer where they are so large that they would come to more than TAKE_BYTES_MAX.
        """
        end = keys.bound(self.lane, now_ms + 1)
        taken: list[Pair] = []
        taken_bytes = 0
        while len(taken) < rows_max and taken_bytes < TAKE_BYTES_MAX:
            first = self._first()
            if first is not None and first < end:
                heappop(self._heap)
                value = self._rows.pop(first)
                taken.append((first, value))
                taken_bytes += len(value)
            elif not self.open(now_ms) or (self.open_to > end and not self._is_due(end)):
                break
        self._bytes -= taken_bytes
        return taken

    def _is_due(self, end: bytes) -> bool:
        first = self._first()
        return first is not None and first < end

    def _first(self) -> bytes | None:
        """The heap's first live key; keys whose row has gone are dropped on the way."""
        heap, rows = self._heap, self._rows
        while heap and heap[0] not in rows:
            heappop(heap)
        return heap[0] if heap else None

    def open(self, now_ms: int) -> bool:
        """Open more of the minutes up to AHEAD_MS from now, a piece at a time.

        Returns whether there was anything left to open and room for it.
        """
        horizon_ms = keys.minute_start_ms(now_ms + AHEAD_MS) + MINUTE_MS
        limit = keys.bound(self.lane, horizon_ms)
        full = len(self._rows) >= self._rows_max or self._bytes >= self._bytes_max
        if self.open_to >= limit or full:
            return False
        found = self._scan(self.open_to, limit, self._scan_rows)
        start = self.open_to
        self.open_to = found[-1][0] + b"\0" if len(found) == self._scan_rows else limit
        self._size_next_scan(found)
        live = found if start >= self.husks_below else self._without_husks(found)
        self.husks_below = max(self.husks_below, self.open_to)
        self._rows.update(live)
        self._bytes += sum(len(value) for _, value in live)
        # Opened rows lie behind everything opened before, so appending them in order keeps the
        # heap a heap unless a later key was placed meanwhile.
        self._heap.extend(key for key, _ in live)
        heapify(self._heap)
        return True

    def _size_next_scan(self, found: list[Pair]) -> None:
        """As many rows as come to about SCAN_BYTES, if they are like the last ones."""
        if found:
            mean_bytes = sum(len(value) for _, value in found) // len(found) + 1
            self._scan_rows = min(SCAN_ROWS, max(1, SCAN_BYTES // mean_bytes))

    def _without_husks(self, found: list[Pair]) -> list[Pair]:
        headers = self._headers([keys.identifier(key) for key, _ in found])
        return [
            (key, value)
            for (key, value), header in zip(found, headers, strict=True)
            if header is not None and header[PLACE] == key[: keys.PLACE_BYTES]
        ]

    def place(self, key: bytes, value: bytes) -> None:
        """A row was written at `key`."""
        if key < self._cursor_key:
            self._move_cursor(keys.minute_start_ms(keys.at_ms(key)))
        if key < self.open_to:
            self._bytes += len(value) - len(self._rows.get(key, b""))
            self._rows[key] = value
            heappush(self._heap, key)
            too_many = len(self._rows) > OVERFULL * self._rows_max
            if too_many or (self._bytes > OVERFULL * self._bytes_max and len(self._rows) > 1):
                self._shut_latest()

    def _shut_latest(self) -> None:
        """Too much was placed in opened minutes: leave the latest of it to the store."""
        live = sorted(self._rows)
        kept = kept_bytes = 0
        # One is always kept and one always left, or nothing would come of it.
        while kept < min(self._rows_max, len(live) - 1) and (
            kept == 0 or kept_bytes < self._bytes_max
        ):
            kept_bytes += len(self._rows[live[kept]])
            kept += 1
        self._heap = live[:kept]
        self.open_to = live[kept]
        for key in live[kept:]:
            del self._rows[key]
        self._bytes = kept_bytes

    def remove(self, key: bytes) -> bool:
        """A row is no longer live. Returns whether it becomes a husk, so needs no delete."""
        self._bytes -= len(self._rows.pop(key, b""))
        return key < self.husks_below

    def close_past(self, now_ms: int) -> Pair | None:
        """Close minutes that are over and empty; returns the range of rows to drop, if any."""
        first = self._first()
        live_from = self.open_to if first is None else first
        closed_to_ms = keys.minute_start_ms(min(now_ms, keys.at_ms(live_from)))
        if closed_to_ms <= self.cursor_ms:
            return None
        lower = self._cursor_key
        self._move_cursor(closed_to_ms)
        return lower, self._cursor_key

    def _move_cursor(self, to_ms: int) -> None:
        self.cursor_ms = to_ms
        self._cursor_key = keys.bound(self.lane, to_ms)

    def reopen(self) -> None:
        """Forget what is in memory: a turn failed, and rows were taken that did not fire."""
        self._heap.clear()
        self._rows.clear()
        self._bytes = 0
        self.open_to = self._cursor_key
