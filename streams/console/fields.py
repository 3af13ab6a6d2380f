"""Commands from what was typed: options to fields, fields to a command that will be accepted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from buckets import calendar
from schemas import commands, instants
from schemas.commands import Command, Reschedule, Schedule
from schemas.errors import Refused
from schemas.limits import COMMAND_BYTES_MAX
from streams.console.failures import Usage


def command(kind: str, fields: Mapping[str, Any]) -> Command:
    """The checked command of a type. Fields that are None were not given. Raises `Refused`."""
    given = {name: value for name, value in fields.items() if value is not None}
    made = commands.from_mapping({"type": kind} | given)
    check(made)
    return made


def check(made: Command) -> None:
    """Refuse here what the processor would refuse: times and zones that do not exist."""
    if not isinstance(made, Schedule | Reschedule):
        return
    commands.due_ms(made)
    if made.due_local is not None and made.time_zone is not None:
        calendar.instant_ms(made.due_local, made.time_zone)
    if isinstance(made, Schedule) and made.not_after is not None:
        instants.accept(made.not_after, "not_after")


def payload(text: str | None) -> msgspec.Raw | None:
    """JSON as typed, from a file (`@name`) or from standard input (`-`). Raises `Refused`."""
    if text is None:
        return None
    body = _read(text)
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(
            "malformed", f"payload: not JSON ({error}); text needs quotes: '\"hello\"'", "payload"
        ) from None
    return msgspec.Raw(body)


def _read(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read(COMMAND_BYTES_MAX + 1)
    if text.startswith("@"):
        with Path(text[1:]).open("rb") as file:
            return file.read(COMMAND_BYTES_MAX + 1)
    return text.encode()


def headers(pairs: list[str] | None) -> dict[str, str] | None:
    """`k=v` pairs as a map, or `Usage`."""
    if not pairs:
        return None
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise Usage(f"--header takes name=value, not {pair!r}")
        found[name] = value
    return found


def retry(delays: str | None, attempts_max: int | None) -> dict[str, Any] | None:
    """The retry rule of `30,300` and a number of attempts, or `Usage`."""
    rule: dict[str, Any] = {}
    if delays is not None:
        try:
            rule["delays_s"] = [int(part) for part in delays.split(",")]
        except ValueError:
            raise Usage(f"--retry-delays takes seconds such as 30,300, not {delays!r}") from None
    if attempts_max is not None:
        rule["max_attempts"] = attempts_max
    return rule or None
