"""The contract's rules for commands, one table each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from buckets import decisions
from buckets.decisions import NEVER_SEEN, Decision, Revoke
from schemas import events
from schemas.commands import Command
from schemas.errors import Refused
from schemas.events import fire_id_of
from schemas.limits import FIRED_INSTANTS_KEPT_MAX, VERSION_MAX
from schemas.reminder import Entry, Lane, State
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
    pending,
    reschedule,
    schedule,
    trigger,
)
from tests.states import FINAL, STANDING, cancelling, ended, retrying

LATER_MS = DUE_MS + 5 * MINUTE_MS
DAY_MS = 86_400_000


def status_of(decision: Decision) -> str:
    return decision.status.value


# ---- schedule ----


def test_a_schedule_makes_a_pending_reminder() -> None:
    command = schedule(
        "order/7",
        tenant="shop",
        kind="mail",
        group="g",
        destination="https://example.org/hook",
        payload={"n": 1},
        headers={"x": "y"},
        not_after=LATER_MS,
        retry={"delays_s": [1, 2], "max_attempts": 9},
        reason="why",
        actor="who",
        reply=True,
        version=4,
    )
    decision = decisions.on_command(None, command, NOW_MS, RULES, "trace")
    assert status_of(decision) == "accepted"
    assert decision.emissions == ()
    made = after(decision)
    assert (made.id, made.state, made.entry, made.at_ms) == (
        "order/7",
        State.PENDING,
        Entry.FIRE,
        DUE_MS,
    )
    assert (made.attempt, made.failures, made.fired_at_ms) == (0, 0, None)
    assert (made.created_at_ms, made.changed_at_ms) == (NOW_MS, NOW_MS)
    assert (made.reason, made.actor, made.reply, made.trace_parent) == ("why", "who", True, "trace")
    asked = made.asked
    assert (asked.version, asked.due_at_ms, asked.not_after_ms) == (4, DUE_MS, LATER_MS)
    assert (asked.tenant, asked.kind, asked.group) == ("shop", "mail", "g")
    assert (asked.payload, asked.headers) == (b'{"n":1}', {"x": "y"})
    assert asked.retry is not None
    assert (asked.retry.delays_s, asked.retry.attempts_max) == ((1, 2), 9)


@pytest.mark.parametrize(
    ("due_at_ms", "at_ms"),
    [(NOW_MS - 1, NOW_MS), (NOW_MS, NOW_MS), (NOW_MS + 1, NOW_MS + 1), (0, NOW_MS)],
)
def test_the_past_fires_at_once_and_keeps_its_due_time(due_at_ms: int, at_ms: int) -> None:
    made = pending(due_at_ms)
    assert (made.at_ms, made.asked.due_at_ms) == (at_ms, due_at_ms)


def test_a_local_time_is_kept_beside_its_instant() -> None:
    command = schedule(due_at=None, due_local="2026-12-01T09:00", time_zone="Europe/Berlin")
    asked = after(decided(None, command)).asked
    assert (asked.due_local, asked.time_zone) == ("2026-12-01T09:00", "Europe/Berlin")
    assert asked.due_at_ms == 1_796_112_000_000


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"due_at": 1_796_029_200}, "due_at"),
        ({"not_after": 1_796_029_200}, "not_after"),
        ({"due_at": -1}, "due_at"),
        ({"due_at": None, "due_local": "2026-02-30T09:00", "time_zone": "UTC"}, "due_local"),
        ({"due_at": None, "due_local": "2026-02-20T09:00", "time_zone": "Mars"}, "time_zone"),
    ],
)
def test_times_that_cannot_be_understood_are_refused_by_field(
    fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refused) as refused:
        decided(None, schedule(**fields))
    assert refused.value.field == field


VERSIONS = [
    # standing, asked, the same content, answer, changes
    (3, 4, True, "replaced", True),
    (3, 4, False, "replaced", True),
    (3, 3, True, "duplicate", False),
    (3, 3, False, "conflict", False),
    (3, 2, True, "stale_version", False),
    (3, 2, False, "stale_version", False),
    (0, 0, True, "duplicate", False),
    (0, 0, False, "conflict", False),
    (0, VERSION_MAX, False, "replaced", True),
]


@pytest.mark.parametrize("state", ["pending", "retrying", "claimed", "delivered", "dead"])
@pytest.mark.parametrize(("standing", "asked", "same", "answer", "changes"), VERSIONS)
def test_versions_of_a_schedule(
    state: str, standing: int, asked: int, same: bool, answer: str, changes: bool
) -> None:
    reminder = STANDING[state](version=standing, payload=1)
    command = schedule(
        version=asked, payload=1 if same else 2, due_at=DUE_MS + (answer == "replaced")
    )
    decision = decided(reminder, command, DUE_MS)
    assert status_of(decision) == answer
    assert (decision.reminder is not None) == changes
    if changes:
        made = after(decision)
        assert (made.asked.version, made.state, made.attempt) == (asked, State.PENDING, 0)
        assert made.entry is Entry.FIRE
    else:
        assert decision.emissions == ()


@pytest.mark.parametrize(
    "difference",
    [
        {"payload": 2},
        {"tenant": "other"},
        {"kind": "other"},
        {"group": "other"},
        {"destination": "topic:other"},
        {"headers": {"a": "b"}},
        {"not_after": LATER_MS},
        {"retry": {"delays_s": [1]}},
        {"due_at": LATER_MS},
        {"payload": None},
    ],
)
def test_any_difference_under_the_same_version_is_a_conflict(difference: dict[str, Any]) -> None:
    reminder = pending(payload=1)
    assert status_of(decided(reminder, schedule(payload=1))) == "duplicate"
    assert status_of(decided(reminder, schedule(**{"payload": 1, **difference}))) == "conflict"


def test_who_asked_and_why_are_no_difference() -> None:
    again = schedule(reason="other", actor="other", reply=True)
    assert status_of(decided(pending(), again)) == "duplicate"


def test_a_claimed_one_that_is_replaced_is_revoked() -> None:
    reminder = claimed()
    decision = decided(reminder, schedule(due_at=LATER_MS, version=1), DUE_MS)
    assert status_of(decision) == "replaced"
    assert decision.emissions == (Revoke("a", fire_id_of(reminder), "replaced"),)
    assert after(decision).at_ms == LATER_MS


def test_one_that_was_revoked_by_a_cancel_is_not_revoked_again() -> None:
    decision = decided(cancelling(), schedule(due_at=LATER_MS, version=1), DUE_MS)
    assert (status_of(decision), decision.emissions) == ("replaced", ())
    assert not after(decision).cancel_requested


@pytest.mark.parametrize("state", [*FINAL, "retrying"])
def test_what_is_not_out_is_not_revoked(state: str) -> None:
    decision = decided(STANDING[state](), schedule(due_at=LATER_MS, version=1), DUE_MS)
    assert (status_of(decision), decision.emissions) == ("replaced", ())


@pytest.mark.parametrize("state", FINAL)
def test_after_a_final_state_a_higher_version_starts_anew(state: str) -> None:
    made = after(decided(STANDING[state](), schedule(due_at=LATER_MS, version=1), DUE_MS))
    assert (made.state, made.entry, made.at_ms) == (State.PENDING, Entry.FIRE, LATER_MS)
    assert (made.attempt, made.failures, made.attempts, made.ended_by) == (0, 0, (), None)


# ---- one fire_id, once ----


@pytest.mark.parametrize("state", ["claimed", "cancelling", *FINAL])
@pytest.mark.parametrize("make", [schedule, reschedule])
def test_an_instant_that_has_fired_is_not_fired_again(state: str, make: Any) -> None:
    reminder = STANDING[state]()
    decision = decided(reminder, make(due_at=DUE_MS, version=9), DUE_MS)
    if state == "cancelled" and make is schedule:
        # It was cancelled before anything left, so the fire_id is unused.
        assert status_of(decision) == "replaced"
        return
    assert status_of(decision) == "already_final"
    assert (decision.reminder, decision.emissions) == (None, ())


def test_a_new_version_for_the_instant_of_a_failed_one_goes_on_with_its_attempts() -> None:
    reminder = retrying()
    made = after(decided(reminder, schedule(version=1, payload="new"), DUE_MS + 5))
    assert (made.attempt, made.failures, made.attempts) == (1, 1, reminder.attempts)
    assert (made.entry, made.at_ms) == (Entry.RETRY, reminder.at_ms)
    assert made.asked.payload == b'"new"'
    assert fired(made, made.at_ms).attempt == 2


def test_moved_away_and_back_to_an_instant_that_has_fired() -> None:
    """The second due event would bear the fire_id of the first, which was revoked."""
    moved = after(decided(claimed(), schedule(due_at=LATER_MS, version=1), DUE_MS))
    for command in (schedule(version=2), reschedule(), reschedule(version=7)):
        decision = decided(moved, command, DUE_MS + 1)
        assert status_of(decision) == "already_final"
        assert decision.reminder is None
    elsewhere = after(decided(moved, reschedule(due_at=LATER_MS + 1), DUE_MS + 1))
    assert elsewhere.fired_instants_ms == (DUE_MS,)


def test_a_triggered_one_is_not_moved_back_to_its_old_instant() -> None:
    early = fired(after(decided(pending(), trigger(), NOW_MS)), NOW_MS)
    moved = after(decided(early, reschedule(due_at=LATER_MS), NOW_MS + 1))
    assert status_of(decided(moved, reschedule(due_at=DUE_MS), NOW_MS + 2)) == "already_final"


def test_the_memory_of_fired_instants_is_bounded() -> None:
    reminder = pending()
    for number in range(FIRED_INSTANTS_KEPT_MAX + 5):
        reminder = after(
            decided(fired(reminder, DUE_MS + number), reschedule(due_at=DUE_MS + number + 1))
        )
    instants = reminder.fired_instants_ms
    assert len(instants) == FIRED_INSTANTS_KEPT_MAX
    assert instants[-1] == reminder.asked.due_at_ms - 1


def test_a_refused_target_does_not_use_up_the_instant() -> None:
    reminder = pending(destination="topic:t", retry={"delays_s": [1], "max_attempts": 1})
    dead = after(decisions.on_refused_target(reminder, "TOO_LARGE", DUE_MS, RULES))
    assert dead.state is State.DEAD
    made = after(decided(dead, schedule(version=1, destination="topic:u"), DUE_MS))
    assert (made.state, made.attempt) == (State.PENDING, 0)


# ---- cancel ----

CANCELS = [
    # version of the cancel against a standing 3, answer
    (None, "ends"),
    (3, "ends"),
    (4, "ends"),
    (2, "stale_version"),
    (0, "stale_version"),
]


@pytest.mark.parametrize(("version", "answer"), CANCELS)
@pytest.mark.parametrize("state", STANDING)
def test_a_cancel_in_every_state(state: str, version: int | None, answer: str) -> None:
    fields: dict[str, Any] = {} if version is None else {"version": version}
    reminder = STANDING[state](version=3)
    decision = decided(reminder, cancel(reason="paid", actor="shop", **fields), DUE_MS)
    if answer == "stale_version":
        assert status_of(decision) == answer
        assert (decision.reminder, decision.emissions) == (None, ())
        return
    if state in {"pending", "retrying"}:
        made = after(decision)
        assert status_of(decision) == "cancelled"
        assert decision.emissions == ()
        assert (made.state, made.entry) == (State.CANCELLED, Entry.EXPIRE)
        assert made.at_ms == DUE_MS + RULES.dedupe_retention_ms
        assert (made.ended_by, made.ended_why) == ("shop", "paid")
        assert made.cancelled_through == (version or 3)
    elif state == "claimed":
        made = after(decision)
        assert status_of(decision) == "cancel_requested"
        assert decision.emissions == (Revoke("a", fire_id_of(reminder), "paid"),)
        assert (made.state, made.cancel_requested) == (State.CLAIMED, True)
        assert made.at_ms == reminder.at_ms
    elif state == "cancelling":
        assert status_of(decision) == "cancel_requested"
        assert decision.emissions == ()
    else:
        assert status_of(decision) == "already_final"
        assert decision.emissions == ()
        left = decision.reminder or reminder
        assert (left.state, left.at_ms) == (reminder.state, reminder.at_ms)


@pytest.mark.parametrize("state", STANDING)
def test_a_cancel_of_a_version_that_has_not_come_is_remembered_in_every_state(state: str) -> None:
    reminder = STANDING[state](version=3)
    left = after(decided(reminder, cancel(version=6), DUE_MS))
    for version, answer in [(4, "cancelled"), (6, "cancelled"), (7, "replaced")]:
        decision = decided(left, schedule(due_at=LATER_MS, version=version), DUE_MS)
        assert status_of(decision) == answer, version
        assert (decision.reminder is None) == (answer == "cancelled")


def test_a_lower_cancel_does_not_shorten_the_memory_of_a_higher_one() -> None:
    left = after(decided(pending(version=3), cancel(version=6)))
    assert decided(left, cancel()).reminder is None
    assert decided(left, cancel(version=4)).reminder is None
    assert status_of(decided(left, schedule(version=5))) == "cancelled"


@pytest.mark.parametrize(
    ("cancel_version", "schedule_version", "answer"),
    [
        (None, 0, "cancelled"),
        (None, 1, "accepted"),
        (0, 0, "cancelled"),
        (5, 0, "cancelled"),
        (5, 5, "cancelled"),
        (5, 6, "accepted"),
    ],
)
def test_a_cancel_that_comes_before_its_schedule(
    cancel_version: int | None, schedule_version: int, answer: str
) -> None:
    fields: dict[str, Any] = {} if cancel_version is None else {"version": cancel_version}
    decision = decided(None, cancel(**fields))
    assert status_of(decision) == "not_found"
    memory = after(decision)
    assert (memory.entry, memory.at_ms) == (Entry.EXPIRE, NOW_MS + DAY_MS)
    assert memory.lane is Lane.FREE
    later = decided(memory, schedule(version=schedule_version), NOW_MS + DAY_MS - 1)
    assert status_of(later) == answer
    assert (later.reminder is None) == (answer == "cancelled")


def test_the_memory_of_a_cancel_is_no_reminder() -> None:
    memory = after(decided(None, cancel(version=2)))
    assert memory.asked.version == NEVER_SEEN
    assert status_of(decided(memory, trigger())) == "not_found"
    assert status_of(decided(memory, reschedule())) == "not_found"
    assert answered(memory).reminder is None
    again = decided(memory, cancel(), NOW_MS + 5)
    assert status_of(again) == "not_found"
    assert after(again).cancelled_through == 2
    assert after(again).at_ms == NOW_MS + 5 + DAY_MS
    assert after(decided(memory, cancel(version=9))).cancelled_through == 9


def test_the_memory_of_a_cancel_is_forgotten() -> None:
    memory = after(decided(None, cancel()))
    assert decisions.on_due(memory, memory.at_ms, RULES).forget


# ---- reschedule ----


@pytest.mark.parametrize("state", ["pending", "retrying", "claimed"])
def test_a_reschedule_moves_and_keeps_everything_else(state: str) -> None:
    reminder = STANDING[state](version=3, payload="p", tenant="t", headers={"a": "b"})
    command = reschedule(due_at=LATER_MS, reason="r", actor="w")
    decision = decided(reminder, command, DUE_MS)
    assert status_of(decision) == "rescheduled"
    made = after(decision)
    assert made.asked == replace(reminder.asked, version=4, due_at_ms=LATER_MS)
    assert (made.state, made.entry, made.at_ms) == (State.PENDING, Entry.FIRE, LATER_MS)
    assert (made.created_at_ms, made.changed_at_ms) == (NOW_MS, DUE_MS)
    assert (made.reason, made.actor) == ("r", "w")
    assert len(decision.emissions) == (state == "claimed")


@pytest.mark.parametrize(
    ("version", "due_at_ms", "answer", "becomes"),
    [
        (None, LATER_MS, "rescheduled", 4),
        (None, DUE_MS, "rescheduled", 4),
        (9, LATER_MS, "rescheduled", 9),
        (3, DUE_MS, "duplicate", None),
        (3, LATER_MS, "conflict", None),
        (2, LATER_MS, "stale_version", None),
    ],
)
def test_versions_of_a_reschedule(
    version: int | None, due_at_ms: int, answer: str, becomes: int | None
) -> None:
    fields: dict[str, Any] = {} if version is None else {"version": version}
    decision = decided(pending(version=3), reschedule(due_at=due_at_ms, **fields))
    assert status_of(decision) == answer
    assert (decision.reminder.asked.version if decision.reminder else None) == becomes


def test_a_reschedule_into_the_past_fires_at_once() -> None:
    made = after(decided(pending(), reschedule(due_at=NOW_MS - 5)))
    assert (made.at_ms, made.asked.due_at_ms) == (NOW_MS, NOW_MS - 5)


def test_a_reschedule_to_a_local_time_replaces_the_zone_and_back() -> None:
    local = reschedule(due_at=None, due_local="2026-12-01T09:00", time_zone="Europe/Berlin")
    moved = after(decided(pending(), local))
    assert (moved.asked.due_local, moved.asked.time_zone) == ("2026-12-01T09:00", "Europe/Berlin")
    back = after(decided(moved, reschedule(due_at=LATER_MS))).asked
    assert (back.due_local, back.time_zone) == (None, None)


def test_nothing_to_reschedule() -> None:
    assert decided(None, reschedule()) == Decision(events.ReplyStatus.NOT_FOUND)


@pytest.mark.parametrize("state", FINAL)
@pytest.mark.parametrize("fields", [{}, {"version": 99}])
def test_a_final_one_is_not_rescheduled(state: str, fields: dict[str, Any]) -> None:
    decision = decided(STANDING[state](), reschedule(due_at=LATER_MS, **fields), DUE_MS)
    assert (status_of(decision), decision.reminder) == ("already_final", None)


def test_a_reschedule_does_not_take_back_a_cancel_that_is_on_its_way() -> None:
    for command in (reschedule(due_at=LATER_MS), reschedule(due_at=LATER_MS, version=99)):
        decision = decided(cancelling(), command, DUE_MS)
        assert (status_of(decision), decision.reminder) == ("already_final", None)


def test_a_reschedule_below_a_remembered_cancel_is_refused() -> None:
    left = after(decided(ended(), cancel(version=6), DUE_MS))
    assert status_of(decided(left, reschedule(due_at=LATER_MS, version=5))) == "cancelled"


# ---- trigger ----


@pytest.mark.parametrize("state", ["pending", "retrying"])
def test_a_trigger_makes_a_waiting_one_due_now(state: str) -> None:
    reminder = STANDING[state]()
    decision = decided(reminder, trigger(), NOW_MS + 7)
    assert (status_of(decision), decision.emissions) == ("accepted", ())
    made = after(decision)
    assert made == replace(reminder, at_ms=NOW_MS + 7, changed_at_ms=NOW_MS + 7)
    assert fire_id_of(made) == fire_id_of(reminder)
    assert fired(made, NOW_MS + 7).attempt == reminder.attempt + 1


@pytest.mark.parametrize("state", ["claimed", "cancelling", *FINAL])
def test_a_trigger_does_nothing_to_what_has_left(state: str) -> None:
    decision = decided(STANDING[state](), trigger(), DUE_MS)
    assert (status_of(decision), decision.reminder) == ("already_final", None)


def test_nothing_to_trigger() -> None:
    assert decided(None, trigger()) == Decision(events.ReplyStatus.NOT_FOUND)


# ---- nothing is changed in passing ----


@pytest.mark.parametrize("state", STANDING)
@pytest.mark.parametrize("command", [schedule(version=9), cancel(), reschedule(), trigger()])
def test_decisions_leave_their_input_alone(state: str, command: Command) -> None:
    reminder = STANDING[state]()
    before = replace(reminder)
    first = decided(reminder, command, DUE_MS)
    assert reminder == before
    assert decided(reminder, command, DUE_MS) == first
