"""The command `due`: what do we owe, and when."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from streams.console.options import add
from streams.console.parameters import Node, NodeTimeout
from streams.console.session import Session


class By(StrEnum):
    """How wide a bucket is."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


def due(
    session: Session,
    by: Annotated[By, typer.Option("--by", help="How wide a bucket is.")] = By.HOUR,
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="RFC 3339, now, or +2h.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="RFC 3339, or +2d.")
    ] = None,
    node: Node = None,
    timeout: NodeTimeout = 5.0,
) -> None:
    """Show what is owed and when, as a bar for each minute, hour or day.

    Example: minutewheel due --by hour --from now --to +2d
    """
    from streams.console import views
    from streams.console.nodes import Nodes

    query = {"by": by.value}
    for name, text in (("from", start), ("to", end)):
        if text is not None:
            query[name] = _time(session, text, name)
    nodes = Nodes(session.settings(), session.clock, node)
    body = nodes.due(query, timeout)
    if session.output.form == "jsonl":
        import msgspec

        session.output.show_all(msgspec.json.decode(body)["buckets"], views.due)
    else:
        session.output.show(body, views.due)


def _time(session: Session, text: str, field: str) -> str:
    """An instant as the HTTP interface takes it. Raises `Refused` naming `field`."""
    from schemas import instants
    from streams.console import times

    found = times.instant(text, session.clock.now_ms(), field)
    instant = found if isinstance(found, int) else instants.parse(found, field)
    return instants.text(instants.accept(instant, field))


def register(app: typer.Typer) -> None:
    """Put the command under its name."""
    add(app, "due", due)
