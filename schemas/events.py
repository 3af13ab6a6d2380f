"""What leaves: due events, revocations, outcomes, replies, dead letters, pressure.

Bodies are JSON; instants in them are RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import orjson
from msgspec import Meta, Struct

from schemas import commands, instants, limits
from schemas.commands import Id
from schemas.errors import Refused
from schemas.reminder import Reminder, State

DUE_EVENT_TYPE: Final = "reminder.due.v1"
REJECTED_BYTES_MAX: Final = limits.RECORD_BYTES_MAX - 16_384
"""Key, value and headers of a refused record that is kept whole: the reason has to fit as well."""

_KEY_BYTES_MAX: Final = 4 * limits.ID_CHARACTERS_MAX
_VARINT_BYTES_MAX: Final = 5
FORWARDED_HEADER: Final = "minutewheel.forwarded-from"
CUT_HEADER: Final = "error.cut-from-bytes"
Headers = list[tuple[str, str | bytes | None]]
FireId = Annotated[str, Meta(pattern="^[0-9a-f]{32}" + commands.END)]


class Status(StrEnum):
    """What an attempt came to."""

    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    REJECTED = "rejected"
    FAILED = "failed"
    SUPPRESSED = "suppressed"
    STALE = "stale"
    CANCELLED = "cancelled"
    AMBIGUOUS = "ambiguous"


FINAL: Final = frozenset(Status) - {Status.FAILED, Status.ACCEPTED}
"""After one of these, no other outcome of the same fire_id counts."""

SETTLED: Final = FINAL | {Status.ACCEPTED}
"""After one of these, nothing more is sent under the same fire_id."""


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of one attempt. `detail` holds error class and code, never bodies or secrets.

    Fields this release does not know are passed over: outcomes come from other people's consumers.
    """

    fire_id: FireId
    id: Id
    attempt: Annotated[int, Meta(ge=1)]
    status: Status
    at: commands.Instant | None = None
    detail: Annotated[str, Meta(max_length=1_024)] | None = None
    provider_ref: Annotated[str, Meta(max_length=1_024)] | None = None
    retry_after_s: Annotated[float, Meta(ge=0)] | None = None


class DueEvent(Struct, frozen=True, gc=False):
    """A due event as a delivery worker reads it. `payload` is the JSON text, untouched."""

    fire_id: str
    id: str
    version: int
    occurrence: int
    attempt: int
    tenant: str
    kind: str
    destination: str
    due_at: str
    fired_at: str
    group: str | None = None
    recipient: str | None = None
    not_after: str | None = None
    payload: msgspec.Raw = commands.ABSENT
    payload_ref: str | None = None
    headers: dict[str, str] | None = None


class Revocation(Struct, frozen=True):
    """The due event of this fire_id is no longer wanted."""

    revoke: str
    reason: str | None = None


_decode_outcome: Final[Callable[[bytes], Outcome]] = msgspec.json.Decoder(Outcome).decode
_decode_due: Final[Callable[[bytes], DueEvent]] = msgspec.json.Decoder(DueEvent).decode
_decode_revocation: Final[Callable[[bytes], Revocation]] = msgspec.json.Decoder(Revocation).decode


def fire_id(reminder_id: str, recipient: str, due_at_ms: int) -> str:
    """The idempotency key of one occurrence for one recipient, the same over all attempts.

    32 hex digits of SHA-256 over the UTF-8 text `id LF recipient LF due_at_ms`.
    """
    return sha256(f"{reminder_id}\n{recipient}\n{due_at_ms}".encode()).hexdigest()[:32]


def fire_id_of(reminder: Reminder) -> str:
    """The fire_id of the reminder's current occurrence."""
    return fire_id(reminder.id, "", reminder.asked.due_at_ms)


def due_event(reminder: Reminder) -> tuple[bytes, Headers]:
    """Value and headers of the due event of a reminder that has just been claimed."""
    asked = reminder.asked
    fired_at_ms = reminder.fired_at_ms
    assert fired_at_ms is not None, "only a reminder that fired has a due event"
    name = fire_id_of(reminder)
    fired_at = instants.text(fired_at_ms)
    body: dict[str, Any] = {
        "fire_id": name,
        "id": reminder.id,
        "version": asked.version,
        "occurrence": reminder.occurrence,
        "attempt": reminder.attempt,
        "tenant": asked.tenant,
        "kind": asked.kind,
        "group": asked.group,
        "recipient": None,
        "destination": asked.destination,
        "due_at": instants.text(asked.due_at_ms),
        "fired_at": fired_at,
        "not_after": None if asked.not_after_ms is None else instants.text(asked.not_after_ms),
    }
    if asked.payload is not None:
        body["payload"] = orjson.Fragment(asked.payload)
    if asked.payload_ref is not None:
        body["payload_ref"] = asked.payload_ref
    body["headers"] = asked.headers
    headers: Headers = [
        ("fire-id", name),
        ("attempt", str(reminder.attempt)),
        ("ce_specversion", "1.0"),
        ("ce_type", DUE_EVENT_TYPE),
        ("ce_source", "minutewheel"),
        ("ce_id", f"{name}-{reminder.attempt}"),
        ("ce_time", fired_at),
    ]
    if reminder.trace_parent is not None:
        headers.append(("traceparent", reminder.trace_parent))
    return orjson.dumps(body), headers


def topic_record(reminder: Reminder) -> tuple[bytes, Headers]:
    """Value and headers of a reminder fired straight into its own topic."""
    asked = reminder.asked
    headers: Headers = list((asked.headers or {}).items())
    headers.append(("fire-id", fire_id_of(reminder)))
    headers.append(("due-at", instants.text(asked.due_at_ms)))
    if asked.payload_ref is not None:
        headers.append(("payload-ref", asked.payload_ref))
    if reminder.trace_parent is not None:
        headers.append(("traceparent", reminder.trace_parent))
    return asked.payload if asked.payload is not None else b"null", headers


def delivery_body(event: DueEvent) -> bytes:
    """The due event without what differs from attempt to attempt: the same bytes every time."""
    body = msgspec.structs.asdict(event)
    del body["attempt"], body["fired_at"]
    payload = bytes(body.pop("payload"))
    if payload:
        body["payload"] = orjson.Fragment(payload)
    if body["payload_ref"] is None:
        del body["payload_ref"]
    return orjson.dumps(body)


def revocation(fire: str, reason: str | None) -> bytes:
    """The value that takes a due event back."""
    return orjson.dumps({"revoke": fire, "reason": reason})


def decode_due(value: bytes) -> DueEvent | Revocation:
    """What a record of the due topic says, or `Refused`."""
    try:
        if value.startswith(b'{"revoke"'):
            return _decode_revocation(value)
        return _decode_due(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise commands.refusal(error) from None


def decode_outcome(value: bytes) -> Outcome:
    """The outcome in a record, or `Refused` naming the field."""
    try:
        return _decode_outcome(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise commands.refusal(error) from None


def outcome(answer: Outcome) -> bytes:
    """The value of an outcome."""
    body: dict[str, Any] = {
        key: content
        for key, content in msgspec.structs.asdict(answer).items()
        if content is not None
    }
    if isinstance(answer.at, int):
        body["at"] = instants.text(answer.at)
    return orjson.dumps(body)


def dead_letter(reminder: Reminder, reason: str, at_ms: int) -> bytes:
    """The value of a dead letter: what was to happen, how often it was tried, and why it ended."""
    asked = reminder.asked
    body: dict[str, Any] = {
        "fire_id": fire_id_of(reminder),
        "id": reminder.id,
        "version": asked.version,
        "tenant": asked.tenant,
        "kind": asked.kind,
        "group": asked.group,
        "destination": asked.destination,
        "due_at": instants.text(asked.due_at_ms),
        "at": instants.text(at_ms),
        "reason": reason,
        "attempts": _attempts(reminder),
        "headers": asked.headers,
    }
    if asked.payload is not None:
        body["payload"] = orjson.Fragment(asked.payload)
    if asked.payload_ref is not None:
        body["payload_ref"] = asked.payload_ref
    return orjson.dumps(body)


def _attempts(reminder: Reminder) -> list[dict[str, Any]]:
    return [
        {
            "attempt": attempt.number,
            "at": instants.text(attempt.at_ms),
            "status": attempt.status,
            "detail": attempt.detail,
        }
        for attempt in reminder.attempts
    ]


def description(reminder: Reminder) -> dict[str, Any]:
    """The stored reminder as people and HTTP clients see it, ready for orjson."""
    asked = reminder.asked
    pending = reminder.state is State.PENDING
    body: dict[str, Any] = {
        "id": reminder.id,
        "version": asked.version,
        "state": reminder.state.wire,
        "tenant": asked.tenant,
        "kind": asked.kind,
        "group": asked.group,
        "destination": asked.destination,
        "due_at": instants.text(asked.due_at_ms),
        "due_local": asked.due_local,
        "time_zone": asked.time_zone,
        "not_after": None if asked.not_after_ms is None else instants.text(asked.not_after_ms),
        "next_at": instants.text(reminder.at_ms) if pending else None,
        "fire_id": fire_id_of(reminder),
        "occurrence": reminder.occurrence,
        "attempt": reminder.attempt,
        "cancel_requested": reminder.cancel_requested,
        "attempts": _attempts(reminder),
        "created_at": instants.text(reminder.created_at_ms),
        "changed_at": instants.text(reminder.changed_at_ms),
        "fired_at": None if reminder.fired_at_ms is None else instants.text(reminder.fired_at_ms),
        "ended_by": reminder.ended_by,
        "ended_why": reminder.ended_why,
        "headers": asked.headers,
        "payload_ref": asked.payload_ref,
    }
    if asked.payload is not None:
        body["payload"] = orjson.Fragment(asked.payload)
    return body


class ReplyStatus(StrEnum):
    """What a command came to."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    RESCHEDULED = "rescheduled"
    CANCELLED = "cancelled"
    CANCEL_REQUESTED = "cancel_requested"
    ALREADY_FINAL = "already_final"
    NOT_FOUND = "not_found"
    STALE_VERSION = "stale_version"
    CONFLICT = "conflict"
    REJECTED = "rejected"


class Source(Struct, frozen=True):
    """Where a command lies."""

    topic: str
    partition: int
    offset: int
    ce_id: str | None = None


def reply(
    reminder_id: str,
    version: int | None,
    status: str,
    source: Source,
    at_ms: int,
    *,
    due_at_ms: int | None = None,
    detail: str | None = None,
) -> bytes:
    """The answer to a command that asked for one."""
    origin: dict[str, Any] = {
        "topic": source.topic,
        "partition": source.partition,
        "offset": source.offset,
    }
    if source.ce_id is not None:
        origin["ce_id"] = source.ce_id
    body: dict[str, Any] = {"id": reminder_id, "version": version, "status": status}
    if detail is not None:
        body["detail"] = detail
    body["command"] = origin
    if due_at_ms is not None:
        body["due_at"] = instants.text(due_at_ms)
    body["at"] = instants.text(at_ms)
    return orjson.dumps(body)


def headers_bytes(headers: Iterable[tuple[str, str | bytes | None]]) -> int:
    """What Kafka headers take in a record at most: each length is a varint of up to five bytes."""
    return sum(
        len(name.encode())
        + len(content.encode() if isinstance(content, str) else content or b"")
        + 2 * _VARINT_BYTES_MAX
        for name, content in headers
    )


class Rejected(NamedTuple):
    """A record for `rejected`."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def rejected(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, str | bytes | None]],
    error: Refused,
    source: Source,
) -> Rejected:
    """A refused record as it came, with the reason and its place in more headers.

    Only what no topic could hold is cut: first its own headers, then key and value.
    """
    reasons = rejection_headers(error, source)
    # One that is sent again and refused again has one reason, the latest, and may be moved again.
    ours = {CUT_HEADER, FORWARDED_HEADER, *(name for name, _ in reasons)}
    own = [(name, content) for name, content in headers if name not in ours]
    size = len(key or b"") + len(value or b"")
    whole = size + headers_bytes(own)
    if whole > REJECTED_BYTES_MAX:
        reasons.append((CUT_HEADER, str(whole)))
        own = []
    if size > REJECTED_BYTES_MAX:
        key = key and key[:_KEY_BYTES_MAX]
        value = value and value[: REJECTED_BYTES_MAX - _KEY_BYTES_MAX]
    return Rejected(key, value, own + reasons)


def rejection_headers(error: Refused, source: Source) -> Headers:
    """Why a record was refused and where it lies; a fixed set, so that it cannot grow."""
    return [
        ("error.code", error.code),
        ("error.field", error.field),
        ("error.message", error.message),
        ("error.topic", source.topic),
        ("error.partition", str(source.partition)),
        ("error.offset", str(source.offset)),
    ]
