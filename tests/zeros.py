"""The eight zeros, read from the topics and the stores by code of its own.

`read` collects a deployment's history at read_committed, `verdict` judges it. Nothing here uses
the product's decisions; of the product it takes only the codecs.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition

from buckets import keys
from buckets.rocks_store import RocksMemory, RocksStore
from schemas import events, instants
from schemas import reminder as codec
from schemas.reminder import Lane, Reminder, State
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
    targets: list[Record] = field(default_factory=list)
    stores: dict[int, dict[str, bytes]] = field(default_factory=dict)
    """Partition → id → stored reminder, of stores that were looked into."""

    skewed: list[str] = field(default_factory=list)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic, partition) → the offset its consumer group has committed."""


Verdict = dict[str, list[str]]


def verdict(history: History, now_ms: int, grace_ms: int = 10_000) -> Verdict:
    """Each zero and the violations found; all lists are empty when everything is well."""
    found: Verdict = {zero: [] for zero in ZEROS}
    states = _states(history.state)
    final = final_states(history)
    triggered = _ids_of(history.commands, "trigger")
    fired = _fired(history, found, triggered)
    _judge_lost(history, states, final, fired, found)
    _judge_ghosts(history, states, fired, found)
    _judge_outcomes(history, found)
    _judge_stores(history, final, found)
    _judge_offsets(history, found)
    for reminder_id, reminder in final.items():
        if reminder is not None and reminder.state is State.PENDING:
            overdue_ms = now_ms - reminder.at_ms
            if overdue_ms > grace_ms:
                found["stall"].append(f"{reminder_id} is overdue by {overdue_ms} ms")
    found["skew"].extend(history.skewed)
    return found


def _states(records: Iterable[Record]) -> dict[str, list[Reminder | None]]:
    """Every state of every reminder, in the log's order."""
    states: dict[str, list[Reminder | None]] = defaultdict(list)
    for record in records:
        if record.key is None or record.key == changelog.APPLIED_KEY:
            continue
        reminder = None if record.value is None else codec.decode(record.value)
        states[record.key.decode()].append(reminder)
    return states


def final_states(history: History) -> dict[str, Reminder | None]:
    """The fold of the changelog: what each reminder has come to."""
    return {name: seen[-1] for name, seen in _states(history.state).items()}


def due_events(history: History) -> list[events.DueEvent]:
    """Every due event that left, in the log's order within a partition."""
    decoded = [events.decode_due(record.value or b"") for record in history.due]
    return [event for event in decoded if isinstance(event, events.DueEvent)]


def _command_bodies(records: Iterable[Record]) -> list[dict[str, Any]]:
    bodies = []
    for record in records:
        if record.value is None:
            continue
        try:
            body = orjson.loads(record.value)
        except orjson.JSONDecodeError:
            continue
        if isinstance(body, dict):
            bodies.append(body)
    return bodies


def _ids_of(records: Iterable[Record], command_type: str) -> set[str]:
    return {
        body["id"]
        for body in _command_bodies(records)
        if body.get("type") == command_type and isinstance(body.get("id"), str)
    }


def _fired(history: History, found: Verdict, triggered: set[str]) -> dict[str, str]:
    """fire_id → id of everything that left, judged for early and double on the way."""
    fired: dict[str, str] = {}
    times: Counter[tuple[str, int]] = Counter()
    for record in history.due:
        assert record.value is not None
        event = events.decode_due(record.value)
        if isinstance(event, events.Revocation):
            continue
        fired[event.fire_id] = event.id
        times[event.fire_id, event.attempt] += 1
        due_ms = instants.milliseconds(instants.parse(event.due_at, "due_at"))
        fired_ms = instants.milliseconds(instants.parse(event.fired_at, "fired_at"))
        if min(fired_ms, record.timestamp_ms) < due_ms and event.id not in triggered:
            found["early"].append(f"{event.id} fired {due_ms - fired_ms} ms early")
    for record in history.targets:
        fire_id = record.headers["fire-id"].decode()
        assert record.key is not None
        fired[fire_id] = record.key.decode()
        times[fire_id, 1] += 1
        due_ms = instants.milliseconds(instants.parse(record.headers["due-at"].decode(), "due_at"))
        if record.timestamp_ms < due_ms and fired[fire_id] not in triggered:
            found["early"].append(f"{fired[fire_id]} in its topic before it was due")
    for (fire_id, attempt), count in times.items():
        if count > 1:
            found["double"].append(f"{fired[fire_id]} attempt {attempt} left {count} times")
    return fired


def _judge_lost(
    history: History,
    states: dict[str, list[Reminder | None]],
    final: dict[str, Reminder | None],
    fired: dict[str, str],
    found: Verdict,
) -> None:
    """Accepted, due, not cancelled, and nothing left."""
    left = {State.CLAIMED, State.SENT, State.DELIVERED, State.BOUNCED, State.SUPPRESSED}
    for reminder_id, reminder in final.items():
        if reminder is None or reminder.state not in left:
            continue
        if events.fire_id_of(reminder) not in fired:
            found["lost"].append(f"{reminder_id} is {reminder.state.wire}, nothing left for it")
    for body in _command_bodies(history.commands):
        # Only what the test wrote is well-formed on purpose; refusals have their own topic.
        if body.get("type") == "schedule" and body.get("id") not in states and "due_at" in body:
            found["lost"].append(f"{body['id']} was asked for and is not known")


def _judge_ghosts(
    history: History,
    states: dict[str, list[Reminder | None]],
    fired: dict[str, str],
    found: Verdict,
) -> None:
    """A due event nobody asked for, or after a cancel that was final."""
    asked = {reminder_id for reminder_id, seen in states.items() if any(seen)}
    for reminder_id in fired.values():
        if reminder_id not in asked:
            found["ghost"].append(f"{reminder_id} fired, nobody asked for it")
    for reminder_id, seen in states.items():
        for reminder in seen:
            never_left = (
                reminder is not None
                and reminder.state is State.CANCELLED
                and reminder.attempt == 0
                and reminder.asked.version >= 0
            )
            if reminder is not None and never_left and events.fire_id_of(reminder) in fired:
                found["ghost"].append(f"{reminder_id} was cancelled before it left, and left")


def _judge_outcomes(history: History, found: Verdict) -> None:
    settled: Counter[str] = Counter()
    for record in history.outcomes:
        assert record.value is not None
        outcome = events.decode_outcome(record.value)
        if outcome.status in events.FINAL:
            settled[outcome.fire_id] += 1
    for fire_id, count in settled.items():
        if count > 1:
            found["double"].append(f"{fire_id} has {count} final outcomes")


def _judge_stores(history: History, final: dict[str, Reminder | None], found: Verdict) -> None:
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
        for reminder_id in wanted.keys() | stored.keys():
            if wanted.get(reminder_id) != stored.get(reminder_id):
                found["hole"].append(f"{reminder_id} differs in the store of {partition}")


def _judge_offsets(history: History, found: Verdict) -> None:
    """A committed offset beyond recorded work."""
    applied: dict[int, tuple[int, int]] = {}
    for record in history.state:
        if record.key == changelog.APPLIED_KEY and record.value is not None:
            offsets = changelog.decode_applied(record.value)
            applied[record.partition] = (offsets.commands, offsets.outcomes)
    answered = {
        events.decode_outcome(record.value).fire_id
        for record in history.outcomes
        if record.value is not None
    }
    for (topic, partition), offset in history.committed.items():
        if topic.endswith("commands") and offset > applied.get(partition, (0, 0))[0]:
            found["jump"].append(f"commands {partition}: {offset} committed, less applied")
        if not topic.endswith("due"):
            continue
        for record in history.due:
            if record.partition != partition or record.offset >= offset:
                continue
            assert record.value is not None
            event = events.decode_due(record.value)
            ours = isinstance(event, events.DueEvent) and event.destination != "due"
            if ours and isinstance(event, events.DueEvent) and event.fire_id not in answered:
                found["jump"].append(f"due {partition}/{record.offset}: passed, no outcome")


# ---- reading ----


def read(settings: Settings, targets: Iterable[str] = ()) -> History:
    """The history of a deployment, from its topics and its groups' offsets."""
    topics = settings.topics
    return History(
        commands=read_topic(settings, topics.commands),
        state=read_topic(settings, topics.state),
        due=read_topic(settings, topics.due),
        outcomes=read_topic(settings, topics.outcomes),
        targets=[record for name in targets for record in read_topic(settings, name)],
        committed=_committed(settings, settings.processor_group, topics.commands)
        | _committed(settings, settings.delivery_group, topics.due),
    )


def read_topic(settings: Settings, topic: str) -> list[Record]:
    """Every committed record of a topic."""
    consumer = kafka.reader(settings, "zeros")
    described = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic]
    consumer.assign([TopicPartition(topic, number, 0) for number in described.partitions])
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
    headers = {name: value for name, value in message.headers() or () if value is not None}
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
    for lane in Lane:
        rows = store.scan(keys.bound(lane, 0), keys.bound(lane + 1, 0), 10_000_000)
        headers = store.headers([keys.identifier(key) for key, _ in rows])
        for (key, value), header in zip(rows, headers, strict=True):
            identifier = keys.identifier(key)
            # A row the index does not lead to is a husk, which its minute's end will drop.
            if header is not None and keys.row(header, identifier) == key:
                if codec.header_of(value) != header:
                    skewed.append(f"{identifier!r}: header and row differ")
                live[identifier.decode()] = value
    for identifier, header in store.index():
        if identifier.decode() not in live:
            skewed.append(f"{identifier!r}: in the index at {header!r}, no row")
    return live, skewed


def assert_all_zero(found: Verdict) -> None:
    """Fail with the first violations of each zero."""
    broken = {zero: violations[:5] for zero, violations in found.items() if violations}
    counts = {zero: len(violations) for zero, violations in found.items()}
    assert not broken, f"{counts}: {broken}"
