"""Whatever bytes arrive: a command, an outcome, a due event, or `Refused`. Nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import commands, events, limits, routing
from schemas.errors import Refused
from tests.unit.schemas_examples import ALL_ACCEPTED, FULL, REFUSED, encoded, taken

FIELDS = sorted({"specversion", "data"}.union(*ALL_ACCEPTED.values()))
DECODERS: list[Callable[[bytes], object]] = [
    taken,
    events.decode_outcome,
    events.decode_due,
    lambda value: taken(value, [("ce_type", b"reminder.schedule.v1")]),
    lambda value: taken(b'{"id":"a"}', [("ce_type", value)]),
    lambda value: taken(b'{"type":"schedule","id":"a","due_at":0,"payload":' + value + b"}"),
    lambda value: taken(
        b'{"specversion":"1.0","type":"reminder.schedule.v1","data":' + value + b"}"
    ),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
LIKELY = st.sampled_from(
    [bad.body[field] for bad in REFUSED for field in bad.body if len(str(bad.body[field])) < 200]
    + list(FULL.values())
    + list(commands.COMMAND_TYPES)
)
NEARLY_A_COMMAND = st.dictionaries(st.sampled_from(FIELDS), JSON | LIKELY, max_size=8)


def refusal_of(decoder: Callable[[bytes], object], value: bytes) -> Refused | None:
    try:
        decoder(value)
    except Refused as refused:
        return refused
    return None


def survives(value: bytes) -> None:
    for decoder in DECODERS:
        refused = refusal_of(decoder, value)
        if refused is None:
            continue
        assert refused.code
        assert len(refused.field) <= limits.ERROR_FIELD_CHARACTERS_MAX
        assert len(refused.message) <= limits.ERROR_MESSAGE_CHARACTERS_MAX
        # It has to fit into a record's headers as it is.
        for _, content in events.rejection_headers(refused, events.Source("t", 0, 0)):
            str(content).encode()


@given(st.binary(max_size=200))
def test_any_bytes(value: bytes) -> None:
    survives(value)


@given(JSON)
def test_any_json(body: object) -> None:
    survives(json.dumps(body).encode())
    survives(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@settings(max_examples=300)
@given(NEARLY_A_COMMAND, st.sampled_from(list(commands.COMMAND_TYPES)))
def test_nearly_a_command(body: dict[str, Any], name: str) -> None:
    survives(json.dumps(body | {"type": name, "id": "a"}).encode())


@given(st.sampled_from(list(ALL_ACCEPTED.values())), st.data())
def test_one_field_replaced(body: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(body)))
    survives(json.dumps(body | {field: data.draw(JSON | LIKELY)}).encode())


@given(st.text(max_size=300))
def test_an_accepted_id_can_be_routed_and_encoded(reminder_id: str) -> None:
    value = json.dumps({"type": "trigger", "id": reminder_id}).encode()
    refused = refusal_of(commands.decode, value)
    if refused is not None:
        assert refused.field == "id"
        return
    command = commands.decode(value)
    assert 0 <= routing.partition_of(command.id, 7) < 7
    assert commands.decode(commands.encode(command)) == command


def damaged(value: bytes, chance: random.Random) -> bytes:
    """The value with a few bytes changed, cut out, doubled or put in."""
    copy = bytearray(value)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(copy) + 1)
        match chance.randrange(4):
            case 0:
                copy[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del copy[place : place + chance.randint(1, 8)]
            case 2:
                copy[place:place] = copy[place : place + chance.randint(1, 30)]
            case _:
                copy[place:place] = chance.choice(
                    [
                        b'"',
                        b"{",
                        b"}",
                        b"[",
                        b",",
                        b":",
                        b"\\",
                        b"\\ud800",
                        b"\xff",
                        b"\x00",
                        b"1e400",
                    ]
                )
    return bytes(copy)


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_damaged_commands(seed: int) -> None:
    chance = random.Random(seed)
    whole = [encoded(body) for body in ALL_ACCEPTED.values()]
    short = [value for value in whole if len(value) < 1_000]
    accepted = 0
    for _ in range(5_000):
        value = damaged(chance.choice(short), chance)
        accepted += refusal_of(taken, value) is None
    # Some damage does no harm, most does: the test would be worth nothing at either end.
    assert 100 < accepted < 4_000


@pytest.mark.parametrize("seed", range(2))
def test_thousands_of_random_records(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(6_000):
        survives(chance.randbytes(chance.randrange(120)))
