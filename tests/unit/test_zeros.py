"""The checker itself: a good history is eight empty lists, each bad one flags exactly its zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from buckets import keys
from buckets.partition import Applied, Partition, Position
from buckets.rocks_store import RocksMemory, RocksStore
from buckets.store import Batch
from schemas import reminder as codec
from schemas.events import Status
from schemas.instants import MINUTE_MS
from schemas.reminder import Entry, Lane, State
from streams.processor import changelog
from tests import zeros
from tests.histories import DUE_MS, LATER_MS, NOW_MS, Writer, claimed, ended, good, reminder
from tests.zeros import History, Record


def flagged(history: History, now_ms: int = NOW_MS) -> dict[str, int]:
    """How many violations of each zero, where there are any."""
    return {zero: len(said) for zero, said in zeros.verdict(history, now_ms).items() if said}


def test_a_good_history_is_eight_empty_lists() -> None:
    found = zeros.verdict(good().history, NOW_MS)
    assert found == {zero: [] for zero in zeros.ZEROS}
    assert len(found) == 8
    zeros.assert_all_zero(found)


def test_an_empty_history_is_eight_empty_lists() -> None:
    zeros.assert_all_zero(zeros.verdict(History(), NOW_MS))


def asked_and_unknown(written: Writer) -> None:
    """lost: a command nobody took in."""
    written.command("schedule", "b", due_at=DUE_MS)


def asked_by_local_time_and_unknown(written: Writer) -> None:
    """lost: the same in another form of command and of time."""
    body = {"id": "b", "due_local": "2026-12-01T09:00", "time_zone": "UTC"}
    written.raw_command(body, ce_type=b"reminder.schedule.v1")


def claimed_and_nothing_left(written: Writer) -> None:
    """lost: the state says it left."""
    written.state(claimed(reminder("b")))


def second_attempt_did_not_leave(written: Writer) -> None:
    """lost: the first attempt's due event is none of the second's."""
    first = claimed(reminder("b"))
    written.due(first)
    written.outcome(first, Status.FAILED)
    written.state(first, claimed(first, attempt=2))


def delivered_and_nothing_left(written: Writer) -> None:
    """lost: a topic of its own that never got the record."""
    fired = reminder("b", destination="topic:t", attempt=1)
    written.state(ended(fired, State.DELIVERED))


def forgotten_while_pending(written: Writer) -> None:
    """lost: a null in the changelog for what was still owed."""
    written.state(reminder("b", due_at_ms=LATER_MS))
    written.forget("b")


def fired_early(written: Writer) -> None:
    """early: by the processor's own clock."""
    fired = claimed(reminder("b"), at_ms=DUE_MS - 1)
    written.state(fired)
    written.due(fired)
    written.outcome(fired, Status.DELIVERED)


def in_the_topic_early(written: Writer) -> None:
    """early: by the broker's time, whatever the event says."""
    fired = claimed(reminder("b"))
    written.state(fired)
    written.due(fired, at_ms=DUE_MS - 1)
    written.outcome(fired, Status.DELIVERED)


def target_early(written: Writer) -> None:
    """early: in a topic of its own."""
    fired = reminder("b", destination="topic:t", attempt=1)
    written.target(fired, at_ms=DUE_MS - 1)
    written.state(ended(fired, State.DELIVERED))


def two_due_events(written: Writer) -> None:
    """double: two due events of one attempt."""
    written.delivered(reminder("b"))
    written.due(claimed(reminder("b")))


def two_target_records(written: Writer) -> None:
    """double: twice in a topic of its own."""
    fired = reminder("b", destination="topic:t", attempt=1)
    written.target(fired)
    written.target(fired)
    written.state(ended(fired, State.DELIVERED))


def two_final_outcomes(written: Writer) -> None:
    """double: two answers, each of which would count."""
    written.delivered(reminder("b"))
    written.outcome(claimed(reminder("b")), Status.REJECTED)


def accepted_twice(written: Writer) -> None:
    """double: a provider that took it twice."""
    fired = claimed(reminder("b"))
    written.state(fired)
    written.due(fired)
    written.outcome(fired, Status.ACCEPTED)
    written.outcome(fired, Status.ACCEPTED)
    written.state(ended(fired, State.SENT))


def left_again_after_its_answer(written: Writer) -> None:
    """double: a second attempt of what had been delivered."""
    written.delivered(reminder("b"))
    second = claimed(reminder("b"), attempt=2)
    written.state(second)
    written.due(second)


def nobody_asked(written: Writer) -> None:
    """ghost: a due event without a reminder."""
    fired = claimed(reminder("b"))
    written.due(fired)
    written.outcome(fired, Status.DELIVERED)


def left_although_cancelled(written: Writer) -> None:
    """ghost: the cancel was answered before it left."""
    written.state(reminder("b"), ended(reminder("b"), State.CANCELLED, cancelled_through=1))
    written.due(claimed(reminder("b")))
    written.outcome(claimed(reminder("b")), Status.DELIVERED)


def tried_again_although_cancelled(written: Writer) -> None:
    """ghost: cancelled between two attempts, and the second left."""
    first = claimed(reminder("b"))
    written.state(first, ended(first, State.CANCELLED, cancelled_through=1))
    written.due(first)
    written.outcome(first, Status.FAILED)
    written.due(claimed(first, attempt=2))
    written.outcome(claimed(first, attempt=2), Status.DELIVERED)


def in_its_topic_although_cancelled(written: Writer) -> None:
    """ghost: a cancelled reminder in a topic of its own."""
    standing = reminder("b", destination="topic:t")
    written.state(ended(standing, State.CANCELLED, cancelled_through=1))
    written.target(standing)


def a_cancelled_version_left(written: Writer) -> None:
    """ghost: the cancel came before its schedule, which fired all the same."""
    memory = reminder("b", version=-1, due_at_ms=0)
    written.state(ended(memory, State.CANCELLED, cancelled_through=1))
    written.delivered(reminder("b"))


def commands_ahead(written: Writer) -> None:
    """jump: commands that were passed over."""
    written.commit("commands", 21)


def outcomes_ahead(written: Writer) -> None:
    """jump: answers that were passed over."""
    written.commit("outcomes", 11)


def passed_without_outcome(written: Writer) -> None:
    """jump: a due event behind the delivery group's offset that nobody answered."""
    fired = claimed(reminder("b"))
    written.state(fired)
    written.due(fired)


def second_attempt_passed_without_outcome(written: Writer) -> None:
    """jump: the first attempt's failure does not answer the second."""
    first = claimed(reminder("b"))
    second = claimed(first, attempt=2)
    written.state(first, second)
    written.due(first)
    written.outcome(first, Status.FAILED)
    written.due(second)


def overdue(written: Writer) -> None:
    """stall: pending, and its time is long past."""
    written.state(reminder("b", due_at_ms=NOW_MS - 10_001))


def lease_overdue(written: Writer) -> None:
    """stall: on its way, and nobody asks again."""
    fired = claimed(reminder("b"))
    written.due(fired)
    written.outcome(fired, Status.FAILED)
    written.state(msgspec.structs.replace(fired, at_ms=NOW_MS - 10_001))


def delivery_stands_still(written: Writer) -> None:
    """stall: a due event that no delivery worker has come to."""
    fired = claimed(reminder("b", due_at_ms=NOW_MS - 60_000), at_ms=NOW_MS - 60_000)
    written.state(fired)
    written.due(fired)
    last = written.history.due[-1]
    written.history.due[-1] = replace(last, offset=1_000)


BAD: list[Callable[[Writer], None]] = [
    asked_and_unknown,
    asked_by_local_time_and_unknown,
    claimed_and_nothing_left,
    second_attempt_did_not_leave,
    delivered_and_nothing_left,
    forgotten_while_pending,
    fired_early,
    in_the_topic_early,
    target_early,
    two_due_events,
    two_target_records,
    two_final_outcomes,
    accepted_twice,
    left_again_after_its_answer,
    nobody_asked,
    left_although_cancelled,
    tried_again_although_cancelled,
    in_its_topic_although_cancelled,
    a_cancelled_version_left,
    commands_ahead,
    outcomes_ahead,
    passed_without_outcome,
    second_attempt_passed_without_outcome,
    overdue,
    lease_overdue,
    delivery_stands_still,
]


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_each_bad_history_flags_exactly_its_zero(spoil: Callable[[Writer], None]) -> None:
    written = good()
    spoil(written)
    assert spoil.__doc__ is not None
    assert flagged(written.history) == {spoil.__doc__.partition(":")[0]: 1}


def test_hole_where_a_store_lacks_a_reminder_or_has_an_older_one() -> None:
    written = good()
    folded = {
        record.key.decode(): record.value
        for record in written.history.state
        if record.key is not None and record.key != changelog.APPLIED_KEY
    }
    stored = {name: value for name, value in folded.items() if value is not None}
    written.history.stores[0] = stored
    assert flagged(written.history) == {}
    written.history.stores[0] = stored | {"a": codec.encode(reminder("a"))}
    assert flagged(written.history) == {"hole": 1}
    written.history.stores[0] = {name: value for name, value in stored.items() if name != "a"}
    assert flagged(written.history) == {"hole": 1}
    written.history.stores[0] = stored | {"topic": codec.encode(reminder("topic"))}
    assert flagged(written.history) == {"hole": 1}


def test_nothing_stands_still_where_no_delivery_worker_ever_ran() -> None:
    written = good()
    delivery_stands_still(written)
    del written.history.committed["p.due", 0]
    assert flagged(written.history) == {}


def test_the_grace_is_for_what_has_just_become_due() -> None:
    written = Writer()
    written.state(reminder("b"))
    assert flagged(written.history, DUE_MS + 10_000) == {}
    assert flagged(written.history, DUE_MS + 10_001) == {"stall": 1}


def test_the_first_violations_are_shown() -> None:
    found = zeros.verdict(History(), NOW_MS)
    found["lost"] = [f"r-{number}" for number in range(7)]
    with pytest.raises(AssertionError, match=r"'lost': 7.*r-4'\]"):
        zeros.assert_all_zero(found)


# ---- skew: stores that were really written ----

PLACED = reminder("b", due_at_ms=LATER_MS)
VALUE = codec.encode(PLACED)
HEADER = codec.header_of(VALUE)
ROW = keys.row(HEADER, b"b")


def position(cursor_ms: int = 0, husks_below: bytes = b"") -> bytes:
    """A position whose claiming lane has these marks."""
    return msgspec.msgpack.encode(Position(1, 9, Applied(), 0, [cursor_ms, 0], [husks_below, b""]))


def looked_into(tmp_path: Path, *batches: Batch) -> History:
    """The history of a store that holds these batches and nothing else."""
    store = RocksStore(tmp_path / "processor" / "0", RocksMemory(8 << 20))
    for batch in batches:
        store.write(batch)
    store.close()
    history = History()
    history.state.append(Record(0, 0, b"b", VALUE))
    zeros.look_into(history, tmp_path)
    return history


def test_a_store_as_the_product_writes_it_is_not_skewed(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "processor" / "0", RocksMemory(8 << 20))
    partition = Partition(store)
    for version, due_at_ms in ((1, NOW_MS + 2_000), (2, LATER_MS)):
        partition.take_due(NOW_MS, 10, 10)
        partition.hold([b"b"])
        moved = reminder("b", version=version, due_at_ms=due_at_ms)
        partition.put(b"b", moved)
        partition.settle(version, Applied(), NOW_MS)
    store.close()
    history = History()
    history.state.append(Record(0, 0, b"b", codec.encode(moved)))
    zeros.look_into(history, tmp_path)
    assert history.stores == {0: {"b": codec.encode(moved)}}
    assert flagged(history) == {}


def test_a_husk_is_no_skew(tmp_path: Path) -> None:
    husk = keys.bound(Lane.CLAIMING, DUE_MS) + b"gone"
    opened = keys.bound(Lane.CLAIMING, DUE_MS + MINUTE_MS)
    batch = Batch(position(husks_below=opened), index_puts=[(b"b", HEADER)])
    batch.row_puts += [(ROW, VALUE), (husk, codec.encode(reminder("gone")))]
    assert flagged(looked_into(tmp_path, batch)) == {}


def test_skew_where_a_row_is_in_the_index_nowhere(tmp_path: Path) -> None:
    stray = keys.bound(Lane.CLAIMING, LATER_MS) + b"gone"
    batch = Batch(position(), index_puts=[(b"b", HEADER)])
    batch.row_puts += [(ROW, VALUE), (stray, codec.encode(reminder("gone")))]
    assert flagged(looked_into(tmp_path, batch)) == {"skew": 1}


def test_skew_where_the_index_leads_to_no_row(tmp_path: Path) -> None:
    batch = Batch(position(), index_puts=[(b"b", HEADER), (b"c", HEADER)])
    batch.row_puts.append((ROW, VALUE))
    assert flagged(looked_into(tmp_path, batch)) == {"skew": 1}


def test_skew_where_header_and_row_differ(tmp_path: Path) -> None:
    other = codec.header_of(codec.encode(msgspec.structs.replace(PLACED, entry=Entry.RETRY)))
    batch = Batch(position(), index_puts=[(b"b", other)], row_puts=[(ROW, VALUE)])
    assert flagged(looked_into(tmp_path, batch)) == {"skew": 1}


def test_skew_where_a_live_row_lies_in_a_closed_minute(tmp_path: Path) -> None:
    closed = position(cursor_ms=LATER_MS + MINUTE_MS)
    batch = Batch(closed, index_puts=[(b"b", HEADER)], row_puts=[(ROW, VALUE)])
    assert flagged(looked_into(tmp_path, batch)) == {"skew": 1}
