"""The commands about one reminder: schedule, get, cancel, reschedule, trigger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streams.console.failures import Usage
from streams.console.options import add
from streams.console.session import Session

Id = Annotated[str, typer.Argument(metavar="ID", help="The reminder's id.")]
Version = Annotated[int | None, typer.Option("--version", metavar="N", help="Its version.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept for the audit.")]
Actor = Annotated[str | None, typer.Option("--actor", help="Who; kept for the audit.")]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIME", help="RFC 3339 with offset, epoch milliseconds, now, or +1h30m."
    ),
]
Local = Annotated[
    str | None, typer.Option("--local", metavar="TIME", help="A local time: 2026-12-01T09:00.")
]
Zone = Annotated[
    str | None, typer.Option("--time-zone", metavar="ZONE", help="Where --local is: Europe/Berlin.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the processor's answer.")]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for it.")
]


def schedule(
    session: Session,
    id: Annotated[  # noqa: A002 - it names the argument in the help
        str | None, typer.Argument(metavar="ID", help="The reminder's id: its idempotency key.")
    ] = None,
    at: At = None,
    local: Local = None,
    time_zone: Zone = None,
    version: Version = None,
    tenant: Annotated[str | None, typer.Option("--tenant")] = None,
    kind: Annotated[str | None, typer.Option("--kind")] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="A business key, such as a shipment.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DESTINATION",
            help="due, topic:NAME, https://…, mailto:… or channel:NAME. Default: due.",
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON", help="JSON, @file, or - for standard input."),
    ] = None,
    payload_ref: Annotated[
        str | None, typer.Option("--payload-ref", metavar="URI", help="Instead of a payload.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    not_after: Annotated[
        str | None,
        typer.Option("--not-after", metavar="TIME", help="Later than this it is never sent."),
    ] = None,
    retry_delays: Annotated[
        str | None, typer.Option("--retry-delays", metavar="SECONDS,…", help="Such as 30,300.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N")] = None,
    reason: Reason = None,
    actor: Actor = None,
    wait: Wait = True,
    timeout: Timeout = 10.0,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Many commands: .jsonl, .csv, or -."),
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="jsonl or csv, where the name does not say it.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Send the good lines although others are bad.")
    ] = False,
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
    node: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Ask this node, not the id's owner."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="For a node that is starting.")
    ] = 5.0,
) -> None:
    """Show a reminder: what was asked, when it fires, what became of it.

    Example: minutewheel get order-17
    """
    from streams.console import views
    from streams.console.nodes import Nodes

    body = Nodes(session.client_settings(), session.clock, node).reminder(id, timeout)
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
