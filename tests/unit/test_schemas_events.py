"""What leaves: due events, revocations, outcomes, replies, dead letters."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
import pytest

from schemas import events, limits
from schemas.errors import Refused
from schemas.reminder import Asked, Attempt, Entry, Reminder, State

DUE_AT_MS = 1_796_115_600_000
PAYLOAD = b'{ "z" : 1e400, "a":0.10 , "text":"\\u00e9" }'
CONTRACT_FIELDS = [
    "fire_id",
    "id",
    "version",
    "occurrence",
    "attempt",
    "tenant",
    "kind",
    "group",
    "recipient",
    "destination",
    "due_at",
    "fired_at",
    "not_after",
    "payload",
    "headers",
]


def claimed(attempt: int = 1, **asked: Any) -> Reminder:
    """A reminder that has just fired for the n-th time."""
    fields: dict[str, Any] = {
        "version": 3,
        "due_at_ms": DUE_AT_MS,
        "tenant": "acme",
        "kind": "invoice",
        "group": None,
        "destination": "https://hooks.example.com/",
        "payload": PAYLOAD,
        "payload_ref": None,
        "headers": {"x-team": "billing"},
        "not_after_ms": None,
        "retry": None,
        "due_local": None,
        "time_zone": None,
    }
    return Reminder(
        id="order-1",
        asked=Asked(**fields | asked),
        state=State.CLAIMED,
        entry=Entry.LEASE,
        at_ms=DUE_AT_MS + 60_000,
        created_at_ms=0,
        changed_at_ms=0,
        attempt=attempt,
        fired_at_ms=DUE_AT_MS + attempt,
        trace_parent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )


def decoded(reminder: Reminder) -> events.DueEvent:
    """The due event as a delivery worker reads it."""
    event = events.decode_due(events.due_event(reminder)[0])
    assert isinstance(event, events.DueEvent)
    return event


def test_fire_id_is_golden() -> None:
    """Receivers keep it as idempotency key for weeks: it may never change."""
    expected = hashlib.sha256(b"order-1\n\n1796115600000").hexdigest()[:32]
    assert (
        events.fire_id("order-1", "", DUE_AT_MS) == expected == "718b0a3f0f02d87e9bf3ee6e4082f3fd"
    )
    assert events.fire_id_of(claimed(1)) == events.fire_id_of(claimed(2)) == expected


def test_fire_id_differs_by_id_recipient_and_instant() -> None:
    made = {
        events.fire_id(reminder_id, recipient, due_at_ms)
        for reminder_id in ("a", "b")
        for recipient in ("", "a", "b")
        for due_at_ms in (0, 1)
    }
    assert len(made) == 12


def test_due_event_has_the_fields_of_the_contract_in_its_order() -> None:
    body = json.loads(events.due_event(claimed())[0])
    assert list(body) == CONTRACT_FIELDS
    assert body["due_at"] == "2026-12-01T09:00:00.000Z"
    assert body["fired_at"] == "2026-12-01T09:00:00.001Z"
    assert (body["group"], body["recipient"], body["not_after"]) == (None, None, None)


def test_due_event_with_a_reference_has_no_payload() -> None:
    body = json.loads(events.due_event(claimed(payload=None, payload_ref="s3://b/k"))[0])
    assert list(body) == [name.replace("payload", "payload_ref") for name in CONTRACT_FIELDS]


def test_due_event_without_payload_has_neither() -> None:
    body = json.loads(events.due_event(claimed(payload=None))[0])
    assert not {"payload", "payload_ref"} & body.keys()


def test_headers_of_a_due_event() -> None:
    headers = dict(events.due_event(claimed(2))[1])
    fire_id = events.fire_id_of(claimed())
    assert headers["fire-id"] == fire_id
    assert headers["attempt"] == "2"
    assert headers["ce_id"] == f"{fire_id}-2"
    assert headers["ce_type"] == "reminder.due.v1"
    assert headers["ce_specversion"] == "1.0"
    assert str(headers["traceparent"]).startswith("00-")


def test_payload_travels_untouched() -> None:
    event = decoded(claimed())
    assert bytes(event.payload) == PAYLOAD
    assert PAYLOAD in events.due_event(claimed())[0]
    assert PAYLOAD in events.delivery_body(event)
    assert PAYLOAD in events.dead_letter(claimed(), "rejected", 0)
    assert events.topic_record(claimed())[0] == PAYLOAD


def test_payload_null_is_not_no_payload() -> None:
    assert "payload" in json.loads(events.delivery_body(decoded(claimed(payload=b"null"))))
    assert "payload" not in json.loads(events.delivery_body(decoded(claimed(payload=None))))


@pytest.mark.parametrize(
    "asked", [{}, {"payload": None}, {"payload": None, "payload_ref": "s3://b/k"}]
)
def test_delivery_body_is_the_same_bytes_at_every_attempt(asked: dict[str, Any]) -> None:
    first, second = (decoded(claimed(attempt, **asked)) for attempt in (1, 2))
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.fired_at != second.fired_at
    body = events.delivery_body(first)
    assert body == events.delivery_body(second)
    # The payload's 1e400 is no number Python can hold, so numbers stay as they are written.
    sent = json.loads(events.due_event(claimed(1, **asked))[0], parse_float=str)
    del sent["attempt"], sent["fired_at"]
    assert json.loads(body, parse_float=str) == sent


def test_topic_record() -> None:
    value, headers = events.topic_record(claimed(payload=None, payload_ref="s3://b/k"))
    assert value == b"null"
    assert [name for name, _ in headers] == [
        "x-team",
        "fire-id",
        "due-at",
        "payload-ref",
        "traceparent",
    ]


def test_revocation_leads_back() -> None:
    fire_id = events.fire_id_of(claimed())
    for reason in (None, "paid"):
        value = events.revocation(fire_id, reason)
        assert events.decode_due(value) == events.Revocation(fire_id, reason)


def test_outcome_leads_back() -> None:
    answer = events.Outcome("0" * 32, "a", 1, events.Status.FAILED, DUE_AT_MS, "Timeout", "x", 2.5)
    read = events.decode_outcome(events.outcome(answer))
    assert read == msgspec.structs.replace(answer, at=datetime(2026, 12, 1, 9, tzinfo=UTC))


OUTCOME: dict[str, Any] = {"fire_id": "0" * 32, "id": "a", "attempt": 1, "status": "failed"}


def test_outcome_may_say_more_than_is_known() -> None:
    assert events.decode_outcome(json.dumps(OUTCOME | {"more": [1]}).encode()).attempt == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"fire_id": "0" * 31}, "fire_id"),
        ({"fire_id": "0" * 32 + "\n"}, "fire_id"),
        ({"fire_id": "G" * 32}, "fire_id"),
        ({"id": ""}, "id"),
        ({"id": "x" * (limits.ID_CHARACTERS_MAX + 1)}, "id"),
        ({"attempt": 0}, "attempt"),
        ({"attempt": 1.5}, "attempt"),
        ({"status": "done"}, "status"),
        ({"at": "yesterday"}, "at"),
        ({"detail": "x" * 1_025}, "detail"),
        ({"provider_ref": "x" * 1_025}, "provider_ref"),
        ({"retry_after_s": -1}, "retry_after_s"),
        ({"retry_after_s": "60"}, "retry_after_s"),
    ],
)
def test_outcome_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        events.decode_outcome(json.dumps(OUTCOME | change).encode())
    assert caught.value.field == field


@pytest.mark.parametrize("missing", OUTCOME)
def test_outcome_needs_its_fields(missing: str) -> None:
    body = {name: content for name, content in OUTCOME.items() if name != missing}
    with pytest.raises(Refused) as caught:
        events.decode_outcome(json.dumps(body).encode())
    assert (caught.value.code, caught.value.field) == ("missing_field", missing)


def test_final_outcomes() -> None:
    assert {status.value for status in set(events.Status) - events.FINAL} == {"failed", "accepted"}
    assert set(events.Status) - events.SETTLED == {events.Status.FAILED}


def test_dead_letter_says_what_was_tried() -> None:
    tried = msgspec.structs.replace(
        claimed(2), attempts=(Attempt(1, 0, "failed", "Timeout"), Attempt(2, 1, "rejected", "410"))
    )
    body = json.loads(events.dead_letter(tried, "rejected", DUE_AT_MS))
    assert body["fire_id"] == events.fire_id_of(tried)
    assert [attempt["detail"] for attempt in body["attempts"]] == ["Timeout", "410"]
    assert (body["reason"], body["at"]) == ("rejected", "2026-12-01T09:00:00.000Z")


def test_reply_names_its_command() -> None:
    source = events.Source("reminders.commands", 2, 40, "event-1")
    body = json.loads(events.reply("a", 3, "accepted", source, DUE_AT_MS, due_at_ms=0))
    assert body == {
        "id": "a",
        "version": 3,
        "status": "accepted",
        "command": {
            "topic": "reminders.commands",
            "partition": 2,
            "offset": 40,
            "ce_id": "event-1",
        },
        "due_at": "1970-01-01T00:00:00.000Z",
        "at": "2026-12-01T09:00:00.000Z",
    }


def test_description_is_json_and_complete() -> None:
    body = json.loads(orjson.dumps(events.description(claimed())))
    assert body["state"] == "claimed"
    assert body["next_at"] is None
    assert body["fire_id"] == events.fire_id_of(claimed())


def test_the_largest_legal_command_fits_wherever_it_goes() -> None:
    largest = claimed(
        payload=b'"' + b"x" * (limits.PAYLOAD_BYTES_MAX - 2) + b'"',
        # Written as JSON, such a character takes six bytes.
        headers={
            "\x00" * (limits.HEADERS_BYTES_MAX // 2): "\x01" * (limits.HEADERS_BYTES_MAX // 2)
        },
        destination="https://" + "é" * (limits.DESTINATION_CHARACTERS_MAX - 8),
    )
    for value in (events.due_event(largest)[0], events.dead_letter(largest, "rejected", 0)):
        assert len(value) < limits.COMMAND_BYTES_MAX // 4


# ---- what is refused ----

PLACE = events.Source("commands", 3, 17)
WHY = Refused("unknown_field", "not_aftr: unknown field", "not_aftr")


def test_a_refused_record_keeps_its_bytes_and_its_headers() -> None:
    """Without `ce_type` a CloudEvent in binary form could not be sent again once it is mended."""
    own = [("ce_type", b"reminder.schedule.v1"), ("error.of-the-sender", b"1"), ("ce_type", None)]
    record = events.rejected(b"key", b"\xff", own, WHY, PLACE)
    assert (record.key, record.value) == (b"key", b"\xff")
    assert record.headers == [*own, *events.rejection_headers(WHY, PLACE)]


def test_one_refused_again_has_the_latest_reason_only() -> None:
    """And nothing that would keep it from being moved to where it belongs."""
    own = [("trace", b"t"), ("minutewheel.forwarded-from", "1/2")]
    first = events.rejected(b"key", b"x", own, WHY, PLACE)
    again = Refused("malformed", "not a JSON object", "")
    second = events.rejected(first.key, first.value, first.headers, again, PLACE)
    assert second.headers == [("trace", b"t"), *events.rejection_headers(again, PLACE)]


@pytest.mark.parametrize(
    "own",
    [[], [("h", b"x")], [("h", b"x" * 3_000_000)], [("ä", None)] * 100_000, [("a", b"")] * 700_000],
    ids=["none", "one", "large", "many", "ever so many"],
)
@pytest.mark.parametrize("value_bytes", [0, 2_000_000, events.REJECTED_BYTES_MAX, 4_000_000])
@pytest.mark.parametrize("key", [None, b"k", b"k" * 3_000_000])
def test_a_refused_record_always_fits(
    key: bytes | None, value_bytes: int, own: list[tuple[str, bytes | None]]
) -> None:
    value = b"v" * value_bytes
    record = events.rejected(key, value, own, WHY, PLACE)
    size = len(key or b"") + value_bytes + events.headers_bytes(own)
    said = dict(record.headers)
    if size <= events.REJECTED_BYTES_MAX:
        assert (record.key, record.value, record.headers[: len(own)]) == (key, value, own)
        assert "error.cut-from-bytes" not in said
    else:
        assert said["error.cut-from-bytes"] == str(size)
    # As Kafka writes it: a varint before each name and each value, and some bytes for the rest.
    written = sum(len(name.encode()) + len(content or "") + 2 for name, content in record.headers)
    written += len(record.key or b"") + len(record.value or b"") + 100
    assert written <= limits.RECORD_BYTES_MAX
