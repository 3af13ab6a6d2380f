"""What a command, an outcome or the passing of time means for one reminder.

Every function here is pure: it takes the reminder as it stands (None if there is none), what
happened, and the instant; it returns a `Decision` and changes nothing. The records in a decision
become true when the turn commits, through `Partition`, and through nothing else.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from buckets import calendar
from buckets.rules import Rules
from schemas import commands, instants
from schemas.commands import Cancel, Command, Reschedule, Schedule
from schemas.events import Outcome, ReplyStatus, Status, fire_id_of
from schemas.limits import ATTEMPTS_KEPT_MAX, FIRED_INSTANTS_KEPT_MAX
from schemas.reminder import Asked, Attempt, Entry, Reminder, RetryRule, State

NEVER_SEEN: Final = -1
"""The version of the memory of a cancel that came before any schedule."""


class Fire(Struct, frozen=True, gc=False):
    """A due event leaves for the reminder's destination."""

    reminder: Reminder


class Revoke(Struct, frozen=True):
    """A due event that left is taken back."""

    id: str
    fire_id: str
    reason: str | None


class Bury(Struct, frozen=True):
    """A dead letter is written."""

    reminder: Reminder
    reason: str


Emission = Fire | Revoke | Bury


class Decision(Struct, frozen=True, gc=False):
    """What is to be written.

    `reminder` is the new record, None if nothing changes; `forget` asks for its removal.
    """

    status: ReplyStatus
    reminder: Reminder | None = None
    emissions: tuple[Emission, ...] = ()
    detail: str | None = None
    forget: bool = False


def on_command(
    standing: Reminder | None,
    command: Command,
    now_ms: int,
    rules: Rules,
    trace_parent: str | None = None,
) -> Decision:
    """What a command does. Raises `Refused` where its times cannot be understood."""
    if isinstance(command, Schedule):
        return _schedule(standing, command, now_ms, trace_parent)
    if isinstance(command, Cancel):
        return _cancel(standing, command, now_ms, rules)
    if isinstance(command, Reschedule):
        return _reschedule(standing, command, now_ms)
    return _trigger(standing, now_ms)


def _schedule(
    standing: Reminder | None, command: Schedule, now_ms: int, trace_parent: str | None
) -> Decision:
    asked = _asked(command)
    fresh = Reminder(
        id=command.id,
        asked=asked,
        state=State.PENDING,
        entry=Entry.FIRE,
        at_ms=max(asked.due_at_ms, now_ms),
        created_at_ms=now_ms,
        changed_at_ms=now_ms,
        reply=command.reply,
        reason=command.reason,
        actor=command.actor,
        trace_parent=trace_parent,
    )
    if standing is None:
        return Decision(ReplyStatus.ACCEPTED, fresh)
    current = standing.asked
    if asked.version == current.version:
        status = ReplyStatus.DUPLICATE if asked == current else ReplyStatus.CONFLICT
        return Decision(status)
    if standing.cancelled_through is not None and asked.version <= standing.cancelled_through:
        return Decision(ReplyStatus.CANCELLED, detail="a cancel came before it")
    if asked.version < current.version:
        return Decision(ReplyStatus.STALE_VERSION, detail=f"version {current.version} stands")
    if current.version == NEVER_SEEN:
        return Decision(ReplyStatus.ACCEPTED, fresh)
    return _replace(standing, fresh, ReplyStatus.REPLACED)


def _replace(standing: Reminder, fresh: Reminder, status: ReplyStatus) -> Decision:
    """A higher version takes the place of the one that stands.

    The instant is what the fire_id depends on, and the fire_id is the receiver's idempotency key:
    what has left under it cannot be unsaid, and sending again under it would be ignored. So no
    version is taken for an instant that this one or an earlier one has fired for, except while
    the standing one waits to try again: then the attempts go on.
    """
    due_at_ms, standing_at_ms = fresh.asked.due_at_ms, standing.asked.due_at_ms
    has_fired = standing.fired_at_ms is not None
    going_on = has_fired and due_at_ms == standing_at_ms
    used_up = standing.fired_instants_ms
    if has_fired and not going_on:
        used_up = (*used_up, standing_at_ms)[-FIRED_INSTANTS_KEPT_MAX:]
    if due_at_ms in used_up or (going_on and standing.state is not State.PENDING):
        return Decision(ReplyStatus.ALREADY_FINAL, detail="it has fired for this instant")
    if used_up:
        fresh = replace(fresh, fired_instants_ms=used_up)
    if going_on:
        fresh = replace(
            fresh,
            entry=standing.entry,
            at_ms=standing.at_ms,
            attempt=standing.attempt,
            failures=standing.failures,
            fired_at_ms=standing.fired_at_ms,
            attempts=standing.attempts,
        )
    if standing.state is State.CLAIMED and not standing.cancel_requested:
        revoke = Revoke(standing.id, fire_id_of(standing), "replaced")
        return Decision(status, fresh, (revoke,))
    return Decision(status, fresh)


def _asked(command: Schedule) -> Asked:
    due_at_ms = commands.due_ms(command)
    if due_at_ms is None:
        due_at_ms = _local_ms(command)
    not_after = command.not_after
    payload = bytes(command.payload)
    return Asked(
        command.version,
        due_at_ms,
        command.tenant,
        command.kind,
        command.group,
        command.destination,
        payload or None,
        command.payload_ref,
        command.headers or None,
        None if not_after is None else instants.accept(not_after, "not_after"),
        None if command.retry is None else _retry_rule(command.retry),
        command.due_local,
        command.time_zone,
    )


def _retry_rule(retry: commands.Retry) -> RetryRule:
    return RetryRule(tuple(retry.delays_s), retry.max_attempts or len(retry.delays_s) + 1)


def _local_ms(command: Schedule | Reschedule) -> int:
    assert command.due_local is not None, "decoding lets no command without a time pass"
    assert command.time_zone is not None, "decoding lets no local time without a zone pass"
    return calendar.instant_ms(command.due_local, command.time_zone)


def _cancel(standing: Reminder | None, command: Cancel, now_ms: int, rules: Rules) -> Decision:
    version = command.version
    if standing is None or standing.asked.version == NEVER_SEEN:
        memory = _memory_of_cancel(standing, command, now_ms, rules)
        return Decision(ReplyStatus.NOT_FOUND, memory)
    current = standing.asked.version
    if version is not None and version < current:
        return Decision(ReplyStatus.STALE_VERSION, detail=f"version {current} stands")
    through = max(current if version is None else version, standing.cancelled_through or 0)
    if standing.state is State.PENDING:
        ended = _end(standing, State.CANCELLED, now_ms, rules, command.actor, command.reason)
        return Decision(ReplyStatus.CANCELLED, replace(ended, cancelled_through=through))
    if standing.state is State.CLAIMED:
        return _request_cancel(standing, command, through, now_ms)
    if version is not None and version > current and through != standing.cancelled_through:
        # The version it ends has not come yet: remembered, so that it is refused when it does.
        remembered = replace(standing, cancelled_through=through, changed_at_ms=now_ms)
        return Decision(ReplyStatus.ALREADY_FINAL, remembered)
    return Decision(ReplyStatus.ALREADY_FINAL, detail=standing.state.wire)


def _request_cancel(standing: Reminder, command: Cancel, through: int, now_ms: int) -> Decision:
    """It has left: a revocation follows on the same key, and may or may not overtake it."""
    if standing.cancel_requested:
        if through == standing.cancelled_through:
            return Decision(ReplyStatus.CANCEL_REQUESTED)
        # Revoked already; but a version that has not come yet is to be refused when it does.
        remembered = replace(standing, cancelled_through=through, changed_at_ms=now_ms)
        return Decision(ReplyStatus.CANCEL_REQUESTED, remembered)
    requested = replace(
        standing,
        cancel_requested=True,
        cancelled_through=through,
        changed_at_ms=now_ms,
        ended_by=command.actor,
        ended_why=command.reason,
    )
    revoke = Revoke(standing.id, fire_id_of(standing), command.reason)
    return Decision(ReplyStatus.CANCEL_REQUESTED, requested, (revoke,))


def _memory_of_cancel(
    standing: Reminder | None, command: Cancel, now_ms: int, rules: Rules
) -> Reminder:
    """A cancel overtook its schedule: kept so that the schedule is refused when it comes."""
    version = command.version or 0
    if standing is not None and standing.cancelled_through is not None:
        version = max(version, standing.cancelled_through)
    nothing = Asked(
        NEVER_SEEN, 0, "default", "reminder", None, "due", None, None, None, None, None, None, None
    )
    return Reminder(
        id=command.id,
        asked=nothing,
        state=State.CANCELLED,
        entry=Entry.EXPIRE,
        at_ms=now_ms + rules.cancel_memory_ms,
        created_at_ms=now_ms,
        changed_at_ms=now_ms,
        cancelled_through=version,
        ended_by=command.actor,
        ended_why=command.reason,
    )


def _reschedule(standing: Reminder | None, command: Reschedule, now_ms: int) -> Decision:
    due_at_ms = commands.due_ms(command)
    if due_at_ms is None:
        due_at_ms = _local_ms(command)
    if standing is None or standing.asked.version == NEVER_SEEN:
        return Decision(ReplyStatus.NOT_FOUND)
    current = standing.asked
    version = current.version + 1 if command.version is None else command.version
    if version < current.version:
        return Decision(ReplyStatus.STALE_VERSION, detail=f"version {current.version} stands")
    if version == current.version:
        same = due_at_ms == current.due_at_ms
        return Decision(ReplyStatus.DUPLICATE if same else ReplyStatus.CONFLICT)
    if standing.cancelled_through is not None and version <= standing.cancelled_through:
        return Decision(ReplyStatus.CANCELLED, detail="a cancel came before it")
    if standing.cancel_requested:
        # As if the cancel had come in time: only a new schedule begins anew.
        return Decision(ReplyStatus.ALREADY_FINAL, detail="a cancel is on its way")
    if standing.state not in {State.PENDING, State.CLAIMED}:
        return Decision(ReplyStatus.ALREADY_FINAL, detail=standing.state.wire)
    moved = Reminder(
        id=standing.id,
        asked=replace(
            current,
            version=version,
            due_at_ms=due_at_ms,
            due_local=command.due_local,
            time_zone=command.time_zone,
        ),
        state=State.PENDING,
        entry=Entry.FIRE,
        at_ms=max(due_at_ms, now_ms),
        created_at_ms=standing.created_at_ms,
        changed_at_ms=now_ms,
        reply=standing.reply,
        cancelled_through=standing.cancelled_through,
        reason=command.reason,
        actor=command.actor,
        trace_parent=standing.trace_parent,
    )
    return _replace(standing, moved, ReplyStatus.RESCHEDULED)


def _trigger(standing: Reminder | None, now_ms: int) -> Decision:
    if standing is None or standing.asked.version == NEVER_SEEN:
        return Decision(ReplyStatus.NOT_FOUND)
    if standing.state is not State.PENDING:
        return Decision(ReplyStatus.ALREADY_FINAL, detail=standing.state.wire)
    return Decision(ReplyStatus.ACCEPTED, replace(standing, at_ms=now_ms, changed_at_ms=now_ms))


def on_due(standing: Reminder, now_ms: int, rules: Rules) -> Decision:
    """What it means that the wheel has turned to a reminder's entry."""
    if standing.entry is Entry.EXPIRE:
        return Decision(ReplyStatus.ACCEPTED, forget=True)
    asked = standing.asked
    if standing.cancel_requested:
        # Its lease ran out unanswered after the revocation: nobody is going to send it any more.
        ended = _end(
            standing, State.CANCELLED, now_ms, rules, standing.ended_by, standing.ended_why
        )
        return Decision(ReplyStatus.ACCEPTED, ended)
    if asked.not_after_ms is not None and now_ms > asked.not_after_ms:
        return Decision(ReplyStatus.ACCEPTED, _end(standing, State.STALE, now_ms, rules))
    if asked.destination.startswith("topic:"):
        # Fired and delivered are one here: the record is in the target by the same transaction.
        state, entry, wait_ms = State.DELIVERED, Entry.EXPIRE, rules.dedupe_retention_ms
    else:
        # A lease that runs out is no failure: silence is asked again, and only `not_after` ends it.
        state, entry, wait_ms = State.CLAIMED, Entry.LEASE, rules.lease_ms
    fired = replace(
        standing,
        state=state,
        entry=entry,
        at_ms=now_ms + wait_ms,
        attempt=standing.attempt + 1,
        fired_at_ms=now_ms,
        changed_at_ms=now_ms,
    )
    return Decision(ReplyStatus.ACCEPTED, fired, (Fire(fired),))


_ENDS: Final[dict[Status, State]] = {
    Status.DELIVERED: State.DELIVERED,
    Status.BOUNCED: State.BOUNCED,
    Status.SUPPRESSED: State.SUPPRESSED,
    Status.STALE: State.STALE,
    Status.CANCELLED: State.CANCELLED,
    Status.REJECTED: State.DEAD,
    Status.AMBIGUOUS: State.DEAD,
}


def on_outcome(standing: Reminder | None, outcome: Outcome, now_ms: int, rules: Rules) -> Decision:
    """What an answer to a due event does. The first final one of a fire_id counts."""
    if standing is None or not _answers(standing, outcome):
        return Decision(ReplyStatus.DUPLICATE)
    attempt = Attempt(outcome.attempt, now_ms, outcome.status, outcome.detail or "")
    tried = replace(standing, attempts=(*standing.attempts, attempt)[-ATTEMPTS_KEPT_MAX:])
    if outcome.status is Status.FAILED:
        return _failed(tried, now_ms, rules, outcome.retry_after_s)
    if outcome.status is Status.ACCEPTED:
        sent = _end(tried, State.SENT, now_ms, rules, standing.ended_by, standing.ended_why)
        return Decision(ReplyStatus.ACCEPTED, sent)
    why = standing.ended_why or outcome.detail
    ended = _end(tried, _ENDS[outcome.status], now_ms, rules, standing.ended_by, why)
    buried = (Bury(ended, outcome.status),) if ended.state is State.DEAD else ()
    return Decision(ReplyStatus.ACCEPTED, ended, buried)


def _answers(standing: Reminder, outcome: Outcome) -> bool:
    """Whether an outcome is an answer this reminder still waits for."""
    if standing.fired_at_ms is None or outcome.attempt > standing.attempt:
        # Nothing has left that could be answered: an attempt may have been refused by a topic.
        return False
    if outcome.fire_id != fire_id_of(standing):
        return False
    if standing.state is State.SENT:
        return outcome.status in {Status.DELIVERED, Status.BOUNCED}
    if outcome.status is Status.FAILED:
        return standing.state is State.CLAIMED and outcome.attempt == standing.attempt
    # A receiver that answers after its attempt was given up has answered all the same.
    return standing.state in {State.CLAIMED, State.PENDING}


def on_refused_target(standing: Reminder, error: str, now_ms: int, rules: Rules) -> Decision:
    """A target topic would not take the record: one failed attempt of this reminder alone.

    Nothing has left, so `fired_at_ms` stays as it was and the fire_id is not used up.
    """
    number = standing.attempt + 1
    attempt = Attempt(number, now_ms, Status.FAILED, error)
    tried = replace(
        standing,
        attempt=number,
        attempts=(*standing.attempts, attempt)[-ATTEMPTS_KEPT_MAX:],
    )
    return _failed(tried, now_ms, rules, None)


def _failed(tried: Reminder, now_ms: int, rules: Rules, retry_after_s: float | None) -> Decision:
    """An attempt failed: back into the wheel, or given up."""
    if tried.cancel_requested:
        ended = _end(tried, State.CANCELLED, now_ms, rules, tried.ended_by, tried.ended_why)
        return Decision(ReplyStatus.ACCEPTED, ended)
    failures = tried.failures + 1
    delay_ms = rules.retry_delay_ms(tried.asked, failures, retry_after_s)
    if delay_ms is None:
        dead = _end(replace(tried, failures=failures), State.DEAD, now_ms, rules)
        return Decision(ReplyStatus.ACCEPTED, dead, (Bury(dead, "attempts_exhausted"),))
    waiting = replace(
        tried,
        state=State.PENDING,
        entry=Entry.RETRY,
        at_ms=now_ms + delay_ms,
        failures=failures,
        changed_at_ms=now_ms,
    )
    return Decision(ReplyStatus.ACCEPTED, waiting)


def _end(
    standing: Reminder,
    state: State,
    now_ms: int,
    rules: Rules,
    actor: str | None = None,
    reason: str | None = None,
) -> Reminder:
    """The reminder ended, remembered for a while so that a late duplicate is recognised."""
    return replace(
        standing,
        state=state,
        entry=Entry.EXPIRE,
        at_ms=now_ms + rules.dedupe_retention_ms,
        changed_at_ms=now_ms,
        ended_by=actor,
        ended_why=reason,
    )
