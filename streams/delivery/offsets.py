"""Contiguous offsets: work finishes in any order, the committed offset never passes unfinished."""

from __future__ import annotations

from collections import deque


class ContiguousOffsets:
    """The offsets of one partition that were read, and up to where all of them are finished.

    reads 5 6 8 9      finished 6, 8     next_unfinished 5
                       finished 5        next_unfinished 9   (7 was a transaction's marker)
                       finished 9        next_unfinished 10  (one past the last one read)
    """

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._finished: set[int] = set()
        self._read_last = -1
        self._committed = -1

    def __len__(self) -> int:
        """How many offsets are remembered: those from the first unfinished one on."""
        return len(self._open)

    def read(self, offset: int) -> bool:
        """Note a record that was read; false if it, or a later one, was read before."""
        if offset <= self._read_last:
            return False
        if self._committed < 0:
            self._committed = offset
        self._read_last = offset
        self._open.append(offset)
        return True

    def finish(self, offset: int) -> None:
        """Note that nothing is left to do for the record at `offset`, which was read."""
        self._finished.add(offset)
        while self._open and self._open[0] in self._finished:
            self._finished.remove(self._open.popleft())

    @property
    def next_unfinished(self) -> int:
        """The offset to commit. Only meaningful once something was read."""
        return self._open[0] if self._open else self._read_last + 1

    @property
    def moved(self) -> bool:
        """Whether the offset to commit lies past the one last committed."""
        return self._committed >= 0 and self.next_unfinished > self._committed

    def committed(self, offset: int) -> None:
        """Note that the group's offset is now `offset`."""
        self._committed = offset
