"""The stored record leads back to itself, and its header can be read without it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits, reminder
from schemas.errors import SchemaError, UnknownFormat
from schemas.reminder import Asked, Attempt, Entry, Lane, Reminder, RetryRule, State

INSTANTS = st.integers(0, limits.INSTANT_MS_MAX)
NAMES = st.text(min_size=1, max_size=limits.NAME_CHARACTERS_MAX)
ASKED = st.builds(
    Asked,
    version=st.integers(0, limits.VERSION_MAX),
    due_at_ms=INSTANTS,
    tenant=NAMES,
    kind=NAMES,
    group=st.none() | NAMES,
    destination=st.sampled_from(["due", "topic:other", "https://example.com/", "mailto:a@b.c"]),
    payload=st.none() | st.binary(),
    payload_ref=st.none() | st.text(),
    headers=st.none() | st.dictionaries(st.text(), st.text()),
    not_after_ms=st.none() | INSTANTS,
    retry=st.none()
    | st.builds(RetryRule, st.lists(st.integers(0, 100)).map(tuple), st.integers(1, 1_000)),
    due_local=st.none() | st.text(),
    time_zone=st.none() | st.text(),
)
ATTEMPTS = st.lists(
    st.builds(Attempt, st.integers(1, 100), INSTANTS, st.text(), st.text()),
    max_size=limits.ATTEMPTS_KEPT_MAX,
).map(tuple)
REMINDERS = st.builds(
    Reminder,
    id=st.text(min_size=1, max_size=limits.ID_CHARACTERS_MAX),
    asked=ASKED,
    state=st.sampled_from(State),
    entry=st.sampled_from(Entry),
    at_ms=INSTANTS,
    created_at_ms=INSTANTS,
    changed_at_ms=INSTANTS,
    reply=st.booleans(),
    occurrence=st.integers(0, 2**31),
    attempt=st.integers(0, 2**31),
    failures=st.integers(0, 1_000),
    fired_at_ms=st.none() | INSTANTS,
    cancel_requested=st.booleans(),
    attempts=ATTEMPTS,
    reason=st.none() | st.text(),
    actor=st.none() | st.text(),
    ended_by=st.none() | st.text(),
    ended_why=st.none() | st.text(),
    trace_parent=st.none() | st.text(),
)


@given(REMINDERS)
def test_decode_leads_back(standing: Reminder) -> None:
    assert reminder.decode(reminder.encode(standing)) == standing


@given(REMINDERS)
def test_encoding_is_the_same_every_time(standing: Reminder) -> None:
    value = reminder.encode(standing)
    assert reminder.encode(reminder.decode(value)) == value


@given(REMINDERS)
def test_header_is_a_projection_of_the_body(standing: Reminder) -> None:
    header = reminder.header_of(reminder.encode(standing))
    layout, state, entry, lane, at_ms, length = struct.unpack(">BBBBQH", header[:14])
    tenant = header[14:]
    assert layout == reminder.FORMAT
    assert (State(state), Entry(entry)) == (standing.state, standing.entry)
    assert (Lane(lane), at_ms) == (standing.lane, standing.at_ms)
    assert (tenant.decode(), length) == (standing.asked.tenant, len(tenant))


@given(REMINDERS, REMINDERS)
def test_byte_order_of_places_is_lane_then_time(one: Reminder, other: Reminder) -> None:
    places = [reminder.encode(standing)[reminder.PLACE] for standing in (one, other)]
    assert (places[0] < places[1]) == ((one.lane, one.at_ms) < (other.lane, other.at_ms))
    assert (places[0] == places[1]) == ((one.lane, one.at_ms) == (other.lane, other.at_ms))
    header = reminder.header_of(reminder.encode(one))
    assert header[reminder.PLACE] == places[0]
    assert len(places[0]) == 9


@given(REMINDERS)
def test_lane_is_free_for_what_needs_no_claim(standing: Reminder) -> None:
    claims = standing.entry in {Entry.FIRE, Entry.RETRY} and not (
        standing.asked.destination.startswith("topic:")
    )
    assert standing.lane is (Lane.CLAIMING if claims else Lane.FREE)


@given(REMINDERS, st.integers(0, 255).filter(lambda layout: layout != reminder.FORMAT))
def test_unknown_format_is_refused_with_the_action(standing: Reminder, layout: int) -> None:
    value = bytes([layout]) + reminder.encode(standing)[1:]
    for read in (reminder.decode, reminder.header_of):
        with pytest.raises(UnknownFormat, match=f"has format {layout}.*run the release") as caught:
            read(value)
        assert isinstance(caught.value, SchemaError)


def test_longest_tenant_fits_its_length() -> None:
    assert limits.NAME_CHARACTERS_MAX * 4 < 2**16


def test_golden_header_of_format_1() -> None:
    """Stores and topics hold these bytes: a change of them needs a new format."""
    header = bytes.fromhex("01 00 00 01 000001a230c5dc00 0004") + b"acme"
    assert reminder.header_of(reminder.encode(GOLDEN)) == header


GOLDEN = Reminder(
    id="a",
    asked=Asked(
        version=0,
        due_at_ms=0x01A230C5DC00,
        tenant="acme",
        kind="reminder",
        group=None,
        destination="topic:other",
        payload=None,
        payload_ref=None,
        headers=None,
        not_after_ms=None,
        retry=None,
        due_local=None,
        time_zone=None,
    ),
    state=State.PENDING,
    entry=Entry.FIRE,
    at_ms=0x01A230C5DC00,
    created_at_ms=0,
    changed_at_ms=0,
)


@pytest.mark.parametrize("state", State)
def test_wire_name_of_a_state(state: State) -> None:
    assert state.wire == state.name.lower()
