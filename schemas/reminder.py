"""The stored record of a reminder: the value in the `state` topic and in the bucket row.

    byte  0      format (1)
          1      state
          2      entry: what its place in the wheel is for
          3      lane
          4..11  at_ms, big-endian: when the wheel turns to it
         12..13  length of the tenant
         14..    tenant, UTF-8                          up to here: the header
          ..     msgpack array of `Reminder`

The header is a projection of the body, so that restore and the index never decode a body. Bytes
3..11 are the first nine bytes of the row's key, so that byte order is lane, then time.
"""

# The types here and the commands are `gc=False`: they can hold no reference back to themselves, and
# thousands of them are made in a turn. The collector took a third of its time before.

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

import msgspec
from msgspec import Struct

from schemas.errors import UnknownFormat

FORMAT: Final = 1
_HEADER: Final = Layout(">BBBBQH")
HEADER_BYTES_MIN: Final = _HEADER.size
PLACE: Final = slice(3, 12)
"""Where a header (and so a record) holds lane and time: the start of its row's key."""


class State(IntEnum):
    """What has become of a reminder. The wire name is the lower-case name."""

    PENDING = 0
    CLAIMED = 1
    SENT = 2
    DELIVERED = 3
    BOUNCED = 4
    SUPPRESSED = 5
    STALE = 6
    CANCELLED = 7
    DEAD = 8

    @property
    def wire(self) -> str:
        """The name as the contract writes it."""
        return self.name.lower()


class Entry(IntEnum):
    """Why the wheel turns to a reminder. A stored reminder has exactly one entry."""

    FIRE = 0
    RETRY = 1
    LEASE = 2
    EXPIRE = 3


class Lane(IntEnum):
    """Which hand of the wheel an entry is on.

    What has to wait for a free claim must not hold up what needs none.
    """

    CLAIMING = 0
    FREE = 1


# Looking a member up costs more than what is done with it, and this is done for every record.
_RETRY: Final = Entry.RETRY
_FREE: Final = Lane.FREE
_CLAIMING: Final = Lane.CLAIMING


class RetryRule(Struct, frozen=True, gc=False, array_like=True):
    """The reminder's own retry rule, as asked."""

    delays_s: tuple[int, ...]
    attempts_max: int


class Attempt(Struct, frozen=True, gc=False, array_like=True):
    """One remembered attempt: when its answer came, what it was, and the class of the error."""

    number: int
    at_ms: int
    status: str
    detail: str = ""


class Asked(Struct, frozen=True, gc=False, array_like=True):
    """What was asked, as last changed. Two equal versions must have equal `Asked`."""

    version: int
    due_at_ms: int
    tenant: str
    kind: str
    group: str | None
    destination: str
    payload: bytes | None
    payload_ref: str | None
    headers: dict[str, str] | None
    not_after_ms: int | None
    retry: RetryRule | None
    due_local: str | None
    time_zone: str | None


class Reminder(Struct, frozen=True, gc=False, array_like=True):
    """A reminder and its progress. Instants are UTC milliseconds.

    `attempt` counts attempts (from 1), `failures` those that came to a failure. `fired_at_ms` is
    when the last due event left; None while nothing has left for this instant.
    `cancel_requested` is set once a claimed one was cancelled: it is not tried again.
    `cancelled_through` is the highest version a cancel has ended, also one not yet seen.
    `ended_by`, `ended_why` say who ended it, and the reason given.
    `fired_instants_ms` are due instants of earlier versions for which a due event has left: their
    fire_ids are used up.
    """

    id: str
    asked: Asked
    state: State
    entry: Entry
    at_ms: int
    created_at_ms: int
    changed_at_ms: int
    reply: bool = False
    occurrence: int = 0
    attempt: int = 0
    failures: int = 0
    fired_at_ms: int | None = None
    cancel_requested: bool = False
    cancelled_through: int | None = None
    attempts: tuple[Attempt, ...] = ()
    reason: str | None = None
    actor: str | None = None
    ended_by: str | None = None
    ended_why: str | None = None
    trace_parent: str | None = None
    fired_instants_ms: tuple[int, ...] = ()

    @property
    def lane(self) -> Lane:
        """Which hand of the wheel its entry is on."""
        if self.entry > _RETRY or self.asked.destination.startswith("topic:"):
            return _FREE
        return _CLAIMING


_encode_body: Final = msgspec.msgpack.Encoder().encode
_decode_body: Final[Callable[[bytes], Reminder]] = msgspec.msgpack.Decoder(Reminder).decode


def encode(reminder: Reminder) -> bytes:
    """Header and body."""
    tenant = reminder.asked.tenant.encode()
    header = _HEADER.pack(
        FORMAT, reminder.state, reminder.entry, reminder.lane, reminder.at_ms, len(tenant)
    )
    return header + tenant + _encode_body(reminder)


def header_of(value: bytes) -> bytes:
    """The header of an encoded reminder, or `UnknownFormat`."""
    if value[0] != FORMAT:
        raise UnknownFormat(
            f"a stored reminder has format {value[0]}, this release knows {FORMAT}: "
            "run the release that wrote it, or a later one"
        )
    return value[: HEADER_BYTES_MIN + (value[12] << 8 | value[13])]


def decode(value: bytes) -> Reminder:
    """The reminder of header and body, or `UnknownFormat`."""
    return _decode_body(value[len(header_of(value)) :])
