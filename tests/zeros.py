"""The eight zeros, read from the topics and the stores by code of its own.

`read` collects a deployment's history at read_committed, `verdict` judges it. Nothing here uses
the product's decisions; of the product it takes only the codecs.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from buckets import keys
from buckets.partition import Position
from buckets.rocks_store import RocksMemory, RocksStore
from schemas import events, instants
from schemas import reminder as codec
from schemas.errors import Refused
from schemas.reminder import Entry, Lane, Reminder, State
from streams import kafka
from streams.processor import changelog
from streams.settings import Settings

ZEROS = ("lost", "early", "double", "ghost", "hole", "skew", "jump", "stall")
READ_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Record:
    """One committed record of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes] = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass
class History:
    """What a deployment left behind."""

    commands: list[Record] = field(default_factory=list)
    state: list[Record] = field(default_factory=list)
    due: list[Record] = field(default_factory=list)
    outcomes: list[Record] = field(default_factory=list)
    rejected: list[Record] = field(default_factory=list)
    targets: list[Record] = field(default_factory=list)
    stores: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Partition → id → stored reminder, of stores that were looked into."""

    skewed: list[str] = field(default_factory=list)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic, partition) → the offset its consumer group has committed."""


Verdict = dict[str, list[str]]
States = dict[str, list[Reminder | None]]


@dataclass
class Departures:
    """Everything that left, by fire_id."""

    ids: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """How often each attempt is in the due topic."""

    targets: Counter[str] = field(default_factory=Counter)
    """How often it is in a topic of its own."""

    def after(self, fire_id: str, attempt: int) -> bool:
        """Whether anything left later than `attempt`."""
        return fire_id in self.targets or max(self.attempts.get(fire_id, (0,))) > attempt


def verdict(history: History, now_ms: int, grace_ms: int = 10_000) -> Verdict:
    """Each zero and the violations found; all lists are empty when everything is well."""
    found: Verdict = {zero: [] for zero in ZEROS}
    states = _states(history.state)
    outcomes = _outcomes(history.outcomes)
    departures = _departures(history, found)
    _judge_lost(history, states, departures, found)
    _judge_doubles(states, outcomes, departures, found)
    _judge_ghosts(states, departures, found)
    _judge_stores(history, found)
    found["skew"].extend(history.skewed)
    _judge_applied(history, found)
    _judge_passed(history, outcomes, now_ms - grace_ms, found)
    for reminder_id, reminder in final_states(history).items():
        waits = reminder is not None and reminder.state in {State.PENDING, State.CLAIMED}
        if reminder is not None and waits and reminder.at_ms < now_ms - grace_ms:
            overdue_ms = now_ms - reminder.at_ms
            found["stall"].append(f"{reminder_id} is overdue by {overdue_ms} ms")
    return found


def _states(records: Iterable[Record]) -> States:
    """Every state of every reminder, in the log's order."""
    states: States = defaultdict(list)
    for record in records:
        if record.key is None or record.key == changelog.APPLIED_KEY:
            continue
        reminder = None if record.value is None else codec.decode(record.value)
        states[record.key.decode()].append(reminder)
    return states


def final_states(history: History) -> dict[str, Reminder | None]:
    """The fold of the changelog: what each reminder has come to."""
    return {name: seen[-1] for name, seen in _states(history.state).items()}


def _outcomes(records: Iterable[Record]) -> dict[str, list[events.Outcome]]:
    """Every outcome of every fire_id. What cannot be read is refused, and answers nothing."""
    outcomes: dict[str, list[events.Outcome]] = defaultdict(list)
    for record in records:
        try:
            outcome = events.decode_outcome(record.value or b"")
        except Refused:
            continue
        outcomes[outcome.fire_id].append(outcome)
    return outcomes


def _commands(records: Iterable[Record], wanted: str) -> Iterator[tuple[Record, dict[str, Any]]]:
    """The commands of one type in any of the three forms, as far as they can be read at all."""
    for record in records:
        try:
            body = orjson.loads(record.value or b"")
        except orjson.JSONDecodeError:
            continue
        if not isinstance(body, dict):
            continue
        said = record.headers.get("ce_type", b"").decode(errors="replace") or body.get("type")
        if "specversion" in body:
            body = body.get("data")
        if said in {wanted, f"reminder.{wanted}.v1"} and isinstance(body, dict):
            yield record, body


def _departures(history: History, found: Verdict) -> Departures:
    """Everything that left, judged for early on the way."""
    left = Departures()
    triggered = {body.get("id") for _, body in _commands(history.commands, "trigger")}
    for record in history.due:
        event = _due_event(record)
        if event is None:
            continue
        left.ids[event.fire_id] = event.id
        left.attempts[event.fire_id][event.attempt] += 1
        due_ms = _instant_ms(event.due_at)
        # The broker has the record after it was fired: whichever is earlier speaks.
        left_ms = min(_instant_ms(event.fired_at), record.timestamp_ms)
        if left_ms < due_ms and event.id not in triggered:
            found["early"].append(f"{event.id} fired {due_ms - left_ms} ms early")
    for record in history.targets:
        assert record.key is not None
        fire_id, reminder_id = record.headers["fire-id"].decode(), record.key.decode()
        left.ids[fire_id] = reminder_id
        left.targets[fire_id] += 1
        early_ms = _instant_ms(record.headers["due-at"].decode()) - record.timestamp_ms
        if early_ms > 0 and reminder_id not in triggered:
            found["early"].append(f"{reminder_id} in its topic {early_ms} ms early")
    return left


def _due_event(record: Record) -> events.DueEvent | None:
    """The due event in a record, None where it is a revocation."""
    assert record.value is not None
    event = events.decode_due(record.value)
    return event if isinstance(event, events.DueEvent) else None


def due_events(history: History) -> list[events.DueEvent]:
    """Every due event that left, in the log's order within a partition."""
    return [event for record in history.due if (event := _due_event(record)) is not None]


def _instant_ms(text: str) -> int:
    return instants.milliseconds(instants.parse(text, "instant"))


def _judge_lost(history: History, states: States, left: Departures, found: Verdict) -> None:
    """Accepted, due, not cancelled, and nothing left."""
    answered = {State.SENT, State.DELIVERED, State.BOUNCED, State.SUPPRESSED}
    lost = found["lost"]
    for reminder_id, seen in states.items():
        for reminder, following in pairwise([*seen, seen[-1]]):
            if reminder is None:
                continue
            fire_id = events.fire_id_of(reminder)
            if reminder.state is State.CLAIMED:
                if reminder.attempt not in left.attempts.get(fire_id, ()):
                    lost.append(f"{reminder_id}: attempt {reminder.attempt} did not leave")
            elif reminder.state in answered and fire_id not in left.ids:
                lost.append(f"{reminder_id} is {reminder.state.wire}, nothing left for it")
            if following is None and reminder.entry is not Entry.EXPIRE:
                lost.append(f"{reminder_id} was forgotten while it was {reminder.state.wire}")
    refused = {_refused_place(record) for record in history.rejected}
    for record, body in _commands(history.commands, "schedule"):
        # What is no schedule at all is not lost where a test wrote it and left `rejected` out.
        well_formed = isinstance(body.get("id"), str) and {"due_at", "due_local"} & body.keys()
        if not well_formed or (record.partition, record.offset) in refused:
            continue
        if body["id"] not in states:
            lost.append(f"{body['id']} was asked for and is not known")


def _refused_place(record: Record) -> tuple[int, int] | None:
    """The partition and offset of the command that a record of `rejected` refuses."""
    if not record.headers.get("error.topic", b"").endswith(b"commands"):
        return None
    return int(record.headers["error.partition"]), int(record.headers["error.offset"])


def _judge_doubles(
    states: States,
    outcomes: dict[str, list[events.Outcome]],
    left: Departures,
    found: Verdict,
) -> None:
    """One attempt that left twice, one that left after its answer, or two answers that count."""
    double = found["double"]
    for fire_id, attempts in left.attempts.items():
        for attempt, count in attempts.items():
            if count > 1:
                double.append(f"{left.ids[fire_id]} attempt {attempt} left {count} times")
    for fire_id, count in left.targets.items():
        if count > 1:
            double.append(f"{left.ids[fire_id]} is {count} times in its topic")
    for reminder_id, seen in states.items():
        settled: set[str] = set()
        for reminder in seen:
            if reminder is None:
                # Forgotten: the same id may be asked for anew, also for the same instant.
                settled.clear()
            elif reminder.state is State.CLAIMED and events.fire_id_of(reminder) in settled:
                double.append(f"{reminder_id} left again after it was answered")
            elif reminder.fired_at_ms is not None and reminder.entry is Entry.EXPIRE:
                settled.add(events.fire_id_of(reminder))
    for fire_id, answers in outcomes.items():
        final = sum(answer.status in events.FINAL for answer in answers)
        accepted = sum(answer.status is events.Status.ACCEPTED for answer in answers)
        if max(final, accepted) > 1:
            double.append(f"{fire_id} has {max(final, accepted)} final outcomes")


def _judge_ghosts(states: States, left: Departures, found: Verdict) -> None:
    """A due event nobody asked for, or after a cancel that was final."""
    asked = {reminder_id for reminder_id, seen in states.items() if any(seen)}
    for reminder_id in left.ids.values():
        if reminder_id not in asked:
            found["ghost"].append(f"{reminder_id} fired, nobody asked for it")
    for reminder_id, seen in states.items():
        for place, reminder in enumerate(seen):
            if reminder is None or reminder.state is not State.CANCELLED:
                continue
            following = seen[place + 1 :]
            if _left_after_cancel(reminder, following, left):
                found["ghost"].append(f"{reminder_id} was cancelled, and left after that")


def _left_after_cancel(
    cancelled: Reminder, following: list[Reminder | None], left: Departures
) -> bool:
    fire_id, through = events.fire_id_of(cancelled), cancelled.cancelled_through
    asked_again = False
    for reminder in following:
        if reminder is None:
            # Forgotten, with its cancel: what comes now is asked for anew.
            asked_again = True
        elif asked_again or reminder.asked.version > cancelled.asked.version:
            if events.fire_id_of(reminder) == fire_id:
                return False
            ended = not asked_again and through is not None and reminder.asked.version <= through
            if ended and reminder.state is State.CLAIMED:
                return True
    return cancelled.asked.version >= 0 and left.after(fire_id, cancelled.attempt)


def _judge_stores(history: History, found: Verdict) -> None:
    """A store must hold what the fold of its changelog holds."""
    folded: dict[int, dict[str, bytes]] = defaultdict(dict)
    for record in history.state:
        if record.key is None or record.key == changelog.APPLIED_KEY:
            continue
        if record.value is None:
            folded[record.partition].pop(record.key.decode(), None)
        else:
            folded[record.partition][record.key.decode()] = record.value
    for partition, stored in history.stores.items():
        wanted = folded[partition]
        for reminder_id in sorted(wanted.keys() | stored.keys()):
            if wanted.get(reminder_id) != stored.get(reminder_id):
                found["hole"].append(f"{reminder_id} differs in the store of {partition}")


def _judge_applied(history: History, found: Verdict) -> None:
    """Inputs whose offset the processors' group has committed, and nobody has applied."""
    applied: dict[tuple[str, int], int] = defaultdict(int)
    for record in history.state:
        if record.key == changelog.APPLIED_KEY and record.value is not None:
            offsets = changelog.decode_applied(record.value)
            applied["commands", record.partition] = offsets.commands
            applied["outcomes", record.partition] = offsets.outcomes
    for (topic, partition), offset in history.committed.items():
        for name in ("commands", "outcomes"):
            if topic.endswith(name) and offset > applied[name, partition]:
                found["jump"].append(
                    f"{topic} {partition}: {offset} committed, {applied[name, partition]} applied"
                )


def _judge_passed(
    history: History,
    outcomes: dict[str, list[events.Outcome]],
    before_ms: int,
    found: Verdict,
) -> None:
    """Due events without an outcome: passed by the delivery group, or left lying by it."""
    committed = {
        partition: offset
        for (topic, partition), offset in history.committed.items()
        if topic.endswith("due")
    }
    for record in history.due:
        event = _due_event(record)
        if event is None or event.destination == "due":
            continue
        if any(
            answer.status in events.SETTLED or answer.attempt >= event.attempt
            for answer in outcomes.get(event.fire_id, ())
        ):
            continue
        place = f"due {record.partition}/{record.offset}"
        if record.offset < committed.get(record.partition, 0):
            found["jump"].append(f"{place}: passed, no outcome")
        elif committed and record.timestamp_ms < before_ms:
            # With no offset at all no delivery worker has ever run: then nothing stands still.
            found["stall"].append(f"{place}: not answered")


# ---- reading ----


def read(settings: Settings, targets: Iterable[str] = ()) -> History:
    """The history of a deployment, from its topics and its groups' offsets."""
    topics = settings.topics
    return History(
        commands=read_topic(settings, topics.commands),
        state=read_topic(settings, topics.state),
        due=read_topic(settings, topics.due),
        outcomes=read_topic(settings, topics.outcomes),
        rejected=read_topic(settings, topics.rejected),
        targets=[record for name in targets for record in read_topic(settings, name)],
        committed=_committed(settings, settings.processor_group, topics.commands)
        | _committed(settings, settings.processor_group, topics.outcomes)
        | _committed(settings, settings.delivery_group, topics.due),
    )


def read_topic(settings: Settings, topic: str) -> list[Record]:
    """Every committed record of a topic."""
    consumer = kafka.reader(settings, "zeros")
    described = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic]
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in described.partitions]
    )
    records: list[Record] = []
    ended: set[int] = set()
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(ended) < len(described.partitions):
        assert time.monotonic() < deadline, f"{topic} was not read within {READ_TIMEOUT_S:g} s"
        for message in consumer.consume(5_000, 0.1):
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            else:
                raise AssertionError(error.str())
    consumer.close()
    return records


def _record(message: Any) -> Record:
    try:
        headers = {name: value for name, value in kafka.headers_of(message) if value is not None}
    except Refused:
        headers = {}
    return Record(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        headers,
        message.timestamp()[1],
    )


def _committed(settings: Settings, group: str, topic: str) -> dict[tuple[str, int], int]:
    consumer = Consumer({"bootstrap.servers": settings.bootstrap, "group.id": group})
    places = [TopicPartition(topic, number) for number in range(settings.partitions)]
    committed = consumer.committed(places, timeout=READ_TIMEOUT_S)
    consumer.close()
    return {(topic, place.partition): place.offset for place in committed if place.offset >= 0}


def look_into(history: History, data_dir: Path) -> None:
    """Add the stores of a stopped processor to a history."""
    memory = RocksMemory(32 << 20)
    for directory in sorted((data_dir / "processor").iterdir()):
        number = int(directory.name)
        store = RocksStore(directory, memory)
        history.stores[number], skewed = _contents(store)
        history.skewed += [f"partition {number}: {what}" for what in skewed]
        store.close()


def _contents(store: RocksStore) -> tuple[dict[str, bytes], list[str]]:
    """What the index leads to, and rows or index entries that do not fit one another."""
    live: dict[str, bytes] = {}
    skewed: list[str] = []
    stored = store.position()
    position = None if stored is None else msgspec.msgpack.decode(stored, type=Position)
    for lane in Lane:
        cursor_ms = 0 if position is None else position.cursors_ms[lane]
        husks_below = b"" if position is None else position.husks_below[lane]
        rows = store.scan(keys.bound(lane, 0), keys.bound(lane + 1, 0), 10_000_000)
        headers = store.headers([keys.identifier(key) for key, _ in rows])
        for (key, value), header in zip(rows, headers, strict=True):
            identifier = keys.identifier(key)
            if header is not None and keys.row(header, identifier) == key:
                if codec.header_of(value) != header:
                    skewed.append(f"{identifier!r}: header and row differ")
                if keys.at_ms(key) < cursor_ms:
                    skewed.append(f"{identifier!r}: in a minute that is closed")
                live[identifier.decode()] = value
            elif key >= husks_below:
                # Below, it is a husk, which its minute's end drops. Here the wheel would take it.
                skewed.append(f"{identifier!r}: a row that the index does not lead to")
    for identifier, header in store.index():
        if identifier.decode() not in live:
            skewed.append(f"{identifier!r}: in the index at {header!r}, no row")
    return live, skewed


def assert_all_zero(found: Verdict) -> None:
    """Fail with the first violations of each zero."""
    broken = {zero: violations[:5] for zero, violations in found.items() if violations}
    counts = {zero: len(violations) for zero, violations in found.items()}
    assert not broken, f"{counts}: {broken}"
