"""What the commands take, each option once: its type, its name and its line in the help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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

NewId = Annotated[
    str | None, typer.Argument(metavar="ID", help="The reminder's id: its idempotency key.")
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Whose it is. Default: default.")]
Kind = Annotated[str | None, typer.Option("--kind", help="What it is about. Default: reminder.")]
Group = Annotated[str | None, typer.Option("--group", help="A business key, such as a shipment.")]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DESTINATION",
        help="due, topic:NAME, https://…, mailto:… or channel:NAME. Default: due.",
    ),
]
Payload = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", help="JSON, @file, or - for standard input."),
]
PayloadRef = Annotated[
    str | None, typer.Option("--payload-ref", metavar="URI", help="Instead of a payload.")
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Passed on; may be repeated."),
]
NotAfter = Annotated[
    str | None,
    typer.Option("--not-after", metavar="TIME", help="Later than this it is never sent."),
]
RetryDelays = Annotated[
    str | None,
    typer.Option("--retry-delays", metavar="SECONDS,…", help="Waits after failures: 30,300."),
]
AttemptsMax = Annotated[
    int | None, typer.Option("--max-attempts", metavar="N", help="How often it is tried.")
]
File = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="Many commands: .jsonl, .csv, or -.")
]
FileFormat = Annotated[
    str | None, typer.Option("--format", help="jsonl or csv, where the name does not say it.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Send the good lines although others are bad.")
]
Node = Annotated[
    str | None,
    typer.Option("--http", metavar="HOST:PORT", help="Ask this node, not the one Kafka names."),
]
NodeTimeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="For a node that is starting.")
]
