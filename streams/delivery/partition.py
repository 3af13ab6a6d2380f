"""What is under way in one partition of the due topic. Makes no call and writes no record."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from schemas.errors import Refused
from schemas.events import Outcome, Revocation, Status
from streams.delivery import intake
from streams.delivery.channels import NO_CHANNEL, Channel, Channels, Result
from streams.delivery.intake import Job
from streams.delivery.ledger import Entry, Ledger
from streams.delivery.offsets import ContiguousOffsets
from streams.metrics import DUPLICATES

DETAIL_CHARACTERS_MAX: Final = 1_024
Headers = list[tuple[str, str | bytes | None]]


class Phase(Enum):
    """How far a partition has got since it was assigned."""

    LOCATING = "waiting until the offset of its previous owner is settled"
    RESTORING = "reading its outcomes"
    OPEN = "delivering"


@dataclass(frozen=True, slots=True)
class Due:
    """A record of the due topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """An outcome to be written, and what metrics call its channel."""

    outcome: Outcome
    channel: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record to be copied to `rejected`, and why."""

    due: Due
    why: Refused


@dataclass(slots=True)
class Batch:
    """What one transaction records for one partition. Everything finished, never a part of it."""

    partition: int
    next_offset: int
    outcomes: list[Recorded]
    refusals: list[Refusal]


@dataclass(slots=True)
class Partition:
    """One owned partition. `ledger` is there once the phase is no longer LOCATING."""

    number: int
    phase: Phase = Phase.LOCATING
    ledger: Ledger | None = None
    start_offset: int | None = None
    """From where its due events are to be read, until the consumer has been told."""

    target_offset: int = 0
    """Up to where its outcomes must be read before it may open."""

    first_offset: int = 0
    """The first of its outcomes that the topic still holds."""

    offsets: ContiguousOffsets = field(default_factory=ContiguousOffsets)
    running: dict[str, Job] = field(default_factory=dict)
    _waiting: deque[Job] = field(default_factory=deque)
    _held: dict[str, deque[Job]] = field(default_factory=dict)
    """Jobs whose fire_id is under way: two attempts of one never run at once."""

    _outcomes: list[Recorded] = field(default_factory=list)
    _refusals: list[Refusal] = field(default_factory=list)
    _overlay: dict[str, Entry] = field(default_factory=dict)
    """Own outcomes until they come back from the topic."""

    @property
    def backlog(self) -> int:
        """Due events that were read and are not recorded yet."""
        held = sum(map(len, self._held.values()))
        return len(self._waiting) + held + len(self.running) + self.finished

    @property
    def finished(self) -> int:
        """What the next transaction will write."""
        return len(self._outcomes) + len(self._refusals)

    def receive(self, due: Due) -> None:
        """Take in a record. What needs no call is finished at once."""
        if not self.offsets.read(due.offset):
            return
        try:
            said = intake.read(due.value, due.headers, self.number, due.offset)
        except Refused as error:
            self._refusals.append(Refusal(due, error))
            self.offsets.finish(due.offset)
            return
        if isinstance(said, Job) and not self._covered(said):
            self._waiting.append(said)
            return
        if isinstance(said, Revocation):
            self._revoke(said.revoke)
        elif isinstance(said, Job):
            DUPLICATES.labels("delivery").inc()
        self.offsets.finish(due.offset)

    def next_call(self, channels: Channels, now_ms: int) -> tuple[Job, Channel] | None:
        """The next call to make, now counted as running. Finishes what needs none on the way."""
        while self._waiting:
            job = self._waiting.popleft()
            fire_id = job.event.fire_id
            if fire_id in self.running:
                self._held.setdefault(fire_id, deque()).append(job)
            elif self._covered(job):
                DUPLICATES.labels("delivery").inc()
                self.offsets.finish(job.offset)
            elif (result := _without_call(job, now_ms)) is not None:
                self._record(job, result, _label(channels, job), now_ms)
            elif isinstance(channel := channels.of(job.event.destination), Result):
                self._record(job, channel, NO_CHANNEL, now_ms)
            else:
                self.running[fire_id] = job
                return job, channel
        return None

    def finish(self, job: Job, result: Result, channel: str, now_ms: int) -> None:
        """Take in what a call came to."""
        fire_id = job.event.fire_id
        del self.running[fire_id]
        self._record(job, result, channel, now_ms)
        # What waited for it goes first; whether it still has to be done is looked at again.
        self._waiting.extendleft(reversed(self._held.pop(fire_id, deque())))

    def batch(self) -> Batch | None:
        """What there is to record, or None. Nothing is taken out before `recorded` says so."""
        if not self.finished and not self.offsets.moved:
            return None
        return Batch(
            self.number, self.offsets.next_unfinished, list(self._outcomes), list(self._refusals)
        )

    def recorded(self, batch: Batch) -> None:
        """Note that the transaction holding `batch` was committed."""
        del self._outcomes[: len(batch.outcomes)]
        del self._refusals[: len(batch.refusals)]
        self.offsets.committed(batch.next_offset)

    def came_back(self, outcomes: list[tuple[int, Outcome]], next_offset: int) -> None:
        """Fold what was read from the outcomes topic."""
        assert self.ledger is not None, "outcomes are read for an open ledger only"
        self.ledger.fold(outcomes, next_offset)
        for _, outcome in outcomes:
            own = self._overlay.get(outcome.fire_id)
            if own is not None and outcome.attempt >= own.attempt:
                del self._overlay[outcome.fire_id]

    def reconcile(self) -> None:
        """After a transaction of unknown fate and a fresh ledger: drop what turned out recorded."""
        unrecorded = []
        for finished in self._outcomes:
            known = self._known_by_ledger(finished.outcome.fire_id)
            if known is None or not known.covers(finished.outcome.attempt):
                unrecorded.append(finished)
        self._outcomes = unrecorded

    def drop_waiting(self) -> None:
        """Start nothing more. The offset stays before what was not started."""
        self._waiting.clear()
        self._held.clear()

    def close(self) -> None:
        """Give the ledger back."""
        if self.ledger is not None:
            self.ledger.close()
            self.ledger = None

    def _covered(self, job: Job) -> bool:
        fire_id = job.event.fire_id
        known = (self._overlay.get(fire_id), self._known_by_ledger(fire_id))
        return any(entry is not None and entry.covers(job.event.attempt) for entry in known)

    def _known_by_ledger(self, fire_id: str) -> Entry | None:
        assert self.ledger is not None, "only an open partition is given work"
        return self.ledger.get(fire_id)

    def _revoke(self, fire_id: str) -> None:
        for job in (*self._waiting, *self._held.get(fire_id, ())):
            if job.event.fire_id == fire_id:
                job.revoked = True

    def _record(self, job: Job, result: Result, channel: str, now_ms: int) -> None:
        event = job.event
        detail = result.detail
        outcome = Outcome(
            fire_id=event.fire_id,
            id=event.id,
            attempt=event.attempt,
            status=result.status,
            at=now_ms,
            detail=None if detail is None else detail[:DETAIL_CHARACTERS_MAX],
            provider_ref=result.provider_ref,
            retry_after_s=result.retry_after_s,
        )
        self._outcomes.append(Recorded(outcome, channel))
        self._overlay[event.fire_id] = Entry(event.attempt, result.status)
        self.offsets.finish(job.offset)


def _without_call(job: Job, now_ms: int) -> Result | None:
    """The result of a due event that must not be sent any more."""
    if job.revoked:
        return Result(Status.CANCELLED)
    if job.not_after_ms is not None and now_ms > job.not_after_ms:
        return Result(Status.STALE)
    return None


def _label(channels: Channels, job: Job) -> str:
    channel = channels.of(job.event.destination)
    return NO_CHANNEL if isinstance(channel, Result) else channel.name
