"""Hand-made histories of a deployment, for the tests of the checker that judges them."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from buckets.partition import Applied
from schemas import events
from schemas import reminder as codec
from schemas.events import Outcome, Status
from schemas.reminder import Asked, Entry, Reminder, State
from streams.processor import changelog
from tests.zeros import History, Record

DUE_MS = 1_800_000_000_000
NOW_MS = DUE_MS + 1_000
LATER_MS = DUE_MS + 86_400_000
RETAINED_MS = DUE_MS + 7 * 86_400_000


def reminder(reminder_id: str, **more: Any) -> Reminder:
    """A pending reminder over HTTP; `more` is changed in it, or in what was asked."""
    asked = Asked(
        version=1,
        due_at_ms=DUE_MS,
        tenant="acme",
        kind="reminder",
        group=None,
        destination="http://receiver/",
        payload=b"{}",
        payload_ref=None,
        headers=None,
        not_after_ms=None,
        retry=None,
        due_local=None,
        time_zone=None,
    )
    asked_changes = {name: more.pop(name) for name in Asked.__struct_fields__ if name in more}
    asked = msgspec.structs.replace(asked, **asked_changes)
    made = Reminder(reminder_id, asked, State.PENDING, Entry.FIRE, asked.due_at_ms, 0, 0)
    return msgspec.structs.replace(made, **more)


def claimed(standing: Reminder, attempt: int = 1, at_ms: int = DUE_MS) -> Reminder:
    """The reminder with its n-th due event on its way."""
    return msgspec.structs.replace(
        standing,
        state=State.CLAIMED,
        entry=Entry.LEASE,
        at_ms=LATER_MS,
        attempt=attempt,
        fired_at_ms=at_ms,
    )


def ended(standing: Reminder, state: State, **more: Any) -> Reminder:
    """The reminder come to its end."""
    return msgspec.structs.replace(
        standing, state=state, entry=Entry.EXPIRE, at_ms=RETAINED_MS, **more
    )


class Writer:
    """Writes a history as a deployment would, in partition 0."""

    def __init__(self) -> None:
        self.history = History()

    def command(self, command_type: str, reminder_id: str, **more: Any) -> None:
        """A command in plain JSON."""
        self.raw_command({"type": command_type, "id": reminder_id, **more})

    def raw_command(self, body: object, **headers: bytes) -> None:
        """Any record of the commands topic."""
        records = self.history.commands
        value = body if isinstance(body, bytes) else orjson.dumps(body)
        records.append(Record(0, len(records), b"k", value, headers))

    def state(self, *states: Reminder) -> None:
        """Changelog records."""
        for one in states:
            self._state(one.id.encode(), codec.encode(one))

    def forget(self, reminder_id: str) -> None:
        """A null in the changelog."""
        self._state(reminder_id.encode(), None)

    def _state(self, key: bytes, value: bytes | None) -> None:
        records = self.history.state
        records.append(Record(0, len(records), key, value))

    def applied(self, commands: int, outcomes: int) -> None:
        """How far the inputs are applied."""
        self._state(
            changelog.APPLIED_KEY, changelog.encode_applied(Applied(commands, outcomes, "", "", 1))
        )

    def due(self, fired: Reminder, at_ms: int | None = None) -> None:
        """The due event of a claimed reminder, in the topic at `at_ms`."""
        value, _ = events.due_event(fired)
        assert fired.fired_at_ms is not None
        timestamp_ms = fired.fired_at_ms if at_ms is None else at_ms
        records = self.history.due
        records.append(Record(0, len(records), b"k", value, timestamp_ms=timestamp_ms))

    def target(self, fired: Reminder, at_ms: int = DUE_MS) -> None:
        """The record of a reminder with a topic of its own."""
        value, headers = events.topic_record(fired)
        raw = {name: str(text).encode() for name, text in headers}
        self.history.targets.append(Record(0, 0, fired.id.encode(), value, raw, at_ms))

    def outcome(self, fired: Reminder, status: Status) -> None:
        """An answer to a due event."""
        answer = Outcome(events.fire_id_of(fired), fired.id, fired.attempt, status)
        records = self.history.outcomes
        records.append(Record(0, len(records), b"k", events.outcome(answer)))

    def delivered(self, standing: Reminder) -> None:
        """The whole life of a reminder from when it fires."""
        fired = claimed(standing)
        self.state(fired)
        self.due(fired)
        self.outcome(fired, Status.DELIVERED)
        self.state(ended(fired, State.DELIVERED))

    def commit(self, topic: str, offset: int) -> None:
        """A group's offset."""
        self.history.committed[f"p.{topic}", 0] = offset


def good() -> Writer:
    """Everything that may happen, once, and all of it well."""
    written = Writer()
    for name in ("a", "again", "moved"):
        written.command("schedule", name, due_at=DUE_MS)
        written.state(reminder(name))
    written.delivered(reminder("a"))
    _tried_again(written)
    _moved_while_on_its_way(written)
    _cancelled_and_asked_for_anew(written)
    _into_a_topic_and_forgotten(written)
    _in_other_forms(written)
    revocation = events.revocation("0" * 32, None)
    written.history.due.append(Record(0, 9, b"k", revocation, timestamp_ms=DUE_MS))
    written.history.outcomes.append(Record(0, 99, b"k", b"garbage"))
    written.state(reminder("pending", due_at_ms=LATER_MS))
    written.applied(20, 10)
    written.commit("commands", 20)
    written.commit("outcomes", 10)
    written.commit("due", 99)
    return written


def _tried_again(written: Writer) -> None:
    first = claimed(reminder("again"))
    second = claimed(first, attempt=2, at_ms=DUE_MS + 30_000)
    written.state(first)
    written.due(first)
    written.outcome(first, Status.FAILED)
    waiting = msgspec.structs.replace(first, state=State.PENDING, entry=Entry.RETRY)
    written.state(waiting, second)
    written.due(second)
    written.outcome(second, Status.ACCEPTED)
    # The receipt of what was accepted is a final outcome more, and the first of its kind.
    written.outcome(second, Status.DELIVERED)
    written.state(ended(second, State.SENT), ended(second, State.DELIVERED))


def _moved_while_on_its_way(written: Writer) -> None:
    first = claimed(reminder("moved"))
    written.state(first)
    written.due(first)
    written.command("reschedule", "moved", due_at=LATER_MS)
    written.state(reminder("moved", version=2, due_at_ms=LATER_MS))
    written.outcome(first, Status.CANCELLED)


def _cancelled_and_asked_for_anew(written: Writer) -> None:
    """For the same instant, so under the same fire_id."""
    written.command("schedule", "anew", due_at=DUE_MS)
    written.command("cancel", "anew")
    written.state(reminder("anew"))
    written.state(ended(reminder("anew"), State.CANCELLED, cancelled_through=1))
    written.state(reminder("anew", version=2))
    written.delivered(reminder("anew", version=2))


def _into_a_topic_and_forgotten(written: Writer) -> None:
    written.command("trigger", "topic")
    fired = reminder("topic", destination="topic:t", attempt=1, fired_at_ms=DUE_MS - 500)
    written.target(fired, at_ms=DUE_MS - 500)
    written.state(ended(fired, State.DELIVERED))
    written.forget("topic")


def _in_other_forms(written: Writer) -> None:
    schedule = {"id": "event", "due_local": "2026-12-01T09:00", "time_zone": "UTC"}
    written.raw_command(schedule, ce_type=b"reminder.schedule.v1")
    written.raw_command(
        {"specversion": "1.0", "type": "reminder.schedule.v1", "data": schedule | {"id": "cloud"}}
    )
    written.state(reminder("event", due_at_ms=LATER_MS), reminder("cloud", due_at_ms=LATER_MS))
    for garbage in (b"\xff", b"[]", b"{}", b'{"type":"schedule","id":[],"due_at":1}'):
        written.raw_command(garbage)
    written.command("schedule", "refused", due_at=DUE_MS, payload=0)
    place = {
        "error.topic": b"p.commands",
        "error.partition": b"0",
        "error.offset": str(len(written.history.commands) - 1).encode(),
    }
    written.history.rejected.append(Record(0, 0, b"k", b"", place))
