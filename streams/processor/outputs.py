"""What a turn sends out beside the state: which topic each kind of record goes to, and its form."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Message

from buckets.decisions import NEVER_SEEN, Bury, Decision, Revoke
from schemas import events
from schemas.commands import Command
from schemas.errors import Refused
from schemas.events import Source
from schemas.reminder import Reminder
from schemas.routing import routing_key
from streams.processor.targets import Targets
from streams.processor.transaction import Transaction
from streams.settings import Topics

FORWARDED_HEADERS_BYTES_MAX: Final = 131_072
"""Of a record that has to be moved: it must still fit with one header more."""

Headers = list[tuple[str, bytes | None]]


class Outputs:
    """Writes into the turn's transaction. `number` is the partition it is written for."""

    def __init__(self, topics: Topics, transaction: Transaction, targets: Targets) -> None:
        self._topics = topics
        self._transaction = transaction
        self._targets = targets
        self.fired_into_topics: list[tuple[int, bytes]] = []
        """(partition, id) of what went straight into a target topic."""

    def fire(self, number: int, identifier: bytes, reminder: Reminder) -> None:
        """The due event, or the reminder's own record in its target topic."""
        destination = reminder.asked.destination
        if destination.startswith("topic:"):
            value, headers = events.topic_record(reminder)
            topic = destination.removeprefix("topic:")
            room = self._targets.batch_bytes_max(topic)
            self.fired_into_topics.append((number, identifier))
            self._transaction.target(topic, number, identifier, value, headers, room)
        else:
            value, headers = events.due_event(reminder)
            key = routing_key(reminder.id)
            self._transaction.ours(self._topics.due, number, key, value, headers)

    def revoke(self, number: int, emission: Revoke) -> None:
        """A due event that left is taken back."""
        self._transaction.ours(
            self._topics.due,
            number,
            routing_key(emission.id),
            events.revocation(emission.fire_id, emission.reason),
            [("fire-id", emission.fire_id)],
        )

    def bury(self, number: int, emission: Bury, now_ms: int) -> None:
        """A dead letter."""
        reminder = emission.reminder
        self._transaction.ours(
            self._topics.dead,
            number,
            routing_key(reminder.id),
            events.dead_letter(reminder, emission.reason, now_ms),
            [
                ("fire-id", events.fire_id_of(reminder)),
                ("error.class", emission.reason),
                ("attempts", str(reminder.attempt)),
            ],
        )

    def reply(
        self,
        source: Source,
        command: Command,
        decision: Decision,
        reminder: Reminder | None,
        now_ms: int,
    ) -> None:
        """The answer to a command that asked for one; `reminder` as the command has left it."""
        if reminder is not None and reminder.asked.version == NEVER_SEEN:
            reminder = None
        value = events.reply(
            command.id,
            None if reminder is None else reminder.asked.version,
            decision.status,
            source,
            now_ms,
            due_at_ms=None if reminder is None else reminder.asked.due_at_ms,
            detail=decision.detail,
        )
        key = routing_key(command.id)
        self._transaction.ours(self._topics.replies, source.partition, key, value, ())

    def forward(
        self,
        source: Source,
        owner: int,
        reminder_id: str,
        value: bytes,
        headers: Headers,
    ) -> None:
        """Move a record to the partition its id belongs to, once. Raises `Refused`."""
        if any(name == events.FORWARDED_HEADER for name, _ in headers):
            raise Refused("misplaced", "id: forwarded once, and still on the wrong partition", "id")
        if events.headers_bytes(headers) > FORWARDED_HEADERS_BYTES_MAX:
            limit = FORWARDED_HEADERS_BYTES_MAX
            raise Refused("too_large", f"Kafka headers: at most {limit} bytes")
        self._transaction.ours(
            source.topic,
            owner,
            routing_key(reminder_id),
            value,
            [*headers, (events.FORWARDED_HEADER, f"{source.partition}/{source.offset}")],
        )

    def reject(self, source: Source, message: Message, headers: Headers, refused: Refused) -> None:
        """The record as it came, with the reason beside it."""
        key: Any = message.key()
        record = events.rejected(key, message.value(), headers, refused, source)
        self._transaction.ours(self._topics.rejected, source.partition, *record)
