"""How much is owed in each minute, by tenant: kept with every change, never counted anew.

An hour of a tenant is one block of 60 counts, so a turn that spreads thousands of reminders over
a day writes some two dozen small values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from buckets import keys
from buckets.store import Batch, Pair
from schemas.instants import MINUTE_MS
from schemas.reminder import HEADER_BYTES_MIN, State

_BLOCK: Final = Struct(">60I")
_PENDING: Final = int(State.PENDING)
_CLAIMED: Final = int(State.CLAIMED)


class Counts:
    """Pending reminders per (hour, tenant) and minute, and claims in all."""

    def __init__(self, stored: Iterable[Pair] = (), claims: int = 0) -> None:
        self.claims = claims
        self.pending = 0
        self._blocks: dict[tuple[int, bytes], list[int]] = {}
        self._touched: set[tuple[int, bytes]] = set()
        for key, value in stored:
            block = list(_BLOCK.unpack(value))
            self._blocks[keys.count_parts(key)] = block
            self.pending += sum(block)

    def change(self, header: bytes, by: int) -> None:
        """A reminder with this header came (+1) or went (-1)."""
        state = header[1]
        if state == _PENDING:
            hour, minute = divmod(int.from_bytes(header[4:12], "big") // MINUTE_MS, 60)
            place = (hour, header[HEADER_BYTES_MIN:])
            block = self._blocks.get(place)
            if block is None:
                block = self._blocks[place] = [0] * 60
            block[minute] += by
            self.pending += by
            self._touched.add(place)
        elif state == _CLAIMED:
            self.claims += by

    def write_to(self, batch: Batch) -> None:
        """Add the blocks changed since the last call to a batch; empty ones are removed."""
        for place in self._touched:
            block = self._blocks[place]
            key = keys.count(*place)
            if any(block):
                batch.count_puts.append((key, _BLOCK.pack(*block)))
            else:
                batch.count_deletes.append(key)
                del self._blocks[place]
        self._touched.clear()

    def minutes(self, before_minute: int) -> Iterator[tuple[int, str, int]]:
        """(minute since 1970, tenant, count) that are not 0, of hours begun before a minute."""
        for (hour, tenant), block in self._blocks.items():
            if hour * 60 >= before_minute:
                continue
            for minute, count in enumerate(block):
                if count:
                    yield hour * 60 + minute, tenant.decode(), count

    def hours(self) -> Iterator[tuple[int, str, int]]:
        """Every (hour since 1970, tenant, count) that is not 0, in no order."""
        for (hour, tenant), block in self._blocks.items():
            yield hour, tenant.decode(), sum(block)

    def before_minute(self, minute: int) -> int:
        """How many are due before a minute since 1970 begins."""
        hour, rest = divmod(minute, 60)
        return sum(
            sum(block) if at < hour else sum(block[:rest])
            for (at, _), block in self._blocks.items()
            if at <= hour
        )

    def first_minute(self) -> int | None:
        """The earliest minute since 1970 in which something is due."""
        first = min((at for at, _ in self._blocks), default=None)
        if first is None:
            return None
        blocks = [block for (at, _), block in self._blocks.items() if at == first]
        return first * 60 + min(
            minute for block in blocks for minute, count in enumerate(block) if count
        )
