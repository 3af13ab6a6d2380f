"""The shape of bodies that are written field by field, as types for the documents alone.

Nothing is encoded or decoded with them: `events` writes these bodies with orjson, because that is
faster, and `tests/unit/test_schemas_documents.py` holds what it writes against these shapes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from schemas import commands
from schemas.commands import Id, Name
from schemas.events import FireId, ReplyStatus, Status

Moment = Annotated[
    datetime,
    Meta(
        description="RFC 3339 in UTC with milliseconds.",
        extra_json_schema={
            "format": "date-time",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
        },
    ),
]
Count = Annotated[int, Meta(ge=0)]
Number = Annotated[int, Meta(ge=1)]
Payload = Annotated[Any, Meta(description="Any JSON, untouched.")]


class DueEvent(Struct):
    """A reminder is due. The same `fire_id` at every attempt: use it as idempotency key.

    Read the topic at `read_committed`, and answer with an outcome.
    """

    fire_id: FireId
    id: Id
    version: commands.Version
    occurrence: Count
    attempt: Number
    tenant: Name
    kind: Name
    group: Name | None
    recipient: Id | None
    destination: commands.Destination
    due_at: Moment
    fired_at: Moment
    not_after: Moment | None
    headers: dict[str, str] | None
    payload: Payload | UnsetType = UNSET
    payload_ref: commands.Reference | UnsetType = UNSET


class Revocation(Struct):
    """The due event of this fire_id is no longer wanted. It follows that event on the same key."""

    revoke: FireId
    reason: str | None


class CommandPlace(Struct):
    """Where the command lies that is answered."""

    topic: str
    partition: Count
    offset: Count
    ce_id: str | UnsetType = UNSET


class Reply(Struct):
    """What a command came to, for those that asked with `reply`."""

    id: str
    version: commands.Version | None
    status: ReplyStatus
    command: CommandPlace
    at: Moment
    detail: str | UnsetType = UNSET
    due_at: Moment | UnsetType = UNSET


class DeadAttempt(Struct):
    """One of the last attempts of a dead reminder."""

    attempt: Number
    at: Moment
    status: Status
    detail: str


class DeadLetter(Struct):
    """A reminder that was given up: rejected for good, or out of attempts."""

    fire_id: FireId
    id: Id
    version: commands.Version
    tenant: Name
    kind: Name
    group: Name | None
    destination: commands.Destination
    due_at: Moment
    at: Moment
    reason: str
    attempts: list[DeadAttempt]
    headers: dict[str, str] | None
    payload: Payload | UnsetType = UNSET
    payload_ref: commands.Reference | UnsetType = UNSET


ClockTime = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$", examples=["21:00"])]


class QuietHours(Struct):
    """Hours of the day in which nothing is sent; past midnight where `end` is before `start`."""

    start: ClockTime
    end: ClockTime
    time_zone: Name


class Suppression(Struct):
    """Who may not be contacted, or not now. Quiet hours alone defer and suppress nothing."""

    channels: list[str] | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    until: commands.Instant | UnsetType = UNSET
    quiet_hours: QuietHours | UnsetType = UNSET
    bypass_kinds: list[Name] | UnsetType = UNSET


class CloudEvent(Struct):
    """A command in CloudEvents structured form: `data` is the command, its `type` left out."""

    specversion: Literal["1.0"]
    type: Annotated[str, Meta(pattern=r"^reminder\.(schedule|cancel|reschedule|trigger)\.v1$")]
    id: Annotated[str, Meta(min_length=1)]
    source: Annotated[str, Meta(min_length=1)]
    data: dict[str, Any]


class RejectedHeaders(Struct, rename=lambda field: field.replace("_", ".", 1)):
    """Why a record was refused, and where it lies."""

    error_code: str
    error_field: str
    error_message: str
    error_topic: str
    error_partition: str
    error_offset: str
