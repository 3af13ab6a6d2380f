"""Is one of the zeros broken? Told from what was committed and from what is stored."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

import msgspec

from buckets import keys
from buckets.decisions import Fire
from buckets.partition import Partition, Position
from schemas import reminder as codec
from schemas.commands import Cancel, Reschedule, Schedule, Trigger
from schemas.events import Outcome, ReplyStatus, Status, fire_id, fire_id_of
from schemas.instants import MINUTE_MS
from schemas.reminder import Reminder, State
from tests.simulation.world import APPLIED_KEY, Event, World

MINUTES_AFTER: Final = 60


class Violation(Exception):
    """One of the zeros is not 0."""

    def __init__(self, zero: str, what: str) -> None:
        super().__init__(f"{zero}: {what}")
        self.zero = zero


@dataclass(frozen=True)
class Owed:
    """What was promised last under an id."""

    version: int
    due_ms: int
    not_after_ms: int | None


class Checker:
    """Follows a world's history, event by event, with a model of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen = 0
        self.owed: dict[bytes, Owed] = {}
        self.due_from_ms: dict[str, int] = {}
        """fire_id → the instant before which its next attempt is early."""

        self.failures: Counter[str] = Counter()
        self.attempts: dict[str, set[int]] = defaultdict(set)
        self.answers: dict[str, list[Status]] = defaultdict(list)
        self.decided = {"commands": 0, "outcomes": 0}

    def check(self) -> None:
        """Everything that has happened since the last call, and the store as it is now."""
        for event in self.world.history[self.seen :]:
            self.seen += 1
            self._count_input(event)
            if isinstance(event.cause, Outcome):
                self._answered(event, event.cause)
            elif event.cause is not None:
                self._commanded(event)
            else:
                self._due(event)
        self._check_offsets()
        check_store(self.world)

    # ---- history ----

    def _count_input(self, event: Event) -> None:
        if event.cause is None:
            return
        topic = "outcomes" if isinstance(event.cause, Outcome) else "commands"
        if event.offset != self.decided[topic]:
            raise Violation(
                "jump", f"{topic}: {event.offset} decided, {self.decided[topic]} was next"
            )
        self.decided[topic] += 1

    def _check_offsets(self) -> None:
        applied = self.world.partition.applied
        found = (self.world.group_commands, applied.commands, applied.outcomes)
        decided = (self.decided["commands"], self.decided["commands"], self.decided["outcomes"])
        if found != decided:
            raise Violation("jump", f"offsets {found}, decided {decided}")

    def _commanded(self, event: Event) -> None:
        command, status, made = event.cause, event.decision.status, event.decision.reminder
        if isinstance(command, Schedule) and status in {
            ReplyStatus.ACCEPTED,
            ReplyStatus.REPLACED,
        }:
            assert isinstance(command.due_at, int)
            not_after = command.not_after
            assert not_after is None or isinstance(not_after, int)
            self._owe(event, Owed(command.version, command.due_at, not_after))
        elif isinstance(command, Reschedule) and status is ReplyStatus.RESCHEDULED:
            assert isinstance(command.due_at, int)
            assert made is not None
            before = self._owed(event)
            self._owe(event, Owed(made.asked.version, command.due_at, before.not_after_ms))
        elif isinstance(command, Cancel) and status in {
            ReplyStatus.CANCELLED,
            ReplyStatus.CANCEL_REQUESTED,
        }:
            self.owed.pop(event.identifier, None)
        elif isinstance(command, Trigger) and status is ReplyStatus.ACCEPTED:
            self.due_from_ms[self._fire_id(event)] = event.now_ms

    def _owed(self, event: Event) -> Owed:
        owed = self.owed.get(event.identifier)
        if owed is None:
            raise Violation("ghost", f"{event.cause} was obeyed, and nothing is owed")
        return owed

    def _fire_id(self, event: Event) -> str:
        return fire_id(event.identifier.decode(), "", self._owed(event).due_ms)

    def _owe(self, event: Event, owed: Owed) -> None:
        self.owed[event.identifier] = owed
        name = self._fire_id(event)
        if not self.attempts[name]:
            self.due_from_ms[name] = owed.due_ms
            self.failures[name] = 0

    def _answered(self, event: Event, outcome: Outcome) -> None:
        if event.decision.reminder is None:
            return
        name = outcome.fire_id
        if outcome.attempt not in self.attempts[name]:
            raise Violation("ghost", f"{outcome} was obeyed, and nothing left for it")
        if outcome.status is Status.FAILED:
            self._failed(event, name)
            return
        told = self.answers[name]
        receipt = told == [Status.ACCEPTED] and outcome.status in {
            Status.DELIVERED,
            Status.BOUNCED,
        }
        if told and not receipt:
            raise Violation("double", f"{name} was answered {told}, then {outcome.status}")
        told.append(outcome.status)
        if event.identifier in self.owed and self._fire_id(event) == name:
            del self.owed[event.identifier]

    def _failed(self, event: Event, name: str) -> None:
        self.failures[name] += 1
        number, rules = self.failures[name], self.world.rules
        if number >= rules.retry_attempts_max:
            self.owed.pop(event.identifier, None)
            return
        delays_s = rules.retry_delays_s
        self.due_from_ms[name] = event.now_ms + delays_s[min(number, len(delays_s)) - 1] * 1_000

    def _due(self, event: Event) -> None:
        owed = self.owed.get(event.identifier)
        made = event.decision.reminder
        if event.decision.forget:
            if owed is not None:
                raise Violation("lost", f"{event.identifier!r} was forgotten, and is owed")
            self._forget(event)
            return
        assert made is not None
        for emission in event.decision.emissions:
            if isinstance(emission, Fire):
                self._fired(event, emission.reminder, owed)
                return
        if made.state is State.STALE:
            if owed is None or owed.not_after_ms is None or event.now_ms <= owed.not_after_ms:
                raise Violation("lost", f"{event.identifier!r} is stale before its not_after")
            del self.owed[event.identifier]
        elif made.state in {State.PENDING, State.DEAD}:
            # A target topic refused it.
            self._failed(event, fire_id_of(made))

    def _fired(self, event: Event, made: Reminder, owed: Owed | None) -> None:
        name = fire_id_of(made)
        if owed is None:
            raise Violation("ghost", f"{event.identifier!r} fired, and nobody wants it")
        if (made.asked.version, made.asked.due_at_ms) != (owed.version, owed.due_ms):
            raise Violation("ghost", f"{made.asked} fired, {owed} is wanted")
        if made.attempt in self.attempts[name] or self.answers[name]:
            raise Violation("double", f"{name} attempt {made.attempt}: {self.answers[name]}")
        if event.now_ms < self.due_from_ms[name]:
            raise Violation("early", f"{name} at {event.now_ms}, due from {self.due_from_ms[name]}")
        self.attempts[name].add(made.attempt)
        self.due_from_ms[name] = event.now_ms + self.world.rules.lease_ms
        if made.asked.destination.startswith("topic:"):
            self.answers[name].append(Status.DELIVERED)
            del self.owed[event.identifier]

    def _forget(self, event: Event) -> None:
        """Past the retention, an id is as good as new."""
        names = [name for name in self.attempts if self._belongs(name, event)]
        for name in names:
            del self.attempts[name]
            self.answers.pop(name, None)

    def _belongs(self, name: str, event: Event) -> bool:
        standing = event.standing
        assert standing is not None
        instants = (*standing.fired_instants_ms, standing.asked.due_at_ms)
        return any(name == fire_id(standing.id, "", instant) for instant in instants)

    # ---- the end ----

    def drain(self) -> None:
        """Let all time pass and answer everything: what was promised has to come out."""
        world = self.world
        world.target_refuses = False
        answered = 0
        while world.turn():
            self.check()
        # A history may have set the clock far back: time passes from the latest instant it knows.
        waiting = [event.decision.reminder for event in world.history if event.decision.reminder]
        world.now_ms = max([world.now_ms, *(reminder.changed_at_ms for reminder in waiting)])
        world.now_ms = max([world.now_ms, *(owed.due_ms for owed in self.owed.values())])
        for _ in range(MINUTES_AFTER):
            world.now_ms += MINUTE_MS
            for _ in range(200):
                fired = world.fired
                world.outcomes += [
                    Outcome(fire_id_of(reminder), reminder.id, reminder.attempt, Status.DELIVERED)
                    for reminder in fired[answered:]
                ]
                answered = len(fired)
                if not world.turn():
                    break
            else:
                raise Violation("stall", "turn after turn decides something, and none is the last")
            self.check()
            counts = world.partition.counts
            if not self.owed and not counts.pending and not counts.claims:
                break
        for identifier in self.owed:
            stored = world.partition.look_up(identifier)
            if stored is None or stored.state is not State.PENDING:
                raise Violation("lost", f"{identifier!r} is owed, and stored as {stored}")
        if world.partition.counts.pending or world.partition.counts.claims:
            raise Violation("stall", "all time has passed, and something is still pending")


def check_store(world: World) -> None:
    """The store is the fold of the changelog, and all its parts say the same."""
    partition, store = world.partition, world.store
    folded: dict[bytes, bytes] = {}
    for key, value in world.changelog:
        if value is None:
            folded.pop(key, None)
        elif key != APPLIED_KEY:
            folded[key] = value
    index = store._index
    if set(index) != set(folded):
        raise Violation("hole", f"{set(index) ^ set(folded)} differ between store and changelog")
    live: dict[bytes, bytes] = {}
    for identifier, header in index.items():
        key = keys.row(header, identifier)
        stored = store._rows.get(key)
        if stored is None:
            raise Violation("skew", f"the index knows {identifier!r}, and there is no row")
        if stored != folded[identifier] or header != codec.header_of(stored):
            raise Violation("hole", f"{identifier!r} is not what the changelog says")
        live[key] = stored
    _check_wheels(partition, set(store._rows), set(live))
    _check_counts(partition, list(live.values()))
    _check_position(world)


def _check_wheels(partition: Partition, rows: set[bytes], live: set[bytes]) -> None:
    for wheel in partition._wheels:
        mine = {key for key in rows if key[0] == wheel.lane}
        cursor = keys.bound(wheel.lane, wheel.cursor_ms)
        behind = {key for key in mine if key < cursor}
        if behind & live:
            raise Violation("lost", f"{behind & live} lie behind the cursor")
        if behind:
            raise Violation("skew", f"{behind} were left when their minute was closed")
        unknown = {key for key in mine - live if key >= wheel.husks_below}
        if unknown:
            raise Violation("skew", f"{unknown} are neither live nor known as husks")
        opened = {key for key in mine & live if key < wheel.open_to}
        if opened != set(wheel._rows):
            raise Violation("skew", f"{opened ^ set(wheel._rows)} are only in heap or store")
        if not opened <= set(wheel._heap):
            raise Violation("lost", "an opened row is not in the heap")


def _check_counts(partition: Partition, values: list[bytes]) -> None:
    reminders = [codec.decode(value) for value in values]
    claims = sum(reminder.state is State.CLAIMED for reminder in reminders)
    if partition.counts.claims != claims:
        raise Violation("skew", f"{partition.counts.claims} claims counted, {claims} there")
    counted = Counter(
        (reminder.at_ms // MINUTE_MS, reminder.asked.tenant)
        for reminder in reminders
        if reminder.state is State.PENDING
    )
    found = {(minute, tenant): count for minute, tenant, count in partition.counts.minutes(2**40)}
    if found != counted or partition.counts.pending != counted.total():
        raise Violation("skew", f"counts {found}, recounted {dict(counted)}")
    stored = Partition(partition.store).counts
    if sorted(stored.minutes(2**40)) != sorted(partition.counts.minutes(2**40)):
        raise Violation("skew", "the stored counts are not those in memory")


def _check_position(world: World) -> None:
    stored = world.store.position()
    if stored is None:
        return
    position = msgspec.msgpack.decode(stored, type=Position)
    partition = world.partition
    if not position.changelog == partition.changelog == len(world.changelog):
        raise Violation(
            "hole", f"the store is at {position.changelog} of {len(world.changelog)} records"
        )
    if position.claims != partition.counts.claims:
        raise Violation("skew", "the stored claims are not those in memory")


def contents(partition: Partition) -> tuple[object, ...]:
    """All that two partitions with the same past must agree on."""
    return (
        {reminder.id: reminder for reminder in partition.every()},
        sorted(partition.counts.minutes(2**40)),
        sorted(partition.counts.hours()),
        partition.counts.pending,
        partition.counts.claims,
        partition.applied,
        partition.changelog,
    )
