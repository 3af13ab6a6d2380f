"""A partition this process owns, from its assignment until it is given up."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from buckets.partition import Partition


class Phase(Enum):
    """How far an owned partition has come."""

    OPENING = "opening"
    LOCATING = "locating"
    RESTORING = "restoring"
    RESTORED = "restored"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the broker says about one partition's logs when it is taken over.

    `committed` is the group's offset of the commands (None: never committed). Reading it waits
    for the previous owner's open transaction, so the ends read after it are final.
    """

    committed: int | None
    commands_low: int
    outcomes_low: int
    state_low: int
    state_high: int


@dataclass(slots=True, eq=False)
class Owned:
    """One partition and where its inputs are read. Offsets are the next to read."""

    number: int
    phase: Phase = Phase.OPENING
    since_s: float = 0.0
    partition_or_none: Partition | None = None
    bounds_asked: Future[Bounds] | None = None
    waits_for: str = ""
    restore_to: int = 0
    commands_next: int = 0
    outcomes_next: int = 0

    @property
    def partition(self) -> Partition:
        """Its state; only once it is open."""
        assert self.partition_or_none is not None, "a partition has no state until it is open"
        return self.partition_or_none

    @property
    def active(self) -> bool:
        """Whether turns may touch it."""
        return self.phase is Phase.ACTIVE
