"""What a record of the due topic asks for. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from schemas import events, instants
from schemas.errors import Refused
from schemas.events import DueEvent, Revocation
from streams.delivery.channels import Call, is_ours

_FIRE_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(slots=True)
class Job:
    """A due event that this worker has to answer."""

    partition: int
    offset: int
    call: Call
    fired_at_ms: int
    not_after_ms: int | None
    revoked: bool = False

    @property
    def event(self) -> DueEvent:
        """The due event."""
        return self.call.event


class NotOurs:
    """A due event that other consumers of the topic answer."""


NOT_OURS: Final = NotOurs()


def read(
    value: bytes | None,
    headers: list[tuple[str, str | bytes | None]] | None,
    partition: int,
    offset: int,
) -> Job | Revocation | NotOurs:
    """What the record says, or `Refused` naming the field."""
    if value is None:
        raise Refused("no_value", "a record of the due topic needs a value")
    said = events.decode_due(value)
    if isinstance(said, Revocation):
        return said
    if not is_ours(said.destination):
        return NOT_OURS
    if not _FIRE_ID.fullmatch(said.fire_id):
        raise Refused("bad_fire_id", "fire_id: 32 hexadecimal digits", "fire_id")
    if not 1 <= len(said.id) <= 256 or said.attempt < 1:
        raise Refused("out_of_range", "id or attempt is out of range", "id")
    return Job(
        partition=partition,
        offset=offset,
        call=Call(said, _text(headers, "traceparent")),
        fired_at_ms=_instant(said.fired_at, "fired_at"),
        not_after_ms=None if said.not_after is None else _instant(said.not_after, "not_after"),
    )


def _instant(text: str, field: str) -> int:
    try:
        return instants.accept(datetime.fromisoformat(text), field)
    except ValueError:
        raise Refused("invalid", f"{field}: not an instant", field) from None


def _text(headers: list[tuple[str, str | bytes | None]] | None, name: str) -> str | None:
    for key, value in headers or ():
        if key == name and value is not None:
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None
