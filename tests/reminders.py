"""Short ways to write commands, outcomes and stored reminders in the tests of the core."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from buckets import decisions
from buckets.decisions import Decision
from buckets.rules import Rules
from schemas import commands, events
from schemas.commands import Command
from schemas.events import Outcome, Status
from schemas.reminder import Reminder

NOW_MS: Final = 1_796_029_200_000
"""2026-11-30T09:00:00Z, the beginning of a minute."""

MINUTE_MS: Final = 60_000
DUE_MS: Final = NOW_MS + 10 * MINUTE_MS
RULES: Final = Rules()


def schedule(reminder_id: str = "a", due_at: Any = DUE_MS, **fields: Any) -> Command:
    """A schedule command."""
    return commands.from_mapping(
        {"type": "schedule", "id": reminder_id, "due_at": due_at, **fields}
    )


def cancel(reminder_id: str = "a", **fields: Any) -> Command:
    """A cancel command."""
    return commands.from_mapping({"type": "cancel", "id": reminder_id, **fields})


def reschedule(reminder_id: str = "a", due_at: Any = DUE_MS, **fields: Any) -> Command:
    """A reschedule command."""
    return commands.from_mapping(
        {"type": "reschedule", "id": reminder_id, "due_at": due_at, **fields}
    )


def trigger(reminder_id: str = "a") -> Command:
    """A trigger command."""
    return commands.from_mapping({"type": "trigger", "id": reminder_id})


def decided(
    standing: Reminder | None, command: Command, now_ms: int = NOW_MS, rules: Rules = RULES
) -> Decision:
    """What a command does to a reminder."""
    return decisions.on_command(standing, command, now_ms, rules)


def pending(due_at: int = DUE_MS, **fields: Any) -> Reminder:
    """A reminder just scheduled."""
    reminder = decided(None, schedule(due_at=due_at, **fields)).reminder
    assert reminder is not None
    return reminder


def claimed(now_ms: int = DUE_MS, rules: Rules = RULES, **fields: Any) -> Reminder:
    """A reminder whose first due event has left."""
    return fired(pending(**fields), now_ms, rules)


def fired(reminder: Reminder, now_ms: int = DUE_MS, rules: Rules = RULES) -> Reminder:
    """The reminder after the wheel has turned to it."""
    after = decisions.on_due(reminder, now_ms, rules).reminder
    assert after is not None
    return after


def outcome(reminder: Reminder, status: str | Status = Status.DELIVERED, **fields: Any) -> Outcome:
    """An answer to the reminder's last attempt."""
    answer = Outcome(
        events.fire_id_of(reminder), reminder.id, max(reminder.attempt, 1), Status(status)
    )
    return replace(answer, **fields)


def answered(
    reminder: Reminder,
    status: str | Status = Status.DELIVERED,
    now_ms: int = DUE_MS,
    rules: Rules = RULES,
    **fields: Any,
) -> Decision:
    """What an answer to the reminder's last attempt does."""
    return decisions.on_outcome(reminder, outcome(reminder, status, **fields), now_ms, rules)


def after(decision: Decision) -> Reminder:
    """The reminder a decision leaves."""
    assert decision.reminder is not None
    return decision.reminder
