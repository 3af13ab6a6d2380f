"""How data looks to people."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from schemas import instants
from streams.console.output import printable
from streams.console.times import said_from_now

BAR_CELLS: Final = 30
TENANTS_SHOWN_MAX: Final = 5
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_GOOD: Final = {
    "accepted", "replaced", "rescheduled", "cancelled", "delivered", "sent", "pending"
}  # fmt: skip
_BAD: Final = {"rejected", "conflict", "dead", "not_found", "bounced"}
_WITHOUT_TIME: Final = {"not_found", "cancelled", "rejected"}
"""Answers after which nothing is due; a cancel that came first never knew a time."""

_EXPLAINED: Final = {
    "duplicate": "the same was asked before; nothing changed",
    "conflict": "another content stands under the same version; nothing changed",
    "cancel_requested": "it had already been handed over; a revocation is on its way",
    "already_final": "it is over already; nothing changed",
    "not_found": "no such reminder",
    "stale_version": "a higher version stands; nothing changed",
}


def status(word: str) -> Text:
    """A state or an answer in its colour."""
    return Text(printable(word), "green" if word in _GOOD else "red" if word in _BAD else "yellow")


def time(text: str, now_ms: int) -> Text:
    """An instant and how far away it is."""
    at_ms = instants.milliseconds(datetime.fromisoformat(text))
    return Text.assemble(printable(text), (f"  {said_from_now(at_ms, now_ms)}", "dim"))


def reply(shown: dict[str, Any], now_ms: int) -> RenderableType:
    """A processor's answer, in a line."""
    line = Text.assemble(Text(printable(shown["id"]), "bold"), ": ", status(shown["status"]))
    if shown.get("version") is not None:
        line.append(f", version {shown['version']}")
    if shown.get("due_at") and shown["status"] not in _WITHOUT_TIME:
        line.append(", due ").append(time(shown["due_at"], now_ms))
    said = shown.get("detail") or _EXPLAINED.get(shown["status"])
    if said:
        line.append(f" ({printable(said)})")
    return line


def sent(shown: dict[str, Any]) -> RenderableType:
    """A command that nobody waits for."""
    place = shown["command"]
    return Text.assemble(
        Text(printable(shown["id"]), "bold"),
        f": {shown['status']}, at {place['topic']}, partition {place['partition']}, "
        f"offset {place['offset']}",
    )


def reminder(shown: dict[str, Any], now_ms: int) -> RenderableType:
    """A reminder: what was asked, when, what became of it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in shown.items():
        if value is None or value in ([], {}, False, "") or name == "attempts":
            continue
        table.add_row(name.replace("_", " "), _cell(name, value, now_ms))
    attempts = shown.get("attempts")
    return Group(table, Text(), _attempts(attempts, now_ms)) if attempts else table


def _cell(name: str, value: Any, now_ms: int) -> Text:
    if name == "state":
        return status(value)
    if name.endswith(("_at", "_after")) and isinstance(value, str):
        return time(value, now_ms)
    if isinstance(value, str) and name != "payload":
        return Text(printable(value))
    return Text(_json(value))


def _json(value: Any) -> str:
    import json

    return printable(json.dumps(value, ensure_ascii=False))


def _attempts(attempts: list[dict[str, Any]], now_ms: int) -> Table:
    table = Table("attempt", "at", "status", "detail", box=None, padding=(0, 2, 0, 0))
    for attempt in attempts:
        table.add_row(
            str(attempt.get("attempt", "")),
            time(attempt["at"], now_ms),
            status(attempt["status"]),
            Text(printable(attempt.get("detail") or "")),
        )
    return table


def due(shown: dict[str, Any]) -> RenderableType:
    """What is owed, a bar for each bucket, with the tenants behind it."""
    buckets = shown["buckets"]
    total = Text(f"{shown['pending']:,} pending")
    if not buckets:
        return Group(total, Text("nothing is due in this span of time", "dim"))
    most = max(bucket["count"] for bucket in buckets)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(printable(shown["by"]), no_wrap=True)
    table.add_column("due", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, style="cyan")
    table.add_column("tenants", overflow="fold")
    for bucket in buckets:
        table.add_row(
            Text(_bucket_time(bucket["at"], shown["by"])),
            f"{bucket['count']:,}",
            bar(bucket["count"], most),
            Text(_tenants(bucket.get("tenants") or {})),
        )
    return Group(total, table)


def bar(count: int, most: int) -> str:
    """A bar as long as `count` is of `most`; never empty for a count above 0."""
    if count <= 0 or most <= 0:
        return ""
    eighths = max(1, round(count / most * BAR_CELLS * 8))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _bucket_time(at: str, by: str) -> str:
    if by == "day":
        return printable(at[:10])
    return printable(f"{at[:10]} {at[11:16]}Z" if len(at) >= 16 else at)


def _tenants(tenants: dict[str, int]) -> str:
    ordered = sorted(tenants.items(), key=lambda each: (-each[1], each[0]))
    said = [f"{printable(name)} {count:,}" for name, count in ordered[:TENANTS_SHOWN_MAX]]
    if len(ordered) > TENANTS_SHOWN_MAX:
        said.append(f"and {len(ordered) - TENANTS_SHOWN_MAX} more")
    return ", ".join(said)
