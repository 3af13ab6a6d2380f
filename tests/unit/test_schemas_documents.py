"""The documents are current, valid, and say what the decoder and the writers do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from schemas import asyncapi, documents, events, limits
from schemas.commands import COMMAND_TYPES
from schemas.errors import Refused
from schemas.reminder import Asked, Attempt, Entry, Reminder, State
from tests.unit.schemas_examples import (
    ALL_ACCEPTED,
    FULL,
    LOCAL,
    REFUSED,
    RESCHEDULE,
    SCHEDULE,
    Bad,
    encoded,
    taken,
)

MADE = documents.documents()
SCHEMAS = {name: made for name, made in MADE.items() if name.startswith("json/")}

MINIMAL = Reminder(
    id="order-1",
    asked=Asked(
        version=0,
        due_at_ms=1_796_115_600_000,
        tenant="default",
        kind="reminder",
        group=None,
        destination="due",
        payload=None,
        payload_ref=None,
        headers=None,
        not_after_ms=None,
        retry=None,
        due_local=None,
        time_zone=None,
    ),
    state=State.CLAIMED,
    entry=Entry.LEASE,
    at_ms=1_796_115_660_000,
    created_at_ms=1_796_000_000_000,
    changed_at_ms=1_796_115_600_001,
    attempt=1,
    fired_at_ms=1_796_115_600_001,
)
RICH = Reminder(
    id="shipment/é-1",
    asked=Asked(
        version=limits.VERSION_MAX,
        due_at_ms=limits.INSTANT_MS_MAX,
        tenant="acme",
        kind="invoice",
        group="shipment-7",
        destination="https://hooks.example.com/",
        payload=b'{"any":[1,2.5,null]}',
        payload_ref=None,
        headers={"x-team": "billing"},
        not_after_ms=limits.INSTANT_MS_MAX,
        retry=None,
        due_local="2026-12-01T09:00",
        time_zone="Europe/Berlin",
    ),
    state=State.DEAD,
    entry=Entry.EXPIRE,
    at_ms=0,
    created_at_ms=0,
    changed_at_ms=0,
    occurrence=1,
    attempt=3,
    failures=3,
    fired_at_ms=limits.INSTANT_MS_MAX,
    attempts=(Attempt(2, 0, "failed", "Timeout"), Attempt(3, 1, "rejected")),
    trace_parent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)
SOURCE = events.Source("reminders.commands", 0, 0)


def check(name: str, value: bytes) -> None:
    Draft202012Validator(SCHEMAS[f"json/{name}.v1.json"]).validate(json.loads(value))


def test_current() -> None:
    assert documents.stale(documents.FOLDER) == [], "run `make schemas`"


def test_check_names_what_is_not_current(tmp_path: Path) -> None:
    assert sorted(documents.stale(tmp_path)) == sorted(MADE)
    documents.write(tmp_path)
    assert documents.stale(tmp_path) == []
    (tmp_path / "asyncapi.json").write_text("{}")
    (tmp_path / "json" / "stray.json").write_text("{}")
    (tmp_path / "json" / "cancel.v1.json").unlink()
    wrong = ["json/cancel.v1.json", "asyncapi.json", "json/stray.json"]
    assert sorted(documents.stale(tmp_path)) == sorted(wrong)
    said: list[str] = []
    assert documents.main(["--check"], tmp_path, said.append) == 1
    assert len(said) == len(wrong)
    assert documents.main([], tmp_path, said.append) == 0
    assert documents.main(["--check"], tmp_path, said.append) == 0
    assert len(said) == len(wrong)


@pytest.mark.parametrize("name", SCHEMAS)
def test_valid_json_schema_with_a_name(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith("urn:minutewheel:")
    assert schema["$id"].endswith(":v1")
    assert schema["title"]
    assert schema["description"]


def test_names_are_unique() -> None:
    assert len({schema["$id"] for schema in SCHEMAS.values()}) == len(SCHEMAS)
    assert SCHEMAS["json/schedule.v1.json"]["$id"] == "urn:minutewheel:command:schedule:v1"


@pytest.mark.parametrize("name", COMMAND_TYPES)
def test_every_field_of_a_command_is_described(name: str) -> None:
    properties = SCHEMAS[f"json/{name}.v1.json"]["properties"]
    assert list(properties) == ["type", *COMMAND_TYPES[name].__struct_fields__]
    assert all(field["description"] for field in properties.values())


def test_figures_in_descriptions_are_the_limits() -> None:
    assert f"{limits.PAYLOAD_BYTES_MAX:,} bytes" in documents.FIELDS["payload"]
    assert f"{limits.NESTING_MAX} deep" in documents.FIELDS["payload"]
    assert f"{limits.HEADERS_BYTES_MAX:,} bytes" in documents.FIELDS["headers"]


@pytest.mark.parametrize("body", ALL_ACCEPTED.values(), ids=ALL_ACCEPTED)
def test_schema_accepts_what_the_decoder_accepts(body: dict[str, Any]) -> None:
    check(body["type"], encoded(body))
    check("command", encoded(body))


@pytest.mark.parametrize("bad", REFUSED, ids=[bad.label for bad in REFUSED])
def test_schema_refuses_what_the_decoder_refuses(bad: Bad) -> None:
    whole = Draft202012Validator(SCHEMAS["json/command.v1.json"])
    assert whole.is_valid(bad.body) != bad.by_schema
    if bad.body.get("type") in set(COMMAND_TYPES):
        one = Draft202012Validator(SCHEMAS[f"json/{bad.body['type']}.v1.json"])
        assert one.is_valid(bad.body) != bad.by_schema


@pytest.mark.parametrize("reminder", [MINIMAL, RICH], ids=["minimal", "rich"])
def test_written_bodies_have_the_described_shape(reminder: Reminder) -> None:
    check("due-event", events.due_event(reminder)[0])
    check("dead-letter", events.dead_letter(reminder, "rejected", 0))
    check("revocation", events.revocation(events.fire_id_of(reminder), None))
    check("revocation", events.revocation(events.fire_id_of(reminder), "paid"))


def test_written_bodies_have_no_field_that_is_not_described() -> None:
    written = {
        "due-event": events.due_event(RICH)[0],
        "dead-letter": events.dead_letter(RICH, "rejected", 0),
        "revocation": events.revocation("0" * 32, "paid"),
        "outcome": events.outcome(
            events.Outcome("0" * 32, "a", 1, events.Status.FAILED, 0, "x", "y", 1.5)
        ),
        "reply": events.reply(
            "a",
            1,
            "accepted",
            events.Source("reminders.commands", 0, 0, "event-1"),
            0,
            due_at_ms=0,
            detail="x",
        ),
    }
    for name, value in written.items():
        described = set(SCHEMAS[f"json/{name}.v1.json"]["properties"])
        assert described - set(json.loads(value)) <= {"payload_ref"}, name
        assert set(json.loads(value)) <= described, name


@pytest.mark.parametrize("status", events.ReplyStatus)
def test_replies_have_the_described_shape(status: str) -> None:
    check("reply", events.reply("a", None, status, SOURCE, 0))
    check("reply", events.reply("a", 3, status, SOURCE, 0, due_at_ms=0, detail="x"))


@pytest.mark.parametrize("status", events.Status)
def test_outcomes_have_the_described_shape(status: events.Status) -> None:
    for answer in (
        events.Outcome("0" * 32, "a", 1, status),
        events.Outcome("0" * 32, "a", 1, status, 0, "Timeout", "id-1", 2.5),
    ):
        check("outcome", events.outcome(answer))
        assert events.decode_outcome(events.outcome(answer)).status is status


def test_rejection_headers_are_the_described_ones() -> None:
    written = dict(events.rejection_headers(Refused("invalid", "id: no", "id"), SOURCE))
    schema = MADE["asyncapi.json"]["components"]["messages"]["rejected"]["headers"]
    Draft202012Validator(schema).validate(written)
    assert set(written) == set(schema["properties"])


def test_due_event_headers_are_the_described_ones() -> None:
    schema = MADE["asyncapi.json"]["components"]["messages"]["dueEvent"]["headers"]
    written = dict(events.due_event(RICH)[1])
    Draft202012Validator(schema).validate(written)
    assert set(written) == set(schema["properties"])


def test_structured_cloud_event_is_described() -> None:
    envelope = {"specversion": "1.0", "id": "1", "source": "/orders"}
    for body in (FULL, RESCHEDULE, {"type": "cancel", "id": "a"}):
        data = {field: content for field, content in body.items() if field != "type"}
        value = encoded(envelope | {"type": f"reminder.{body['type']}.v1", "data": data})
        check("cloud-event", value)
        taken(value)


def test_suppression_is_described() -> None:
    check("suppression", b'{"channels":["*"],"reason":"unsubscribed","until":0}')
    quiet = {"start": "21:00", "end": "08:00", "time_zone": LOCAL["time_zone"]}
    check("suppression", encoded({"quiet_hours": quiet, "bypass_kinds": ["alarm"]}))


CONTRACT_TOPICS = {
    "commands": ("delete", 7),
    "state": ("compact", None),
    "due": ("delete", 7),
    "outcomes": ("delete", 30),
    "replies": ("delete", 1),
    "rejected": ("delete", 30),
    "dead": ("delete", 30),
    "suppressions": ("compact", None),
    "pressure": ("compact", None),
}


def test_every_topic_of_the_contract_has_its_channel() -> None:
    channels = MADE["asyncapi.json"]["channels"]
    assert list(channels) == list(CONTRACT_TOPICS)
    for name, (cleanup, days) in CONTRACT_TOPICS.items():
        channel = channels[name]
        assert channel["address"] == f"reminders.{name}"
        binding = channel["bindings"]["kafka"]
        assert binding["partitions"] == asyncapi.PARTITIONS
        assert binding["topicConfiguration"]["cleanup.policy"] == [cleanup]
        retention_ms = binding["topicConfiguration"].get("retention.ms")
        assert retention_ms == (None if days is None else days * 86_400_000)
        assert channel["messages"]


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for name, content in node.items():
            if name == "$ref":
                yield content
            yield from references(content)
    elif isinstance(node, list):
        for content in node:
            yield from references(content)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = MADE["asyncapi.json"]
    found = list(references(document))
    assert found
    for reference in found:
        if reference.startswith("./"):
            assert reference.removeprefix("./") in SCHEMAS
            continue
        node = document
        for step in reference.removeprefix("#/").split("/"):
            node = node[step]
    files = {reference.removeprefix("./") for reference in found if reference.startswith("./")}
    assert SCHEMAS.keys() - files == {"json/command.v1.json"}


def test_operations_are_seen_from_the_application() -> None:
    operations = MADE["asyncapi.json"]["operations"]
    assert "receiveCommands" in operations
    assert "sendCommands" not in operations
    assert operations["receiveCommands"]["reply"]["channel"] == {"$ref": "#/channels/replies"}
    for operation in operations.values():
        channel = operation["channel"]["$ref"]
        assert all(m["$ref"].startswith(f"{channel}/messages/") for m in operation["messages"])


def test_every_message_has_a_key() -> None:
    for message in MADE["asyncapi.json"]["components"]["messages"].values():
        assert message["bindings"]["kafka"]["key"]["description"]
    assert SCHEDULE["type"] in MADE["asyncapi.json"]["components"]["messages"]
