"""Reminders in every state, for tables over the states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.events import Status
from schemas.reminder import Reminder
from tests.reminders import DUE_MS, after, answered, cancel, claimed, decided, pending


def retrying(**fields: Any) -> Reminder:
    """A reminder that waits to try again."""
    return after(answered(claimed(**fields), Status.FAILED))


def cancelling(**fields: Any) -> Reminder:
    """A claimed reminder with a cancel on its way."""
    return after(decided(claimed(**fields), cancel(), DUE_MS))


def ended(status: Status = Status.DELIVERED, **fields: Any) -> Reminder:
    return after(answered(claimed(**fields), status))


def cancelled(**fields: Any) -> Reminder:
    return after(decided(pending(**fields), cancel()))


STANDING: dict[str, Callable[..., Reminder]] = {
    "pending": pending,
    "retrying": retrying,
    "claimed": claimed,
    "cancelling": cancelling,
    "sent": lambda **fields: ended(Status.ACCEPTED, **fields),
    "delivered": ended,
    "bounced": lambda **fields: ended(Status.BOUNCED, **fields),
    "suppressed": lambda **fields: ended(Status.SUPPRESSED, **fields),
    "stale": lambda **fields: ended(Status.STALE, **fields),
    "cancelled": cancelled,
    "dead": lambda **fields: ended(Status.REJECTED, **fields),
}
FINAL = ["sent", "delivered", "bounced", "suppressed", "stale", "cancelled", "dead"]
