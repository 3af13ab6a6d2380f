"""The contract's rules for due entries and for the answers to due events, one table each."""

from __future__ import annotations

from typing import Any

import pytest

from buckets import decisions
from buckets.decisions import Bury, Fire
from buckets.rules import RETRY_AFTER_S_MAX, Rules
from schemas import events
from schemas.events import Status, fire_id_of
from schemas.limits import ATTEMPTS_KEPT_MAX
from schemas.reminder import Entry, Lane, Reminder, State
from tests.reminders import (
    DUE_MS,
    MINUTE_MS,
    NOW_MS,
    RULES,
    after,
    answered,
    cancel,
    claimed,
    decided,
    fired,
    outcome,
    pending,
    schedule,
)
from tests.states import FINAL, STANDING, cancelling

LATER_MS = DUE_MS + 5 * MINUTE_MS


# ---- due ----


def test_what_is_due_is_claimed_and_leaves() -> None:
    decision = decisions.on_due(pending(), DUE_MS + 3, RULES)
    made = after(decision)
    assert decision.emissions == (Fire(made),)
    assert (made.state, made.entry, made.attempt) == (State.CLAIMED, Entry.LEASE, 1)
    assert (made.fired_at_ms, made.at_ms) == (DUE_MS + 3, DUE_MS + 3 + RULES.lease_ms)
    assert made.lane is Lane.FREE


@pytest.mark.parametrize(
    ("now_ms", "state"),
    [(LATER_MS - 1, "claimed"), (LATER_MS, "claimed"), (LATER_MS + 1, "stale")],
)
@pytest.mark.parametrize("standing", ["pending", "retrying", "claimed"])
def test_later_than_not_after_is_stale(standing: str, now_ms: int, state: str) -> None:
    decision = decisions.on_due(STANDING[standing](not_after=LATER_MS), now_ms, RULES)
    assert after(decision).state.wire == state
    assert bool(decision.emissions) == (state == "claimed")


def test_a_past_reminder_whose_not_after_has_passed_is_stale() -> None:
    made = pending(NOW_MS - 10, not_after=NOW_MS - 5)
    assert fired(made, NOW_MS).state is State.STALE


def test_a_topic_is_fired_and_delivered_in_one() -> None:
    reminder = pending(destination="topic:invoices")
    assert reminder.lane is Lane.FREE
    decision = decisions.on_due(reminder, DUE_MS, RULES)
    made = after(decision)
    assert decision.emissions == (Fire(made),)
    assert (made.state, made.entry, made.attempt) == (State.DELIVERED, Entry.EXPIRE, 1)
    assert made.at_ms == DUE_MS + RULES.dedupe_retention_ms
    assert answered(made).reminder is None


def test_a_stale_topic_reminder_does_not_fire() -> None:
    made = pending(destination="topic:invoices", not_after=DUE_MS)
    assert decisions.on_due(made, DUE_MS + 1, RULES).emissions == ()


def test_a_lease_that_runs_out_asks_again_and_is_no_failure() -> None:
    reminder = claimed()
    for attempt in range(2, 20):
        decision = decisions.on_due(reminder, reminder.at_ms, RULES)
        reminder = after(decision)
        assert decision.emissions == (Fire(reminder),)
        assert (reminder.state, reminder.attempt, reminder.failures) == (State.CLAIMED, attempt, 0)
        assert fire_id_of(reminder) == fire_id_of(claimed())


def test_a_lease_that_runs_out_after_a_cancel_ends_it() -> None:
    asked = after(decided(claimed(), cancel(reason="paid", actor="shop"), DUE_MS))
    decision = decisions.on_due(asked, asked.at_ms, RULES)
    made = after(decision)
    assert (made.state, decision.emissions) == (State.CANCELLED, ())
    assert (made.ended_by, made.ended_why) == ("shop", "paid")


@pytest.mark.parametrize("state", FINAL)
def test_a_finished_one_is_forgotten_after_the_retention(state: str) -> None:
    reminder = STANDING[state]()
    assert reminder.entry is Entry.EXPIRE
    assert reminder.at_ms == reminder.changed_at_ms + RULES.dedupe_retention_ms
    decision = decisions.on_due(reminder, reminder.at_ms, RULES)
    assert decision.forget
    assert (decision.reminder, decision.emissions) == (None, ())


# ---- outcomes ----


@pytest.mark.parametrize(
    ("status", "state", "buried"),
    [
        ("accepted", "sent", False),
        ("delivered", "delivered", False),
        ("bounced", "bounced", False),
        ("rejected", "dead", True),
        ("suppressed", "suppressed", False),
        ("stale", "stale", False),
        ("cancelled", "cancelled", False),
        ("ambiguous", "dead", True),
    ],
)
@pytest.mark.parametrize("standing", ["claimed", "retrying", "cancelling"])
def test_an_answer_ends_what_waits_for_one(
    standing: str, status: str, state: str, buried: bool
) -> None:
    reminder = STANDING[standing]()
    decision = answered(reminder, status, DUE_MS + 9, detail="550")
    made = after(decision)
    assert (made.state.wire, made.entry) == (state, Entry.EXPIRE)
    assert made.at_ms == DUE_MS + 9 + RULES.dedupe_retention_ms
    assert decision.emissions == ((Bury(made, status),) if buried else ())
    last = made.attempts[-1]
    assert (last.number, last.at_ms, last.status, last.detail) == (1, DUE_MS + 9, status, "550")


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize(
    "standing", ["delivered", "bounced", "suppressed", "stale", "cancelled", "dead"]
)
def test_the_first_final_answer_counts(standing: str, status: Status) -> None:
    decision = answered(STANDING[standing](), status)
    assert decision.status.value == "duplicate"
    assert (decision.reminder, decision.emissions) == (None, ())


@pytest.mark.parametrize("status", list(Status))
def test_only_receipts_follow_an_acceptance(status: Status) -> None:
    decision = answered(STANDING["sent"](), status, DUE_MS + 5)
    if status in {Status.DELIVERED, Status.BOUNCED}:
        assert after(decision).state.wire == status.value
        assert answered(after(decision), Status.BOUNCED).reminder is None
    else:
        assert decision.reminder is None


@pytest.mark.parametrize("status", list(Status))
def test_nobody_answers_what_has_not_left(status: Status) -> None:
    assert answered(pending(), status).reminder is None
    assert decisions.on_outcome(None, outcome(pending(), status), NOW_MS, RULES).reminder is None


@pytest.mark.parametrize("status", list(Status))
def test_an_answer_to_another_fire_id_is_not_obeyed(status: Status) -> None:
    foreign = events.fire_id("a", "", DUE_MS + 1)
    assert answered(claimed(), status, fire_id=foreign).reminder is None


@pytest.mark.parametrize("status", list(Status))
def test_an_answer_to_the_version_that_was_replaced_is_not_obeyed(status: Status) -> None:
    old = claimed()
    new = after(decided(old, schedule(due_at=DUE_MS + 1, version=1), DUE_MS))
    for standing in (new, fired(new, DUE_MS + 1)):
        decision = decisions.on_outcome(standing, outcome(old, status), DUE_MS + 2, RULES)
        assert decision.reminder is None


@pytest.mark.parametrize("status", list(Status))
def test_an_answer_to_an_older_attempt(status: Status) -> None:
    """It says what the receiver did under this fire_id; only its failure is no news."""
    first = claimed()
    second = fired(first, first.at_ms)
    decision = decisions.on_outcome(second, outcome(first, status), second.at_ms, RULES)
    assert (decision.reminder is None) == (status is Status.FAILED)


@pytest.mark.parametrize("status", list(Status))
def test_an_answer_to_an_attempt_that_was_never_made(status: Status) -> None:
    assert answered(claimed(), status, attempt=2).reminder is None


def test_a_failure_is_told_once() -> None:
    reminder = claimed()
    waiting = after(answered(reminder, Status.FAILED))
    assert answered(waiting, Status.FAILED).reminder is None


# ---- retries ----


def failures(reminder: Reminder, rules: Rules = RULES) -> list[int | str]:
    """Let every attempt fail; the delays between them in seconds, and the state at the end."""
    told: list[int | str] = []
    while reminder.entry is not Entry.EXPIRE:
        reminder = fired(reminder, reminder.at_ms, rules)
        now_ms = reminder.fired_at_ms or 0
        reminder = after(answered(reminder, Status.FAILED, now_ms, rules))
        told.append((reminder.at_ms - now_ms) // 1_000)
    return [*told[:-1], reminder.state.wire]


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (None, [30, 300, 1_800, "dead"]),
        ({"delays_s": [5]}, [5, "dead"]),
        ({"delays_s": [5, 6]}, [5, 6, "dead"]),
        ({"delays_s": [5, 6], "max_attempts": 5}, [5, 6, 6, 6, "dead"]),
        ({"delays_s": [5, 6, 7], "max_attempts": 2}, [5, "dead"]),
        ({"delays_s": [5], "max_attempts": 1}, ["dead"]),
        ({"delays_s": [0], "max_attempts": 3}, [0, 0, "dead"]),
    ],
)
def test_delays_between_attempts(retry: dict[str, Any] | None, delays: list[int | str]) -> None:
    assert failures(pending(retry=retry)) == delays


def test_the_configured_rule() -> None:
    rules = Rules(retry_delays_s=(1, 2), retry_attempts_max=3)
    assert failures(pending(), rules) == [1, 2, "dead"]


@pytest.mark.parametrize(
    ("retry_after_s", "delay_ms"),
    [
        (None, 30_000),
        (0, 30_000),
        (29.9, 30_000),
        (30.5, 30_500),
        (3_600, 3_600_000),
        (RETRY_AFTER_S_MAX, 86_400_000),
        (10 * 365 * 86_400, 86_400_000),
        (float("inf"), 86_400_000),
    ],
)
def test_retry_after_lengthens_the_wait_within_a_day(
    retry_after_s: float | None, delay_ms: int
) -> None:
    made = after(answered(claimed(), Status.FAILED, DUE_MS, retry_after_s=retry_after_s))
    assert made.at_ms - DUE_MS == delay_ms
    assert (made.state, made.entry, made.lane) == (State.PENDING, Entry.RETRY, Lane.CLAIMING)


def test_attempts_used_up_are_a_dead_letter() -> None:
    reminder = claimed(retry={"delays_s": [1], "max_attempts": 1})
    decision = answered(reminder, Status.FAILED, detail="timeout")
    made = after(decision)
    assert decision.emissions == (Bury(made, "attempts_exhausted"),)
    assert (made.state, made.failures, made.attempts[0].detail) == (State.DEAD, 1, "timeout")


def test_silence_uses_up_no_failures() -> None:
    reminder = claimed(retry={"delays_s": [1], "max_attempts": 2})
    for _ in range(5):
        reminder = fired(reminder, reminder.at_ms)
    made = after(answered(reminder, Status.FAILED))
    assert (made.state, made.attempt, made.failures) == (State.PENDING, 6, 1)


def test_a_failure_after_a_cancel_ends_it() -> None:
    decision = answered(cancelling(), Status.FAILED)
    assert (after(decision).state, decision.emissions) == (State.CANCELLED, ())


def test_a_refused_target_is_a_failed_attempt() -> None:
    reminder = pending(destination="topic:t", retry={"delays_s": [7], "max_attempts": 2})
    first = decisions.on_refused_target(reminder, "UNKNOWN_TOPIC", DUE_MS, RULES)
    made = after(first)
    assert (made.state, made.entry, made.attempt) == (State.PENDING, Entry.RETRY, 1)
    assert (made.at_ms, made.fired_at_ms, made.lane) == (DUE_MS + 7_000, None, Lane.FREE)
    assert first.emissions == ()
    second = decisions.on_refused_target(made, "UNKNOWN_TOPIC", made.at_ms, RULES)
    assert second.emissions == (Bury(after(second), "attempts_exhausted"),)
    assert [attempt.detail for attempt in after(second).attempts] == ["UNKNOWN_TOPIC"] * 2


@pytest.mark.parametrize("status", list(Status))
def test_nobody_answers_what_a_target_refused(status: Status) -> None:
    """Such as a late answer to an earlier reminder of the same id and instant, long forgotten."""
    reminder = pending(destination="topic:t")
    waiting = after(decisions.on_refused_target(reminder, "UNKNOWN_TOPIC", DUE_MS, RULES))
    assert waiting.attempt == 1
    assert answered(waiting, status).reminder is None


def test_only_the_last_attempts_are_remembered() -> None:
    reminder = pending(retry={"delays_s": [1], "max_attempts": 50})
    for _ in range(ATTEMPTS_KEPT_MAX + 3):
        reminder = fired(reminder, reminder.at_ms)
        reminder = after(answered(reminder, Status.FAILED, reminder.fired_at_ms or 0))
    assert [attempt.number for attempt in reminder.attempts] == list(
        range(4, ATTEMPTS_KEPT_MAX + 4)
    )
