"""Commands as upstream services write them, decoded from the three forms of the contract."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Raw, Struct

from schemas import instants, limits
from schemas.errors import Refused

END: Final = r"(?![\s\S])"
"""The end of a text, in Python and ECMA alike: Python's `$` lets a line feed follow."""

# What stands under `extra_json_schema` is for the documents alone: here it is checked faster.
_NO_CONTROLS: Final = {"pattern": r"^[^\u0000-\u001f\u007f-\u009f]*" + END}
Name = Annotated[
    str,
    Meta(min_length=1, max_length=limits.NAME_CHARACTERS_MAX, extra_json_schema=_NO_CONTROLS),
]
Id = Annotated[
    str,
    Meta(min_length=1, max_length=limits.ID_CHARACTERS_MAX, extra_json_schema=_NO_CONTROLS),
]
Version = Annotated[int, Meta(ge=0, le=limits.VERSION_MAX)]
Reason = Annotated[str, Meta(max_length=limits.REASON_CHARACTERS_MAX)]
_RFC_3339: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})" + END
)
Instant = (
    Annotated[
        datetime,
        Meta(
            description="RFC 3339 with an offset, years 1970 to 9999.",
            extra_json_schema={"format": "date-time", "pattern": _RFC_3339},
        ),
    ]
    | Annotated[
        int,
        Meta(
            description="Epoch milliseconds. A positive integer too small for them is refused.",
            extra_json_schema={
                "anyOf": [
                    {"const": 0},
                    {
                        "minimum": limits.SECONDS_SUSPECTED_BELOW_MS,
                        "maximum": limits.INSTANT_MS_MAX,
                    },
                ]
            },
        ),
    ]
)
Reference = Annotated[str, Meta(min_length=1, max_length=limits.REFERENCE_CHARACTERS_MAX)]
Destination = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.DESTINATION_CHARACTERS_MAX,
        extra_json_schema={
            "pattern": r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f])"
            r"(due|topic:(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}|https?://[^/?#\s]\S*"
            r"|(mailto|channel):\S+)" + END
        },
    ),
]
LocalTime = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?" + END,
        examples=["2026-12-01T09:00"],
    ),
]
ABSENT: Final = Raw()
"""No payload at all; a payload of JSON `null` is the four bytes."""
DelayS = Annotated[int, Meta(ge=0, le=limits.RETRY_DELAY_S_MAX)]


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How failed attempts are repeated: the n-th failure waits `delays_s[n-1]` (or the last)."""

    delays_s: Annotated[list[DelayS], Meta(min_length=1, max_length=limits.RETRY_DELAYS_MAX)] = (
        msgspec.field(default_factory=lambda: [30, 300, 1_800])
    )
    max_attempts: Annotated[int, Meta(ge=1, le=limits.RETRY_ATTEMPTS_MAX)] | None = None


class _Command(
    Struct,
    frozen=True,
    tag_field="type",
    gc=False,
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """What all commands have in common: `type` names them, and a field not known is refused."""


class Schedule(_Command, frozen=True, tag="schedule"):
    """Remind at an instant. `id` is the idempotency key of the obligation."""

    id: Id
    due_at: Instant | None = None
    due_local: LocalTime | None = None
    time_zone: Name | None = None
    version: Version = 0
    tenant: Name = "default"
    kind: Name = "reminder"
    group: Name | None = None
    destination: Destination = "due"
    payload: Raw = ABSENT
    payload_ref: Reference | None = None
    headers: dict[str, str] | None = None
    not_after: Instant | None = None
    retry: Retry | None = None
    reply: bool = False
    reason: Reason | None = None
    actor: Name | None = None


class Cancel(_Command, frozen=True, tag="cancel"):
    """End a reminder: its version or a lower one if `version` is given, else whatever stands."""

    id: Id
    version: Version | None = None
    reply: bool = False
    reason: Reason | None = None
    actor: Name | None = None


class Reschedule(_Command, frozen=True, tag="reschedule"):
    """Move a reminder and keep everything else of it."""

    id: Id
    due_at: Instant | None = None
    due_local: LocalTime | None = None
    time_zone: Name | None = None
    version: Version | None = None
    reply: bool = False
    reason: Reason | None = None
    actor: Name | None = None


class Trigger(_Command, frozen=True, tag="trigger"):
    """Fire a pending reminder now."""

    id: Id
    reply: bool = False
    reason: Reason | None = None
    actor: Name | None = None


class _Event(Struct):
    """Of a structured CloudEvent, what names it. A plain command has no `specversion`."""

    specversion: str
    id: str


Command = Schedule | Cancel | Reschedule | Trigger
COMMAND_TYPES: Final[dict[str, type[Command]]] = {
    "schedule": Schedule,
    "cancel": Cancel,
    "reschedule": Reschedule,
    "trigger": Trigger,
}
Headers = list[tuple[str, bytes | None]] | None

_decode_any: Final[Callable[[bytes], Command]] = msgspec.json.Decoder(Command).decode
_decode_one: Final[dict[str, Callable[[Any], Command]]] = {
    name: msgspec.json.Decoder(form).decode for name, form in COMMAND_TYPES.items()
}
_decode_envelope: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_event_id: Final[Callable[[bytes], _Event]] = msgspec.json.Decoder(_Event).decode
_SHORT_BYTES: Final = 2 * limits.NESTING_MAX
"""A bracket and its partner per level: nothing up to this length is nested too deeply."""
_CLOUD_TYPE: Final = re.compile(r"reminder\.([a-z]+)\.v([0-9]+)")
_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


def decode(value: bytes, headers: Headers = None) -> Command:
    """The command in one record's value, or `Refused` naming the field.

    `headers` are the record's Kafka headers; a `ce_type` among them selects the CloudEvents
    binary form. A body with `specversion` is the structured form. Times are not yet resolved:
    that is `due_ms` and `buckets.calendar`.
    """
    if len(value) > limits.COMMAND_BYTES_MAX:
        raise Refused("too_large", f"a command has at most {limits.COMMAND_BYTES_MAX} bytes")
    try:
        cloud_type = _header(headers, "ce_type") if headers else None
        if cloud_type is None:
            command = _decode_plain(value)
        else:
            # The body may still carry `type`: msgspec then checks that it agrees.
            command = _decode_one[_command_type(cloud_type, "ce_type")](value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refusal(error) from None
    _check(command)
    # A short ASCII record holds nothing too large, too deep or not UTF-8, wherever it stands.
    if len(value) > _SHORT_BYTES or not value.isascii():
        _check_sizes(command, len(value))
    return command


def _decode_plain(value: bytes) -> Command:
    try:
        return _decode_any(value)
    except msgspec.ValidationError:
        # Only a body that is no plain command costs this second look.
        if b'"specversion"' not in value:
            raise
        envelope = _decode_envelope(value)
        if "specversion" not in envelope or "type" not in envelope:
            raise
    try:
        cloud_type = msgspec.json.decode(envelope["type"], type=str)
    except msgspec.ValidationError:
        raise Refused("unknown_type", "type: must be a string", "type") from None
    name = _command_type(cloud_type, "type")
    if "data" not in envelope:
        raise Refused("missing_field", "data: a structured CloudEvent carries it", "data")
    return _decode_one[name](bytes(envelope["data"]))


def _command_type(cloud_type: str, field: str) -> str:
    match = _CLOUD_TYPE.fullmatch(cloud_type)
    if match is None or match[1] not in COMMAND_TYPES:
        known = ", ".join(f"reminder.{name}.v1" for name in COMMAND_TYPES)
        raise Refused("unknown_type", f"{field}: {cloud_type!r} is not one of {known}", field)
    if match[2] != "1":
        raise Refused("unknown_version", f"{field}: version {match[2]} is not known here", field)
    return match[1]


def _header(headers: Headers, name: str) -> str | None:
    for key, content in headers or ():
        if key == name and content is not None:
            # What is no UTF-8 is no known type either, and is refused under its own name.
            return content.decode(errors="replace")
    return None


def cloud_event_id(value: bytes, headers: Headers) -> str | None:
    """The event's id of a record in either form of CloudEvents, bounded; None in the plain one."""
    found = _header(headers, "ce_id")
    if found is None and b'"specversion"' in value:
        try:
            found = _decode_event_id(value).id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return None if found is None else found[: limits.ID_CHARACTERS_MAX]


_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_STEP))
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PATH: Final = re.compile(r"`\$\.?([^`]*)`$")
_NAMED: Final = re.compile(r"(unknown|required) field `(.*?)`(?: - at `\$|$)", re.DOTALL)


def refusal(error: Exception) -> Refused:
    """The library's complaint in the contract's terms: a code, the field's name, one sentence."""
    if isinstance(error, RecursionError):
        return Refused("too_deep", "the JSON is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return Refused("malformed", "the record is not valid UTF-8")
    message = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return Refused("malformed", f"not a JSON object: {message}")
    path = _PATH.search(message)
    inside = path[1] if path else ""
    named = _NAMED.search(message)
    if named:
        field = f"{inside}.{named[2]}" if inside else named[2]
        code = "unknown_field" if named[1] == "unknown" else "missing_field"
        return Refused(code, f"{field}: {named[1]} field", field)
    if inside == "type":
        known = ", ".join(COMMAND_TYPES)
        return Refused("unknown_type", f"type: must be one of {known}", "type")
    complaint = message.split(" - at ")[0]
    return Refused("invalid", f"{inside}: {complaint}" if inside else complaint, inside)


def _check(command: Command) -> None:
    """What the types alone cannot say."""
    # This runs for every command: one branch by type, and nothing is read twice.
    if type(command) is Schedule:
        _check_schedule(command)
    elif type(command) is Reschedule:
        _check_time(command)
    actor = command.actor
    if not command.id.isprintable() or (actor is not None and not actor.isprintable()):
        _check_names(command)


def _check_schedule(command: Schedule) -> None:
    if command.due_at is None or command.due_local is not None or command.time_zone is not None:
        _check_time(command)
    if command.destination != "due":
        check_destination(command.destination)
    if command.payload_ref is not None and command.payload is not ABSENT:
        raise Refused("both", "payload_ref: give payload or payload_ref", "payload_ref")
    group = command.group
    if (
        not command.tenant.isprintable()
        or not command.kind.isprintable()
        or (group is not None and not group.isprintable())
    ):
        _check_names(command)


def _check_time(command: Schedule | Reschedule) -> None:
    if (command.due_at is None) == (command.due_local is None):
        raise Refused("one_of", "due_at: give due_at, or due_local with time_zone", "due_at")
    if (command.due_local is None) != (command.time_zone is None):
        raise Refused("one_of", "time_zone: due_local and time_zone go together", "time_zone")


def _check_names(command: Command) -> None:
    """Refuse a control character in any name. Not printable is more: spaces, unassigned."""
    for field in ("id", "tenant", "kind", "group", "actor"):
        name = getattr(command, field, None)
        if name is None or name.isprintable():
            continue
        if any(unicodedata.category(character) == "Cc" for character in name):
            raise Refused("control_character", f"{field}: holds a control character", field)


def _check_sizes(command: Command, length: int) -> None:
    """What only a record of some `length` in bytes, or one beyond ASCII, can get wrong."""
    if not isinstance(command, Schedule):
        return
    # Text takes no more bytes than the JSON it came from, so a short record has short headers.
    if length > limits.HEADERS_BYTES_MAX and command.headers:
        size = sum(len(key.encode()) + len(text.encode()) for key, text in command.headers.items())
        if size > limits.HEADERS_BYTES_MAX:
            message = f"headers: at most {limits.HEADERS_BYTES_MAX} bytes"
            raise Refused("too_large", message, "headers")
    if command.payload is not ABSENT:
        _check_payload(bytes(command.payload))


def _check_payload(payload: bytes) -> None:
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise Refused("too_large", f"payload: at most {limits.PAYLOAD_BYTES_MAX} bytes", "payload")
    try:
        payload.decode()
    except UnicodeDecodeError:
        raise Refused("malformed", "payload: not valid UTF-8", "payload") from None
    if len(payload) > _SHORT_BYTES and _nesting(payload) > limits.NESTING_MAX:
        message = f"payload: nested deeper than {limits.NESTING_MAX}"
        raise Refused("too_deep", message, "payload")


def _nesting(payload: bytes) -> int:
    """How deep the brackets of a valid JSON text go."""
    brackets = payload.translate(None, _NO_BRACKETS)
    if len(brackets) <= 2 * limits.NESTING_MAX:
        return 0
    brackets = _STRING.sub(b"", payload).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


@lru_cache(maxsize=4_096)
def check_destination(destination: str) -> None:
    """Refuse a destination that no channel could ever serve."""
    scheme, _, rest = destination.partition(":")
    known = {"http", "https", "mailto", "channel", "topic"}
    if scheme not in known or not rest or not destination.isprintable() or " " in destination:
        raise Refused(
            "invalid",
            "destination: due, topic:<name>, http(s)://…, mailto:… or channel:<name>",
            "destination",
        )
    if scheme == "topic" and not _TOPIC_NAME.fullmatch(rest):
        raise Refused("invalid", f"destination: {rest!r} is no topic name", "destination")
    if scheme in {"http", "https"} and not _has_host(destination):
        raise Refused("invalid", "destination: a URL needs a host", "destination")


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Reading the port checks it.
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def due_ms(command: Schedule | Reschedule) -> int | None:
    """The instant of `due_at` in UTC milliseconds; None where the command gives a local time."""
    return None if command.due_at is None else instants.accept(command.due_at, "due_at")


def encode(command: Command) -> bytes:
    """The plain JSON form, for our own clients."""
    return msgspec.json.encode(command)


def from_mapping(fields: Mapping[str, Any]) -> Command:
    """The command a caller described as a mapping, checked like any other record."""
    return decode(msgspec.json.encode(dict(fields)))
