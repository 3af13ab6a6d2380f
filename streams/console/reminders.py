"""The commands about one reminder: schedule, get, cancel, reschedule, trigger."""

from __future__ import annotations

from typing import Any

import typer

from streams.console.failures import Usage
from streams.console.options import add
from streams.console.parameters import (
    Actor,
    At,
    AttemptsMax,
    File,
    FileFormat,
    Group,
    Header,
    Id,
    Kind,
    Local,
    NewId,
    Node,
    NodeTimeout,
    NotAfter,
    Payload,
    PayloadRef,
    Reason,
    RetryDelays,
    SkipBad,
    Tenant,
    Timeout,
    To,
    Version,
    Wait,
    Zone,
)
from streams.console.session import Session


def schedule(
    session: Session,
    id: NewId = None,  # noqa: A002 - it names the argument in the help
    at: At = None,
    local: Local = None,
    time_zone: Zone = None,
    version: Version = None,
    tenant: Tenant = None,
    kind: Kind = None,
    group: Group = None,
    to: To = None,
    payload: Payload = None,
    payload_ref: PayloadRef = None,
    header: Header = None,
    not_after: NotAfter = None,
    retry_delays: RetryDelays = None,
    max_attempts: AttemptsMax = None,
    reason: Reason = None,
    actor: Actor = None,
    wait: Wait = True,
    timeout: Timeout = 10.0,
    file: File = None,
    file_format: FileFormat = None,
    skip_bad: SkipBad = False,
) -> None:
    """Remind at an instant, or send a whole file of commands.

    Example: minutewheel schedule order-17 --at +2h --to channel:log --payload '{"order": 17}'
    """
    from streams.console import fields

    one: dict[str, Any] = {
        "version": version,
        "tenant": tenant,
        "kind": kind,
        "group": group,
        "destination": to,
        "payload_ref": payload_ref,
        "headers": fields.headers(header),
        "retry": fields.retry(retry_delays, max_attempts),
        "reason": reason,
        "actor": actor,
    }
    if file is not None:
        typed = [id, at, local, time_zone, payload, not_after, *one.values()]
        if any(value is not None for value in typed):
            raise Usage("--file brings its own fields: give a file, or one reminder, not both")
        from streams.console.bulk import send_file

        send_file(session, file, file_format, skip_bad=skip_bad)
        return
    if id is None:
        raise Usage("give the ID of a reminder, or --file with many")
    one |= {"id": id, "payload": fields.payload(payload)} | when(session, at, local, time_zone)
    one["not_after"] = instant(session, not_after, "not_after")
    command(session, "schedule", one, wait=wait, timeout_s=timeout)


def cancel(
    session: Session,
    id: Id,  # noqa: A002
    version: Version = None,
    reason: Reason = None,
    actor: Actor = None,
    wait: Wait = True,
    timeout: Timeout = 10.0,
) -> None:
    """End a reminder; with --version, only that version or a lower one.

    Example: minutewheel cancel order-17 --reason 'paid'
    """
    asked = {"id": id, "version": version, "reason": reason, "actor": actor}
    command(session, "cancel", asked, wait=wait, timeout_s=timeout)


def reschedule(
    session: Session,
    id: Id,  # noqa: A002
    at: At = None,
    local: Local = None,
    time_zone: Zone = None,
    version: Version = None,
    reason: Reason = None,
    actor: Actor = None,
    wait: Wait = True,
    timeout: Timeout = 10.0,
) -> None:
    """Move a reminder to another time and keep everything else of it.

    Example: minutewheel reschedule order-17 --local 2026-12-01T09:00 --time-zone Europe/Berlin
    """
    asked = {"id": id, "version": version, "reason": reason, "actor": actor}
    asked |= when(session, at, local, time_zone)
    command(session, "reschedule", asked, wait=wait, timeout_s=timeout)


def trigger(
    session: Session,
    id: Id,  # noqa: A002
    reason: Reason = None,
    actor: Actor = None,
    wait: Wait = True,
    timeout: Timeout = 10.0,
) -> None:
    """Fire a pending reminder now.

    Example: minutewheel trigger order-17
    """
    asked = {"id": id, "reason": reason, "actor": actor}
    command(session, "trigger", asked, wait=wait, timeout_s=timeout)


def get(
    session: Session,
    id: Id,  # noqa: A002
    node: Node = None,
    timeout: NodeTimeout = 5.0,
) -> None:
    """Show a reminder: what was asked, when it fires, what became of it.

    Example: minutewheel get order-17
    """
    from streams.console import views
    from streams.console.nodes import Nodes

    body = Nodes(session.settings(), session.clock, node).reminder(id, timeout)
    session.output.show(body, lambda shown: views.reminder(shown, session.clock.now_ms()))


def when(
    session: Session, at: str | None, local: str | None, time_zone: str | None
) -> dict[str, Any]:
    """The fields that say when."""
    return {
        "due_at": instant(session, at, "due_at"),
        "due_local": local,
        "time_zone": time_zone,
    }


def instant(session: Session, text: str | None, field: str) -> str | int | None:
    """A time as typed, in a command's terms."""
    from streams.console import times

    return None if text is None else times.instant(text, session.clock.now_ms(), field)


def command(
    session: Session, kind: str, asked: dict[str, Any], *, wait: bool, timeout_s: float
) -> None:
    """Check and send one command, and say what became of it."""
    from streams.console import asking, fields

    # An answer is asked for only where somebody waits for it.
    made = fields.command(kind, asked | {"reply": True if wait else None})
    asking.send(session, made, timeout_s if wait else None)


def register(app: typer.Typer) -> None:
    """Put these commands under their names."""
    for function in (schedule, get, cancel, reschedule, trigger):
        add(app, function.__name__, function)
