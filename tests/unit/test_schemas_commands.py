"""What a command may say, in its three forms, and that every refusal names its field."""

from __future__ import annotations

import re
from typing import Any

import pytest

from schemas import commands, documents, limits
from schemas.errors import Refused
from tests.unit.schemas_examples import (
    ALL_ACCEPTED,
    BARE,
    BOUNDS,
    CANCEL,
    FULL,
    LOCAL,
    REFUSED,
    SCHEDULE,
    Bad,
    Bound,
    encoded,
    nested,
    taken,
    without,
)

HEAD = b'{"type":"schedule","id":"a","due_at":0,'


def refusal_of(value: bytes, headers: commands.Headers = None) -> Refused:
    with pytest.raises(Refused) as caught:
        taken(value, headers)
    return caught.value


def comparable(command: commands.Command) -> dict[str, Any]:
    fields = {field: getattr(command, field) for field in command.__struct_fields__}
    if isinstance(command, commands.Schedule):
        fields["payload"] = bytes(command.payload)
    return {"form": type(command)} | fields


@pytest.mark.parametrize("body", ALL_ACCEPTED.values(), ids=ALL_ACCEPTED)
def test_accepted(body: dict[str, Any]) -> None:
    command = taken(encoded(body))
    assert command.id == body["id"]
    for field in without(body, "type", "due_at", "not_after", "payload", "retry"):
        assert getattr(command, field) == body[field], field


@pytest.mark.parametrize("body", ALL_ACCEPTED.values(), ids=ALL_ACCEPTED)
def test_three_forms_mean_the_same(body: dict[str, Any]) -> None:
    plain = taken(encoded(body))
    cloud_type = f"reminder.{body['type']}.v1"
    rest = without(body, "type")
    headers: commands.Headers = [
        ("ce_specversion", b"1.0"),
        ("ce_type", cloud_type.encode()),
        ("ce_id", b"event-1"),
        ("ce_source", b"/orders"),
    ]
    envelope = {"specversion": "1.0", "type": cloud_type, "id": "event-1", "source": "/orders"}
    structured = envelope | {"datacontenttype": "application/json", "data": rest}
    assert comparable(taken(encoded(rest), headers)) == comparable(plain)
    assert comparable(taken(encoded(body), headers)) == comparable(plain)
    assert comparable(taken(encoded(structured))) == comparable(plain)
    assert comparable(taken(encoded(structured | {"data": body}))) == comparable(plain)


@pytest.mark.parametrize("bad", REFUSED, ids=[bad.label for bad in REFUSED])
def test_refusal_names_its_field(bad: Bad) -> None:
    error = refusal_of(encoded(bad.body))
    assert (error.code, error.field) == (bad.code, bad.field), error.message
    assert error.field in error.message
    assert len(error.message) <= limits.ERROR_MESSAGE_CHARACTERS_MAX


# The other forms have a type of their own, with a table of its own below.
UNTYPED = [bad for bad in REFUSED if bad.field != "type"]


@pytest.mark.parametrize("bad", UNTYPED, ids=[bad.label for bad in UNTYPED])
def test_refused_in_the_other_forms_too(bad: Bad) -> None:
    cloud_type = f"reminder.{bad.body['type']}.v1"
    rest = without(bad.body, "type")
    structured = {"specversion": "1.0", "type": cloud_type, "id": "1", "source": "/", "data": rest}
    for error in (
        refusal_of(encoded(rest), [("ce_type", cloud_type.encode())]),
        refusal_of(encoded(structured)),
    ):
        assert (error.code, error.field) == (bad.code, bad.field), error.message


@pytest.mark.parametrize("bound", BOUNDS, ids=[bound.label for bound in BOUNDS])
def test_bound_holds_at_it_and_not_past_it(bound: Bound) -> None:
    taken(encoded(bound.at))
    error = refusal_of(encoded(bound.past))
    assert (error.code, error.field) == (bound.code, bound.field)


def test_whole_command_at_its_bound_and_past_it() -> None:
    # What is too large as a whole can only be space: every field is bounded for itself.
    value = encoded(FULL)
    at = value + b" " * (limits.COMMAND_BYTES_MAX - len(value))
    taken(at)
    assert refusal_of(at + b" ").code == "too_large"


def test_every_bound_has_a_row() -> None:
    tested_elsewhere = {
        "COMMAND_BYTES_MAX",
        "ERROR_MESSAGE_CHARACTERS_MAX",
        "ERROR_FIELD_CHARACTERS_MAX",
        # Bounds of what is stored or refused, not of what may be asked.
        "RECORD_BYTES_MAX",
        "ATTEMPTS_KEPT_MAX",
        "FIRED_INSTANTS_KEPT_MAX",
    }
    named = {name for name in vars(limits) if name.isupper()} - tested_elsewhere
    assert named == {
        "ID_CHARACTERS_MAX",
        "NAME_CHARACTERS_MAX",
        "DESTINATION_CHARACTERS_MAX",
        "REFERENCE_CHARACTERS_MAX",
        "REASON_CHARACTERS_MAX",
        "PAYLOAD_BYTES_MAX",
        "HEADERS_BYTES_MAX",
        "NESTING_MAX",
        "RETRY_DELAYS_MAX",
        "RETRY_DELAY_S_MAX",
        "RETRY_ATTEMPTS_MAX",
        "VERSION_MAX",
        "INSTANT_MS_MAX",
        "SECONDS_SUSPECTED_BELOW_MS",
    }, "a new limit needs a row in schemas_examples.BOUNDS and its name here"


@pytest.mark.parametrize(
    ("cloud_type", "code"),
    [
        (b"reminder.schedule.v2", "unknown_version"),
        (b"reminder.schedule.v01", "unknown_version"),
        (b"reminder.schedule", "unknown_type"),
        (b"reminder.schedule.v1\n", "unknown_type"),
        ("reminder.schedule.v\u0661".encode(), "unknown_type"),
        (b"reminder.explode.v1", "unknown_type"),
        (b"com.example.other", "unknown_type"),
        (b"", "unknown_type"),
        (b"\xff", "unknown_type"),
        (b"x" * 1_048_576, "unknown_type"),
    ],
)
def test_cloud_type_is_refused_by_name(cloud_type: bytes, code: str) -> None:
    error = refusal_of(encoded(without(SCHEDULE, "type")), [("ce_type", cloud_type)])
    assert (error.code, error.field) == (code, "ce_type")
    assert len(error.message) <= limits.ERROR_MESSAGE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("envelope", "code", "field"),
    [
        ({"type": 1, "data": CANCEL}, "unknown_type", "type"),
        ({"type": "reminder.cancel.v2", "data": CANCEL}, "unknown_version", "type"),
        ({"type": "reminder.cancel.v1"}, "missing_field", "data"),
        ({"type": "reminder.cancel.v1", "data": []}, "invalid", ""),
        ({"type": "reminder.cancel.v1", "data": {}}, "missing_field", "id"),
        ({"type": "reminder.cancel.v1", "data": SCHEDULE}, "unknown_type", "type"),
        ({"data": CANCEL}, "missing_field", "type"),
    ],
)
def test_structured_form_is_refused_by_name(
    envelope: dict[str, Any], code: str, field: str
) -> None:
    error = refusal_of(encoded({"specversion": "1.0", "id": "1", "source": "/"} | envelope))
    assert (error.code, error.field) == (code, field)


def test_type_must_agree_with_the_cloud_type() -> None:
    assert refusal_of(encoded(CANCEL), [("ce_type", b"reminder.trigger.v1")]).field == "type"


def test_header_without_content_is_no_cloud_event() -> None:
    assert isinstance(taken(encoded(CANCEL), [("ce_type", None)]), commands.Cancel)


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        (b"", "malformed", ""),
        (b" ", "malformed", ""),
        (b"null", "invalid", ""),
        (b"[]", "invalid", ""),
        (b'"schedule"', "invalid", ""),
        (b'["specversion"]', "invalid", ""),
        (b"\x00", "malformed", ""),
        (b"\xef\xbb\xbf" + encoded(SCHEDULE), "malformed", ""),
        (encoded(SCHEDULE).decode().encode("utf-16"), "malformed", ""),
        (encoded(SCHEDULE) + b"x", "malformed", ""),
        (encoded(SCHEDULE) + b"\x00", "malformed", ""),
        (encoded(SCHEDULE) * 2, "malformed", ""),
        (HEAD + b'"version":NaN}', "malformed", ""),
        (HEAD + b'"version":Infinity}', "malformed", ""),
        (HEAD + b'"version":1e400}', "invalid", "version"),
        (HEAD + b'"version":1e2}', "invalid", "version"),
        (HEAD + b'"version":' + b"9" * 5_000 + b"}", "invalid", "version"),
        (HEAD + b'"not_after":1e400}', "invalid", "not_after"),
        (HEAD + b'"not_after":' + b"9" * 5_000 + b"}", "invalid", "not_after"),
        (HEAD + b'"payload":NaN}', "malformed", ""),
        (HEAD + b'"payload":01}', "malformed", ""),
        (HEAD + b'"payload":[1,]}', "malformed", ""),
        (HEAD + b'"payload":"a\nb"}', "malformed", ""),
        (HEAD + b'"payload":"\x00"}', "malformed", ""),
        (HEAD + b'"payload":"\xff"}', "malformed", "payload"),
        (HEAD + b'"payload":{"a":["\xc3\x28"]}}', "malformed", "payload"),
        (HEAD + b'"payload":"\xed\xa0\x80"}', "malformed", "payload"),
        (HEAD + b'"payload":"\xc0\x80"}', "malformed", "payload"),
        (HEAD + b'"headers":{"a":"\xff"}}', "malformed", ""),
        (HEAD + b'"headers":{"\xff":"a"}}', "malformed", ""),
        (HEAD + b'"reason":"\xff"}', "malformed", ""),
        (HEAD + b'"reason":"\\ud800"}', "malformed", ""),
        (HEAD + b'"reason":"\\udc00\\ud800"}', "malformed", ""),
        (HEAD + b'"payload":"\\ud800"}', "malformed", ""),
        (HEAD + b'"headers":{"\\ud800":"a"}}', "malformed", ""),
        (HEAD + b'"\\ud800":1}', "malformed", ""),
        (b'{"type":"trigger","id":"\\u0000"}', "control_character", "id"),
        (b"[" * 1_000_000, "invalid", ""),
        (b'{"type":' + b"[" * 1_000_000, "too_deep", ""),
        (b'{"a":' * 200_000, "too_deep", ""),
        (HEAD + b'"payload":' + b"[" * 1_000_000, "too_deep", ""),
        (HEAD + b'"payload":' + b'{"":' * 200_000, "too_deep", ""),
    ],
)  # fmt: skip
def test_weird_bytes(value: bytes, code: str, field: str) -> None:
    error = refusal_of(value)
    assert (error.code, error.field) == (code, field), error.message


def test_truncated_at_every_byte() -> None:
    value = encoded(FULL)
    for length in range(len(value)):
        assert refusal_of(value[:length]).code == "malformed"


def test_duplicate_keys_the_last_one_counts() -> None:
    command = taken(HEAD + b'"id":"b","payload":1,"payload":2,"headers":{"a":"1","a":"2"}}')
    assert isinstance(command, commands.Schedule)
    assert (command.id, bytes(command.payload), command.headers) == ("b", b"2", {"a": "2"})


def test_payload_is_untouched() -> None:
    payload = b'{ "z":1e400, "a" : 0.10, "a":1.0, "\\u00e9":"\\/" }'
    command = taken(HEAD + b'"payload": ' + payload + b" }")
    assert isinstance(command, commands.Schedule)
    assert bytes(command.payload) == payload


def test_brackets_in_text_are_no_nesting() -> None:
    body = SCHEDULE | {"payload": ["[{" * 2_000, '\\"[' * 500, nested(limits.NESTING_MAX - 1)]}
    taken(encoded(body))
    wide = SCHEDULE | {"payload": [[]] * 2_000}
    taken(encoded(wide))


def test_nesting_does_not_depend_on_the_stack_of_the_reader() -> None:
    def from_below(frames: int) -> commands.Command:
        return from_below(frames - 1) if frames else taken(encoded(deep))

    deep = SCHEDULE | {"payload": nested(limits.NESTING_MAX)}
    assert from_below(400).id == deep["id"]


def test_examples_of_the_readme_are_commands() -> None:
    readme = (documents.FOLDER / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^    \{.*(?:\n     .*)*", readme, re.MULTILINE)
    binary: commands.Headers = [("ce_type", b"reminder.schedule.v1")]
    decoded = [taken(block.encode(), None if '"type"' in block else binary) for block in blocks]
    assert {type(command) for command in decoded} == set(commands.COMMAND_TYPES.values())
    first, *rest = [command for command in decoded if isinstance(command, commands.Schedule)]
    assert len(rest) == 2
    assert all(comparable(command) == comparable(first) for command in rest)


def test_field_and_message_are_cut() -> None:
    error = refusal_of(encoded(SCHEDULE | {"x" * 900_000: 1}))
    assert error.code == "unknown_field"
    assert len(error.field) == limits.ERROR_FIELD_CHARACTERS_MAX
    assert len(error.message) == limits.ERROR_MESSAGE_CHARACTERS_MAX


def test_ten_thousand_record_headers() -> None:
    headers: commands.Headers = [(f"h{number}", b"x") for number in range(10_000)]
    headers.append(("ce_id", b"e" * 1_048_576))
    headers.append(("ce_type", b"reminder.cancel.v1"))
    assert isinstance(taken(b'{"id":"a"}', headers), commands.Cancel)
    cloud_id = commands.cloud_event_id(b"{}", headers)
    assert cloud_id == "e" * limits.ID_CHARACTERS_MAX


@pytest.mark.parametrize("headers", [None, [], [("ce_id", None)], [("other", b"x")]])
def test_no_cloud_event_id(headers: commands.Headers) -> None:
    assert commands.cloud_event_id(b'{"type":"cancel","id":"a"}', headers) is None


def test_the_id_of_a_structured_cloud_event_is_its_own() -> None:
    """Not the reminder's, which lies in its data."""
    value = b'{"specversion":"1.0","type":"reminder.cancel.v1","id":"e-1","data":{"id":"a"}}'
    assert isinstance(taken(value), commands.Cancel)
    assert commands.cloud_event_id(value, None) == "e-1"


@pytest.mark.parametrize(
    "value", [b'{"specversion":"1.0"}', b'"specversion"', b'\xff"specversion"']
)
def test_what_only_looks_like_a_structured_cloud_event_has_no_id(value: bytes) -> None:
    assert commands.cloud_event_id(value, []) is None


def test_encode_and_from_mapping_lead_back() -> None:
    for body in (FULL, BARE | LOCAL, CANCEL):
        command = commands.from_mapping(body)
        assert comparable(commands.decode(commands.encode(command))) == comparable(command)
    with pytest.raises(Refused):
        commands.from_mapping({"type": "cancel"})
