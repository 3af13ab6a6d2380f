"""One turn: inputs and due entries in, one transaction out.

The steps, and what is true when the process dies right after each:

1. decide      commands, outcomes and due entries → decisions       nothing has happened
2. produce     state records, events, replies into a transaction    nothing is visible
3. commit      records and input offsets, together                  Kafka has all of it; the store
                                                                    replays it from the changelog
4. settle      one batch into each store                            all agree
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from buckets import decisions
from buckets.decisions import Decision, Fire, Revoke
from buckets.partition import Applied
from buckets.rules import Rules
from schemas import commands, events
from schemas.commands import Command, Schedule
from schemas.errors import Refused
from schemas.events import ReplyStatus, Source
from schemas.reminder import Entry, Reminder, State
from schemas.routing import partitions_of
from streams import metrics
from streams.kafka import headers_of
from streams.processor import changelog
from streams.processor.outputs import Outputs
from streams.processor.owned import Owned
from streams.processor.targets import Targets
from streams.processor.transaction import Transaction, TurnFailed
from streams.settings import Settings
from streams.topics import own_topics

REFUSED_TOPIC: Final = {
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "INVALID_TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
}
TYPE_NAMES: Final = {form: name for name, form in commands.COMMAND_TYPES.items()}
Headers = list[tuple[str, bytes | None]]
ArrivedCommand = tuple[Message, int, Headers, Command]
Refusals = dict[tuple[int, bytes], str]


class Turn:
    """The decisions of one turn over all active partitions, produced as they fall."""

    def __init__(
        self,
        settings: Settings,
        rules: Rules,
        transaction: Transaction,
        targets: Targets,
        refusals: Refusals,
        partitions: int,
        now_ms: int,
    ) -> None:
        """`refusals`: what target topics refused when this turn was tried before."""
        self._topics = settings.topics
        self._rules = rules
        self._transaction = transaction
        self._targets = targets
        self._outputs = Outputs(settings.topics, transaction, targets)
        self._refusals = refusals
        self._partitions = partitions
        self._now_ms = now_ms
        self._own_destinations = frozenset(f"topic:{name}" for name in own_topics(settings))
        self._touched: dict[Owned, tuple[int, int]] = {}
        self.tally: Counter[tuple[Callable[..., Any], tuple[str, ...]]] = Counter()
        self.fire_lags_s: list[float] = []
        self.delivery_lags_s: list[float] = []
        self.inputs = 0

    # ---- inputs ----

    def take_commands(self, owned: Owned, messages: list[Message]) -> None:
        """Decide commands of one partition, in their order."""
        self.inputs += len(messages)
        partition = owned.partition
        applied = partition.applied.commands
        arrived: list[ArrivedCommand] = []
        identifiers: list[bytes] = []
        offset = owned.commands_next
        _check_order(messages[0], offset)
        for message in messages:
            offset = message.offset() or 0
            if offset < applied:
                # Wound back: its effects are in the state already, in whatever came after it too.
                self._count(metrics.DUPLICATES, "commands")
                continue
            headers: Headers = []
            try:
                headers = headers_of(message)
                command = self._decode(message, headers)
            except Refused as refused:
                self._reject_command(owned, message, offset, headers, refused)
                continue
            arrived.append((message, offset, headers, command))
            identifiers.append(command.id.encode())
        partition.hold(identifiers)
        owners = self._owners(identifiers)
        for each, identifier, owner in zip(arrived, identifiers, owners, strict=True):
            if owner == owned.number:
                self._decide_command(owned, each, identifier)
            else:
                self._forward_command(owned, each, owner)
        self._touch(owned, commands_next=offset + 1)

    def _owners(self, identifiers: list[bytes]) -> list[int]:
        """The partitions that the records of these ids belong to."""
        keys = [identifier.partition(b"/")[0] for identifier in identifiers]
        return partitions_of(keys, self._partitions)

    def _decode(self, message: Message, headers: Headers) -> Command:
        value = message.value()
        if value is None:
            return self._cancel_by_tombstone(message)
        command = commands.decode(value, headers)
        if isinstance(command, Schedule) and self._is_ours(command.destination):
            raise Refused(
                "own_topic",
                "destination: a reminder cannot fire into our own topics, nor into Kafka's",
                "destination",
            )
        return command

    def _is_ours(self, destination: str) -> bool:
        """Whether a destination is a topic of ours, or one of Kafka's own."""
        return destination.startswith("topic:") and (
            destination in self._own_destinations or destination.startswith("topic:__")
        )

    @staticmethod
    def _cancel_by_tombstone(message: Message) -> Command:
        key = message.key()
        if not isinstance(key, bytes) or not key:
            raise Refused("no_key", "a null value cancels the reminder its key names; no key")
        return commands.from_mapping(
            {"type": "cancel", "id": key.decode(errors="replace"), "reason": "null value"}
        )

    def _decide_command(self, owned: Owned, arrived: ArrivedCommand, identifier: bytes) -> None:
        message, offset, headers, command = arrived
        partition = owned.partition
        trace_parent = _trace_parent(headers) if headers else None
        try:
            decision = decisions.on_command(
                partition.get(identifier), command, self._now_ms, self._rules, trace_parent
            )
        except Refused as refused:
            source = Source(self._topics.commands, owned.number, offset)
            self._outputs.reject(source, message, headers, refused)
            decision = Decision(ReplyStatus.REJECTED, detail=refused.message)
        else:
            self._carry_out(owned, identifier, decision)
        self._count(metrics.COMMANDS, TYPE_NAMES[type(command)], decision.status)
        if decision.status is ReplyStatus.DUPLICATE:
            self._count(metrics.DUPLICATES, "schedule")
        if command.reply:
            event_id = commands.cloud_event_id(message.value() or b"", headers)
            source = Source(self._topics.commands, owned.number, offset, event_id)
            standing = decision.reminder or partition.get(identifier)
            self._outputs.reply(source, command, decision, standing, self._now_ms)

    def _forward_command(self, owned: Owned, arrived: ArrivedCommand, owner: int) -> None:
        """A producer with another partitioner, or no key, put it here: move it, once."""
        message, offset, headers, command = arrived
        value, carried = message.value(), headers
        if value is None:
            value, carried = commands.encode(command), []
        source = Source(self._topics.commands, owned.number, offset)
        try:
            self._outputs.forward(source, owner, command.id, value, carried)
        except Refused as refused:
            self._reject_command(owned, message, offset, headers, refused)
        else:
            self._count(metrics.FORWARDED)

    def _reject_command(
        self, owned: Owned, message: Message, offset: int, headers: Headers, refused: Refused
    ) -> None:
        """What cannot even be told to be a command of this partition."""
        source = Source(self._topics.commands, owned.number, offset)
        self._outputs.reject(source, message, headers, refused)
        self._count(metrics.COMMANDS, "unknown", "rejected")

    def take_outcomes(self, owned: Owned, messages: list[Message]) -> None:
        """Decide answers to due events of one partition, in their order."""
        self.inputs += len(messages)
        partition = owned.partition
        arrived: list[tuple[Message, int, events.Outcome]] = []
        offset = owned.outcomes_next
        _check_order(messages[0], offset)
        for message in messages:
            offset = message.offset() or 0
            if offset < partition.applied.outcomes:
                self._count(metrics.DUPLICATES, "outcomes")
                continue
            try:
                outcome = events.decode_outcome(message.value() or b"")
            except Refused as refused:
                self._reject_outcome(owned, message, offset, refused)
                continue
            arrived.append((message, offset, outcome))
        identifiers = [outcome.id.encode() for _, _, outcome in arrived]
        partition.hold(identifiers)
        owners = self._owners(identifiers)
        for each, identifier, owner in zip(arrived, identifiers, owners, strict=True):
            if owner == owned.number:
                self._decide_outcome(owned, each[2], identifier)
            else:
                self._forward_outcome(owned, *each, owner)
        self._touch(owned, outcomes_next=offset + 1)

    def _forward_outcome(
        self, owned: Owned, message: Message, offset: int, outcome: events.Outcome, owner: int
    ) -> None:
        source = Source(self._topics.outcomes, owned.number, offset)
        headers: Headers = []
        try:
            headers = headers_of(message)
            self._outputs.forward(source, owner, outcome.id, message.value() or b"", headers)
        except Refused as refused:
            self._outputs.reject(source, message, headers, refused)
        else:
            self._count(metrics.FORWARDED)

    def _reject_outcome(
        self, owned: Owned, message: Message, offset: int, refused: Refused
    ) -> None:
        headers: Headers = []
        with suppress(Refused):
            headers = headers_of(message)
        source = Source(self._topics.outcomes, owned.number, offset)
        self._outputs.reject(source, message, headers, refused)

    def _decide_outcome(self, owned: Owned, outcome: events.Outcome, identifier: bytes) -> None:
        standing = owned.partition.get(identifier)
        decision = decisions.on_outcome(standing, outcome, self._now_ms, self._rules)
        self._carry_out(owned, identifier, decision)
        self._tally_outcome(standing, decision)

    def _tally_outcome(self, standing: Reminder | None, decision: Decision) -> None:
        reminder = decision.reminder
        if reminder is None:
            self._count(metrics.DUPLICATES, "outcome")
        elif reminder.entry is Entry.RETRY:
            self._count(metrics.RETRIES)
        elif standing is not None and standing.state is not State.SENT:
            # A receipt may come days after the provider took it: that was the delivery.
            self.delivery_lags_s.append(self._lag_s(reminder))

    def _lag_s(self, reminder: Reminder) -> float:
        """How late it is; what was triggered before its time is not late, nor less than that."""
        return max(0, self._now_ms - reminder.asked.due_at_ms) / 1_000

    # ---- time ----

    def take_due(self, owned: Owned, rows_max: int) -> int:
        """Fire what is due in one partition; returns how many entries the wheel turned to."""
        due = owned.partition.take_due(self._now_ms, rows_max, self._rules.claims_max)
        self._learn_targets(standing for _, standing in due)
        for identifier, standing in due:
            refusal = self._refusals.get((owned.number, identifier))
            decision = self._decide_due(standing, refusal)
            fired = decision.reminder
            if fired is not None and fired.attempt == 1 and decision.emissions:
                self.fire_lags_s.append(self._lag_s(fired))
            self._carry_out(owned, identifier, decision)
        if due:
            self.inputs += len(due)
            self._touch(owned)
        return len(due)

    def _learn_targets(self, due: Iterable[Reminder]) -> None:
        """Each topic once, and all together: a question takes as long as many records."""
        topics = {
            standing.asked.destination.removeprefix("topic:")
            for standing in due
            if standing.asked.destination.startswith("topic:")
            and standing.entry is not Entry.EXPIRE
        }
        if topics:
            try:
                self._targets.learn(topics)
            except KafkaException as raised:
                raise TurnFailed(raised.args[0]) from None

    def _decide_due(self, standing: Reminder, refusal: str | None) -> Decision:
        decision = decisions.on_due(standing, self._now_ms, self._rules)
        destination = standing.asked.destination
        if not decision.emissions or not destination.startswith("topic:"):
            return decision
        if refusal is None:
            topic = destination.removeprefix("topic:")
            refusal = self._targets.refusal(topic, _size_bytes(standing))
        if refusal is None:
            return decision
        refused = decisions.on_refused_target(standing, refusal, self._now_ms, self._rules)
        if refused.reminder is not None and refused.reminder.entry is Entry.RETRY:
            self._count(metrics.RETRIES)
        return refused

    # ---- writing ----

    def _carry_out(self, owned: Owned, identifier: bytes, decision: Decision) -> None:
        """Produce what a decision says, and let the rest of the turn see it."""
        if decision.forget:
            owned.partition.forget(identifier)
            self._transaction.state(owned.number, identifier, None)
        elif decision.reminder is not None:
            value = owned.partition.put(identifier, decision.reminder)
            self._transaction.state(owned.number, identifier, value)
        for emission in decision.emissions:
            if isinstance(emission, Fire):
                self._outputs.fire(owned.number, identifier, emission.reminder)
            elif isinstance(emission, Revoke):
                self._outputs.revoke(owned.number, emission)
            else:
                self._outputs.bury(owned.number, emission, self._now_ms)
                self._count(metrics.DEAD, emission.reason)

    def _touch(
        self, owned: Owned, *, commands_next: int | None = None, outcomes_next: int | None = None
    ) -> None:
        commands_before, outcomes_before = self._touched.get(
            owned, (owned.commands_next, owned.outcomes_next)
        )
        self._touched[owned] = (
            commands_before if commands_next is None else commands_next,
            outcomes_before if outcomes_next is None else outcomes_next,
        )

    def _count(self, metric: Callable[..., Any] | Any, *labels: str) -> None:
        self.tally[metric, labels] += 1

    # ---- the end ----

    def commit(self, group_metadata: Any) -> bool:
        """Steps 3 and 4. Returns False where there was nothing to commit.

        Every partition written for is in the offsets, also when nothing of it was consumed: a
        process that has lost it is refused by that.
        """
        if not self._touched:
            return False
        applied: dict[Owned, Applied] = {}
        offsets: list[TopicPartition] = []
        for owned, (commands_next, outcomes_next) in self._touched.items():
            before = owned.partition.applied
            applied[owned] = now = Applied(
                max(commands_next, before.commands),
                max(outcomes_next, before.outcomes),
                before.commands_topic,
                before.outcomes_topic,
                before.partitions,
            )
            self._transaction.applied(
                owned.number, changelog.APPLIED_KEY, changelog.encode_applied(now)
            )
            offsets.append(TopicPartition(self._topics.commands, owned.number, commands_next))
            offsets.append(TopicPartition(self._topics.outcomes, owned.number, outcomes_next))
        self._transaction.commit(offsets, group_metadata)
        for owned, (commands_next, outcomes_next) in self._touched.items():
            # One past the last state record: the commit marker behind it is not worth a look-up.
            log_end = self._transaction.changelog[owned.number] + 1
            owned.partition.settle(log_end, applied[owned], self._now_ms)
            owned.commands_next, owned.outcomes_next = commands_next, outcomes_next
        self._publish_tally()
        return True

    def abort(self, failed: TurnFailed) -> None:
        """Take everything back."""
        self._transaction.abort(failed)

    def note_refusals(self, failed: TurnFailed, refusals: Refusals) -> None:
        """Remember which reminders' targets broke the transaction, for the turn that redoes it.

        A topic that may not be written to is refused before any record is: then nobody is told
        which one it was, unless there was only one.
        """
        refusals.update(self._transaction.refused)
        fired = self._outputs.fired_into_topics
        alone = len(fired) == 1 and not self._transaction.refused
        if alone and failed.error.name() in REFUSED_TOPIC:
            refusals[fired[0]] = failed.error.name()

    def _publish_tally(self) -> None:
        for (metric, labels), count in self.tally.items():
            child: Any = metric.labels(*labels) if labels else metric  # type: ignore[attr-defined]
            child.inc(count)
        metrics.FIRE_LAG.observe_all(self.fire_lags_s)
        metrics.DELIVERY_LAG.observe_all(self.delivery_lags_s)


def _check_order(first: Message, expected: int) -> None:
    """A log that begins again before what was read is another log, or was cut."""
    offset = first.offset()
    if offset is not None and offset < expected:
        raise TurnFailed(
            KafkaError(
                KafkaError.OFFSET_OUT_OF_RANGE,
                f"{first.topic()} goes on at {offset}, after {expected - 1} was read",
            )
        )


def _trace_parent(headers: Headers) -> str | None:
    for name, value in headers:
        if name in {"traceparent", "ce_traceparent"} and isinstance(value, bytes):
            return value.decode(errors="replace")[:64]
    return None


def _size_bytes(reminder: Reminder) -> int:
    asked = reminder.asked
    headers = asked.headers or {}
    return (
        len(asked.payload or b"null")
        + len(reminder.id.encode())
        + events.headers_bytes(headers.items())
    )
