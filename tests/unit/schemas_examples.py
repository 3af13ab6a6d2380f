"""Commands that are accepted and commands that are refused, one table for every test of them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from schemas import commands, instants, limits

DUE: dict[str, Any] = {"due_at": "2026-12-01T09:00:00Z"}
SCHEDULE: dict[str, Any] = {"type": "schedule", "id": "order-1"} | DUE
CANCEL: dict[str, Any] = {"type": "cancel", "id": "order-1"}
RESCHEDULE: dict[str, Any] = {"type": "reschedule", "id": "order-1"} | DUE
TRIGGER: dict[str, Any] = {"type": "trigger", "id": "order-1"}
LOCAL: dict[str, Any] = {"due_local": "2026-12-01T09:00", "time_zone": "Europe/Berlin"}
FULL: dict[str, Any] = SCHEDULE | {
    "version": 3,
    "tenant": "acme",
    "kind": "invoice",
    "group": "shipment-7",
    "destination": "https://hooks.example.com/reminders?x=1",
    "payload": {"text": "hello", "deep": [1, 2.5, None, True, {"é": "😀"}]},
    "headers": {"x-team": "billing", "é": "ü"},
    "not_after": 1_900_000_000_000,
    "retry": {"delays_s": [1, 2], "max_attempts": 3},
    "reply": True,
    "reason": "asked by\ncustomer",
    "actor": "alice",
}


class Bad(NamedTuple):
    """A refused command. `by_schema` is false where JSON Schema cannot say the rule."""

    label: str
    body: dict[str, Any]
    code: str
    field: str
    by_schema: bool = True


def taken(value: bytes, headers: commands.Headers = None) -> commands.Command:
    """The command of a record, its instants resolved as far as they need no calendar."""
    command = commands.decode(value, headers)
    if isinstance(command, commands.Schedule | commands.Reschedule):
        commands.due_ms(command)
    if isinstance(command, commands.Schedule) and command.not_after is not None:
        instants.accept(command.not_after, "not_after")
    return command


def encoded(body: object) -> bytes:
    """The JSON of a body, as any client would write it."""
    return json.dumps(body, ensure_ascii=False).encode()


def without(body: dict[str, Any], *fields: str) -> dict[str, Any]:
    """The body with some of its fields left out."""
    return {field: content for field, content in body.items() if field not in fields}


def nested(levels: int) -> Any:
    """Arrays in one another, `levels` deep."""
    content: Any = []
    for _ in range(levels - 1):
        content = [content]
    return content


def payload_of(size: int) -> str:
    """A text whose JSON has `size` bytes."""
    return "x" * (size - 2)


BARE = without(SCHEDULE, "due_at")

ACCEPTED: dict[str, dict[str, Any]] = {
    "the least": SCHEDULE,
    "everything": FULL,
    "local time": BARE | LOCAL,
    "local time with seconds": BARE | LOCAL | {"due_local": "2026-12-01T09:00:30"},
    "null is absent": SCHEDULE | dict.fromkeys(["due_local", "time_zone", "group", "not_after"]),
    "milliseconds": SCHEDULE | {"due_at": 1_796_115_600_000},
    "first milliseconds": SCHEDULE | {"due_at": limits.SECONDS_SUSPECTED_BELOW_MS},
    "the epoch": SCHEDULE | {"due_at": 0},
    "the last instant": SCHEDULE | {"due_at": limits.INSTANT_MS_MAX},
    "the epoch as text": SCHEDULE | {"due_at": "1970-01-01T00:00:00Z"},
    "the last instant as text": SCHEDULE | {"due_at": "9999-12-31T23:59:59.999Z"},
    "an offset": SCHEDULE | {"due_at": "2026-12-01T09:00:00.123456+05:30"},
    "1969 by its own clock": SCHEDULE | {"due_at": "1969-12-31T23:59:59-05:00"},
    "29 February": SCHEDULE | {"due_at": "2028-02-29T00:00:00Z"},
    "payload null": SCHEDULE | {"payload": None},
    "payload false": SCHEDULE | {"payload": False},
    "payload text": SCHEDULE | {"payload": "\\u0000 is an escape"},
    "payload reference": SCHEDULE | {"payload_ref": "s3://bucket/key"},
    "payload and no reference": SCHEDULE | {"payload": 1, "payload_ref": None},
    "unknown fields in the payload": SCHEDULE | {"payload": {"anything": {"goes": 1}}},
    "unknown headers": SCHEDULE | {"headers": {"anything": "goes"}},
    "topic": SCHEDULE | {"destination": "topic:other.topic_1-x"},
    "longest topic": SCHEDULE | {"destination": "topic:" + "a" * 249},
    "http": SCHEDULE | {"destination": "http://localhost:8080/"},
    "mail": SCHEDULE | {"destination": "mailto:someone@example.com"},
    "channel": SCHEDULE | {"destination": "channel:team-chat"},
    "empty retry": SCHEDULE | {"retry": {}},
    "child": SCHEDULE | {"id": "parent/child"},
    "an id beyond ASCII": SCHEDULE | {"id": "Bestellung-ä-😀 \u00a0\u2028"},
    "cancel": CANCEL,
    "cancel a version": CANCEL | {"version": 0, "reason": "paid", "actor": "bob", "reply": True},
    "reschedule": RESCHEDULE | {"version": 4},
    "reschedule locally": without(RESCHEDULE, "due_at") | LOCAL,
    "trigger": TRIGGER | {"reply": False, "reason": None},
}

_WRONG_TYPES: dict[str, list[Any]] = {
    "id": [1, None, [], {}, True, ""],
    "due_at": [True, [], {}, 1.5, 1_796_115_600_000.5, "tomorrow", ""],
    "due_local": [
        1,
        [],
        "2026-12-01",
        "2026-12-01T09:00Z",
        "2026-12-01T09:00\n",
        "2026-12-0१T09:00",
    ],
    "time_zone": [1, [], ""],
    "version": ["1", 1.5, None, True, -1],
    "tenant": [1, None, ""],
    "kind": [1, None, ""],
    "group": [1, [], ""],
    "destination": [1, None, ""],
    "payload_ref": [1, {}, ""],
    "headers": [1, [], "x"],
    "not_after": [True, [], 1.5, "x"],
    "retry": [1, [], "x"],
    "reply": [1, None, "true"],
    "reason": [1, []],
    "actor": [1, [], ""],
}

WRONG_TYPES = [
    Bad(f"{field} is {content!r}", SCHEDULE | {field: content}, "invalid", field)
    for field, contents in _WRONG_TYPES.items()
    for content in contents
]

_CONTROLS = ["\u0000", "\n", "\u001f", "\u007f", "\u0085", "\u009f"]

CONTROLS = [
    Bad(
        f"{field} holds {control!r}", SCHEDULE | {field: f"a{control}b"}, "control_character", field
    )
    for field in ("id", "tenant", "kind", "group", "actor")
    for control in _CONTROLS
]

_BAD_DESTINATIONS = [
    "DUE", "due:", "nothing", "ftp://example.com", "javascript:alert(1)", "topic:", "topic:.",
    "topic:..", "topic:a b", "topic:a/b", "topic:é", "topic:" + "a" * 250, "http:", "http://",
    "http:/x", "http:///path", "https://?x", "https://#x", "http://a b", "https://a\nb", "mailto:",
    "mailto: a@b.c", "channel:", "channel:a b", "HTTP://example.com", "topic:a\n",
    "https://a\u0000",
]  # fmt: skip

DESTINATIONS = [
    Bad(f"destination {destination!r}"[:60], SCHEDULE | {"destination": destination}, "invalid",
        "destination")
    for destination in _BAD_DESTINATIONS
] + [
    # That a host stands between the slashes and the port takes a parser to see.
    Bad(f"destination {destination!r}", SCHEDULE | {"destination": destination}, "invalid",
        "destination", by_schema=False)
    for destination in ["http://:80", "http://user@", "https://[", "http://a:99999", "http://a:0"]
]  # fmt: skip

INSTANTS = [
    Bad("seconds", SCHEDULE | {"due_at": 1_796_115_600}, "seconds_for_milliseconds", "due_at"),
    Bad("one", SCHEDULE | {"due_at": 1}, "seconds_for_milliseconds", "due_at"),
    Bad(
        "the last suspected second",
        SCHEDULE | {"due_at": limits.SECONDS_SUSPECTED_BELOW_MS - 1},
        "seconds_for_milliseconds",
        "due_at",
    ),
    Bad(
        "seconds in not_after",
        SCHEDULE | {"not_after": 1_796_115_600},
        "seconds_for_milliseconds",
        "not_after",
    ),
    Bad("negative", SCHEDULE | {"due_at": -1}, "out_of_range", "due_at"),
    Bad("past 9999", SCHEDULE | {"due_at": limits.INSTANT_MS_MAX + 1}, "out_of_range", "due_at"),
    Bad("64 bits", SCHEDULE | {"due_at": 2**63}, "out_of_range", "due_at"),
    Bad("more than 64 bits", SCHEDULE | {"due_at": 10**30}, "out_of_range", "due_at"),
    Bad("no offset", SCHEDULE | {"due_at": "2026-12-01T09:00:00"}, "no_offset", "due_at"),
    Bad("no time", SCHEDULE | {"due_at": "2026-12-01"}, "invalid", "due_at"),
    Bad("year 10000", SCHEDULE | {"due_at": "10000-01-01T00:00:00Z"}, "invalid", "due_at"),
    # The calendar is not in JSON Schema.
    Bad("30 February", SCHEDULE | {"due_at": "2026-02-30T00:00:00Z"}, "invalid", "due_at", False),
    Bad("29 February", SCHEDULE | {"due_at": "2026-02-29T00:00:00Z"}, "invalid", "due_at", False),
    Bad("month 13", SCHEDULE | {"due_at": "2026-13-01T00:00:00Z"}, "invalid", "due_at", False),
    Bad("24 hours", SCHEDULE | {"due_at": "2026-12-01T24:00:00Z"}, "invalid", "due_at", False),
    Bad("1969", SCHEDULE | {"due_at": "1969-12-31T23:59:59Z"}, "out_of_range", "due_at", False),
    Bad(
        "10000 by rounding up",
        SCHEDULE | {"due_at": "9999-12-31T23:59:59.9995Z"},
        "out_of_range",
        "due_at",
        False,
    ),
    Bad(
        "10000 in UTC",
        SCHEDULE | {"due_at": "9999-12-31T23:59:59-01:00"},
        "out_of_range",
        "due_at",
        False,
    ),
    # JSON Schema takes a float without a fraction for an integer.
    Bad("a float", SCHEDULE | {"due_at": 1_796_115_600_000.0}, "invalid", "due_at", False),
    Bad("version 1.0", SCHEDULE | {"version": 1.0}, "invalid", "version", False),
]

RULES = [
    Bad("neither time", BARE, "one_of", "due_at"),
    Bad("both times", SCHEDULE | LOCAL, "one_of", "due_at"),
    Bad("zone alone", SCHEDULE | {"time_zone": "Europe/Berlin"}, "one_of", "time_zone"),
    Bad("local alone", BARE | {"due_local": "2026-12-01T09:00"}, "one_of", "time_zone"),
    Bad("local with due_at", SCHEDULE | {"due_local": "2026-12-01T09:00"}, "one_of", "due_at"),
    Bad("neither time, moved", without(RESCHEDULE, "due_at"), "one_of", "due_at"),
    Bad("both times, moved", RESCHEDULE | LOCAL, "one_of", "due_at"),
    Bad("both payloads", SCHEDULE | {"payload": 1, "payload_ref": "x"}, "both", "payload_ref"),
    Bad("null and a ref", SCHEDULE | {"payload": None, "payload_ref": "x"}, "both", "payload_ref"),
    Bad("no id", without(SCHEDULE, "id"), "missing_field", "id"),
    Bad("no id to cancel", without(CANCEL, "id"), "missing_field", "id"),
    Bad("no type", without(SCHEDULE, "type"), "missing_field", "type"),
    Bad("unknown type", SCHEDULE | {"type": "sched"}, "unknown_type", "type"),
    Bad("type is a number", SCHEDULE | {"type": 1}, "unknown_type", "type"),
    Bad("type is null", SCHEDULE | {"type": None}, "unknown_type", "type"),
    Bad("a typo", SCHEDULE | {"not_aftr": 0}, "unknown_field", "not_aftr"),
    Bad("typo in retry", SCHEDULE | {"retry": {"delay_s": [1]}}, "unknown_field", "retry.delay_s"),
    Bad("a typo in cancel", CANCEL | {"due_at": 0}, "unknown_field", "due_at"),
    Bad("a typo in trigger", TRIGGER | {"version": 0}, "unknown_field", "version"),
    Bad("a typo in reschedule", RESCHEDULE | {"tenant": "a"}, "unknown_field", "tenant"),
    Bad("a backtick", SCHEDULE | {"a`b": 1}, "unknown_field", "a`b"),
    Bad("an empty name", SCHEDULE | {"": 1}, "unknown_field", ""),
    Bad("header is no text", SCHEDULE | {"headers": {"a": 1}}, "invalid", "headers[...]"),
    Bad("header is null", SCHEDULE | {"headers": {"a": None}}, "invalid", "headers[...]"),
    Bad("no delays", SCHEDULE | {"retry": {"delays_s": []}}, "invalid", "retry.delays_s"),
    Bad("delay < 0", SCHEDULE | {"retry": {"delays_s": [1, -1]}}, "invalid", "retry.delays_s[1]"),
    Bad("no attempts", SCHEDULE | {"retry": {"max_attempts": 0}}, "invalid", "retry.max_attempts"),
]  # fmt: skip


class Bound(NamedTuple):
    """A limit: the body at it, the body one past it, and how that is refused."""

    label: str
    at: dict[str, Any]
    past: dict[str, Any]
    code: str
    field: str
    by_schema: bool = True


def _text(field: str, bound: int, start: str = "", body: dict[str, Any] = SCHEDULE) -> Bound:
    at = start + "é" * (bound - len(start))
    return Bound(field, body | {field: at}, body | {field: at + "é"}, "invalid", field)


BOUNDS = [
    _text("id", limits.ID_CHARACTERS_MAX),
    _text("tenant", limits.NAME_CHARACTERS_MAX),
    _text("kind", limits.NAME_CHARACTERS_MAX),
    _text("group", limits.NAME_CHARACTERS_MAX),
    _text("actor", limits.NAME_CHARACTERS_MAX),
    _text("reason", limits.REASON_CHARACTERS_MAX),
    _text("payload_ref", limits.REFERENCE_CHARACTERS_MAX),
    _text("destination", limits.DESTINATION_CHARACTERS_MAX, start="https://example.com/"),
    _text("time_zone", limits.NAME_CHARACTERS_MAX, body=BARE | LOCAL),
    Bound(
        "version",
        SCHEDULE | {"version": limits.VERSION_MAX},
        SCHEDULE | {"version": limits.VERSION_MAX + 1},
        "invalid",
        "version",
    ),
    Bound(
        "version of a cancel",
        CANCEL | {"version": limits.VERSION_MAX},
        CANCEL | {"version": limits.VERSION_MAX + 1},
        "invalid",
        "version",
    ),
    Bound(
        "due_at",
        SCHEDULE | {"due_at": limits.INSTANT_MS_MAX},
        SCHEDULE | {"due_at": limits.INSTANT_MS_MAX + 1},
        "out_of_range",
        "due_at",
    ),
    Bound(
        "milliseconds, downwards",
        SCHEDULE | {"due_at": limits.SECONDS_SUSPECTED_BELOW_MS},
        SCHEDULE | {"due_at": limits.SECONDS_SUSPECTED_BELOW_MS - 1},
        "seconds_for_milliseconds",
        "due_at",
    ),
    Bound(
        "delays",
        SCHEDULE | {"retry": {"delays_s": [1] * limits.RETRY_DELAYS_MAX}},
        SCHEDULE | {"retry": {"delays_s": [1] * (limits.RETRY_DELAYS_MAX + 1)}},
        "invalid",
        "retry.delays_s",
    ),
    Bound(
        "a delay",
        SCHEDULE | {"retry": {"delays_s": [limits.RETRY_DELAY_S_MAX]}},
        SCHEDULE | {"retry": {"delays_s": [limits.RETRY_DELAY_S_MAX + 1]}},
        "invalid",
        "retry.delays_s[0]",
    ),
    Bound(
        "attempts",
        SCHEDULE | {"retry": {"max_attempts": limits.RETRY_ATTEMPTS_MAX}},
        SCHEDULE | {"retry": {"max_attempts": limits.RETRY_ATTEMPTS_MAX + 1}},
        "invalid",
        "retry.max_attempts",
    ),
    Bound(
        "payload",
        SCHEDULE | {"payload": payload_of(limits.PAYLOAD_BYTES_MAX)},
        SCHEDULE | {"payload": payload_of(limits.PAYLOAD_BYTES_MAX + 1)},
        "too_large",
        "payload",
        by_schema=False,
    ),
    Bound(
        "payload beyond ASCII",
        SCHEDULE | {"payload": "é" * (limits.PAYLOAD_BYTES_MAX // 2 - 1)},
        SCHEDULE | {"payload": "é" * (limits.PAYLOAD_BYTES_MAX // 2)},
        "too_large",
        "payload",
        by_schema=False,
    ),
    Bound(
        "nesting",
        SCHEDULE | {"payload": nested(limits.NESTING_MAX)},
        SCHEDULE | {"payload": nested(limits.NESTING_MAX + 1)},
        "too_deep",
        "payload",
        by_schema=False,
    ),
    Bound(
        "headers",
        SCHEDULE | {"headers": {"ä": "é" * (limits.HEADERS_BYTES_MAX // 2 - 1)}},
        SCHEDULE | {"headers": {"ä": "é" * (limits.HEADERS_BYTES_MAX // 2 - 1) + "x"}},
        "too_large",
        "headers",
        by_schema=False,
    ),
]

REFUSED = [
    *WRONG_TYPES,
    *CONTROLS,
    *DESTINATIONS,
    *INSTANTS,
    *RULES,
    *(Bad(b.label + " + 1", b.past, b.code, b.field, b.by_schema) for b in BOUNDS),
]
ALL_ACCEPTED = ACCEPTED | {f"{bound.label} at its bound": bound.at for bound in BOUNDS}
