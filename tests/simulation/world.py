"""A partition's whole world in memory: its topics, its store, its crashes.

A turn here takes the steps of the processor's turn. Everything random comes from outside, so the
same calls make the same history.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import msgspec

from buckets import decisions
from buckets.decisions import Decision, Emission, Fire
from buckets.memory_store import MemoryStore
from buckets.partition import Applied, Partition
from buckets.rules import Rules
from schemas.commands import Command
from schemas.events import Outcome
from schemas.reminder import Reminder
from tests.reminders import NOW_MS

APPLIED_KEY: Final = b"\x00applied"
RULES: Final = Rules(
    retry_delays_s=(1, 30),
    retry_attempts_max=3,
    lease_ms=90_000,
    dedupe_retention_ms=600_000,
    cancel_memory_ms=300_000,
    claims_max=3,
)


class Crash(Enum):
    """What becomes of a turn, and what the process that goes on has in its hands."""

    NONE = "none"
    ABANDONED = "the commit failed, the process goes on"
    UNKNOWN = "the commit went through, the process took it for failed"
    KILLED_BEFORE_COMMIT = "killed before the commit"
    KILLED_AFTER_COMMIT = "killed between commit and settle"


@dataclass(frozen=True)
class Event:
    """One committed decision: about an input at an offset, or about a due entry (offset None)."""

    now_ms: int
    identifier: bytes
    cause: Command | Outcome | None
    offset: int | None
    standing: Reminder | None
    decision: Decision


@dataclass
class Staged:
    """What one turn wants to commit."""

    commands_next: int
    outcomes_next: int
    events: list[Event] = field(default_factory=list)
    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)


class World:
    """One partition, the topics around it, and a clock that is set by hand."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.now_ms = NOW_MS
        self.commands: list[Command] = []
        self.outcomes: list[Outcome] = []
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self.history: list[Event] = []
        self.group_commands = 0
        """The group's committed offset of the commands."""

        self.target_refuses = False
        self.partition = Partition(MemoryStore())
        self.copies: list[MemoryStore] = [MemoryStore()]
        """The store at earlier instants, as a power cut or a backup leaves it."""

    @property
    def store(self) -> MemoryStore:
        """The partition's store."""
        store = self.partition.store
        assert isinstance(store, MemoryStore)
        return store

    @property
    def emissions(self) -> list[Emission]:
        """Everything that left, in order."""
        return [emission for event in self.history for emission in event.decision.emissions]

    @property
    def fired(self) -> list[Reminder]:
        """The reminders whose due events wait or waited for an answer, in order."""
        return [emission.reminder for emission in self.emissions if isinstance(emission, Fire)]

    # ---- a turn ----

    def turn(self, *, inputs_max: int = 100, rows_max: int = 100, crash: Crash = Crash.NONE) -> int:
        """One turn; returns how many decisions were committed."""
        staged = self._decide(inputs_max, rows_max)
        if crash in {Crash.ABANDONED, Crash.KILLED_BEFORE_COMMIT}:
            self._go_on_after(crash)
            return 0
        if not staged.events:
            return 0
        applied = Applied(staged.commands_next, staged.outcomes_next)
        self.commit(staged, applied)
        if crash is Crash.NONE:
            self.partition.settle(len(self.changelog), applied, self.now_ms)
        else:
            self._go_on_after(crash)
        return len(staged.events)

    def _decide(self, inputs_max: int, rows_max: int) -> Staged:
        applied = self.partition.applied
        staged = Staged(max(applied.commands, self.group_commands), applied.outcomes)
        for command in self.commands[staged.commands_next :][:inputs_max]:
            identifier = command.id.encode()
            self.partition.hold([identifier])
            standing = self.partition.get(identifier)
            decision = decisions.on_command(standing, command, self.now_ms, self.rules)
            self._stage(staged, identifier, command, staged.commands_next, standing, decision)
            staged.commands_next += 1
        for outcome in self.outcomes[staged.outcomes_next :][:inputs_max]:
            identifier = outcome.id.encode()
            self.partition.hold([identifier])
            standing = self.partition.get(identifier)
            decision = decisions.on_outcome(standing, outcome, self.now_ms, self.rules)
            self._stage(staged, identifier, outcome, staged.outcomes_next, standing, decision)
            staged.outcomes_next += 1
        due = self.partition.take_due(self.now_ms, rows_max, self.rules.claims_max)
        for identifier, reminder in due:
            decision = self._decide_due(reminder)
            self._stage(staged, identifier, None, None, reminder, decision)
        return staged

    def _decide_due(self, reminder: Reminder) -> Decision:
        decision = decisions.on_due(reminder, self.now_ms, self.rules)
        to_topic = reminder.asked.destination.startswith("topic:")
        if decision.emissions and to_topic and self.target_refuses:
            return decisions.on_refused_target(reminder, "TOO_LARGE", self.now_ms, self.rules)
        return decision

    def _stage(
        self,
        staged: Staged,
        identifier: bytes,
        cause: Command | Outcome | None,
        offset: int | None,
        standing: Reminder | None,
        decision: Decision,
    ) -> None:
        if decision.forget:
            self.partition.forget(identifier)
            staged.records.append((identifier, None))
        elif decision.reminder is not None:
            staged.records.append((identifier, self.partition.put(identifier, decision.reminder)))
        staged.events.append(Event(self.now_ms, identifier, cause, offset, standing, decision))

    def commit(self, staged: Staged, applied: Applied) -> None:
        """The transaction: everything it holds is true from here on."""
        self.changelog += staged.records
        self.changelog.append((APPLIED_KEY, msgspec.msgpack.encode(applied)))
        self.history += staged.events
        self.group_commands = staged.commands_next

    # ---- crashes ----

    def _go_on_after(self, crash: Crash) -> None:
        if crash in {Crash.ABANDONED, Crash.UNKNOWN}:
            self.partition.abandon()
            self.catch_up()
        else:
            self.restart(self.store)

    def keep_copy(self) -> None:
        """Remember the store as it is, as a flush or a backup does."""
        self.copies.append(copy.deepcopy(self.store))

    def restart(self, store: MemoryStore, chunk: int = 5) -> None:
        """A new process over a store, which reads what the store lacks from the changelog."""
        self.partition = Partition(store)
        self.catch_up(chunk)

    def restart_from_copy(self, number: int, chunk: int = 5) -> None:
        """A new process over an older copy of the store."""
        self.restart(copy.deepcopy(self.copies[number % len(self.copies)]), chunk)

    def lose_everything(self, chunk: int = 5, *, compacted: bool = False) -> None:
        """A new process over an empty disk."""
        self.partition = Partition(MemoryStore())
        self.catch_up(chunk, compacted=compacted)

    def catch_up(self, chunk: int = 5, *, compacted: bool = False) -> None:
        """Apply the changelog from where the store ends, some records at a time."""
        start = self.partition.changelog
        last = {key: offset for offset, (key, _) in enumerate(self.changelog)}
        offsets: Iterable[int] = range(start, len(self.changelog))
        kept = [
            offset
            for offset in offsets
            if not compacted or last[self.changelog[offset][0]] == offset
        ]
        for first in range(0, len(kept), chunk):
            part = kept[first : first + chunk]
            applied = self.partition.applied
            records: dict[bytes, bytes | None] = {}
            for key, value in (self.changelog[offset] for offset in part):
                if key == APPLIED_KEY:
                    assert value is not None
                    applied = msgspec.msgpack.decode(value, type=Applied)
                else:
                    records[key] = value
            self.partition.restore(records, part[-1] + 1, applied)
