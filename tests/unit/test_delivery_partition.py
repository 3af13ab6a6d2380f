"""One partition: what is called, what is not, and what a transaction would record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas import events
from schemas.events import Outcome, Status
from streams.delivery.channels import Call, Channels, Result
from streams.delivery.intake import Job
from streams.delivery.ledger import Ledger, Origin
from streams.delivery.partition import Due, Partition, Phase

NOW_MS = 1_800_000_000_000
DELIVERED = Result(Status.DELIVERED)
FAILED = Result(Status.FAILED, "http_503")


class _Nothing:
    name = "webhook"

    async def send(self, call: Call) -> Result:
        raise AssertionError("these tests make no calls")

    async def close(self) -> None:
        return


CHANNELS = Channels(_Nothing())


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    made = Partition(0, Phase.OPEN, Ledger(tmp_path / "0", Origin("c", "t", 4), 0))
    yield made
    made.close()


def _fire(name: str) -> str:
    return events.fire_id(name, "", 0)


def _due(offset: int, name: str = "a", **more: Any) -> Due:
    said = {
        "fire_id": _fire(name),
        "id": name,
        "version": 0,
        "occurrence": 0,
        "attempt": 1,
        "tenant": "default",
        "kind": "reminder",
        "destination": "https://receiver.example/",
        "due_at": "2027-01-01T00:00:00.000Z",
        "fired_at": "2027-01-01T00:00:00.000Z",
        **more,
    }
    return Due(offset, name.encode(), orjson.dumps(said), None)


def _next(partition: Partition) -> Job | None:
    found = partition.next_call(CHANNELS, NOW_MS)
    return None if found is None else found[0]


def _recorded(partition: Partition) -> list[tuple[str, int, Status]]:
    batch = partition.batch()
    if batch is None:
        return []
    return [(o.outcome.id, o.outcome.attempt, o.outcome.status) for o in batch.outcomes]


def test_a_batch_holds_everything_finished_and_the_first_offset_not(partition: Partition) -> None:
    for offset, name in enumerate("abc"):
        partition.receive(_due(offset, name))
    a, b, c = (_next(partition) for _ in range(3))
    assert a is not None
    assert b is not None
    assert c is not None
    partition.finish(c, DELIVERED, "webhook", NOW_MS)
    batch = partition.batch()
    assert batch is not None
    assert (batch.next_offset, len(batch.outcomes)) == (0, 1)
    partition.finish(a, DELIVERED, "webhook", NOW_MS)
    partition.recorded(batch)
    assert _recorded(partition) == [("a", 1, Status.DELIVERED)]
    partition.finish(b, FAILED, "webhook", NOW_MS)
    batch = partition.batch()
    assert batch is not None
    assert batch.next_offset == 3
    partition.recorded(batch)
    assert partition.batch() is None
    assert partition.backlog == 0


def test_what_is_not_committed_stays_to_be_recorded(partition: Partition) -> None:
    partition.receive(_due(0))
    job = _next(partition)
    assert job is not None
    partition.finish(job, DELIVERED, "webhook", NOW_MS)
    assert partition.batch() == partition.batch()
    assert _recorded(partition) == [("a", 1, Status.DELIVERED)]


def test_a_repetition_is_passed_over(partition: Partition) -> None:
    partition.receive(_due(0))
    job = _next(partition)
    assert job is not None
    partition.finish(job, FAILED, "webhook", NOW_MS)
    partition.receive(_due(1))
    assert _next(partition) is None
    partition.receive(_due(2, attempt=2))
    again = _next(partition)
    assert again is not None
    partition.finish(again, DELIVERED, "webhook", NOW_MS)
    partition.receive(_due(3, attempt=3))
    assert _next(partition) is None
    assert partition.offsets.next_unfinished == 4


def test_the_second_attempt_waits_for_the_first(partition: Partition) -> None:
    partition.receive(_due(0, attempt=1))
    partition.receive(_due(1, attempt=2))
    partition.receive(_due(2, "b"))
    first, other = _next(partition), _next(partition)
    assert first is not None
    assert other is not None
    assert (first.event.attempt, other.event.id) == (1, "b")
    assert _next(partition) is None
    assert partition.backlog == 3
    partition.finish(first, FAILED, "webhook", NOW_MS)
    second = _next(partition)
    assert second is not None
    assert second.event.attempt == 2


def test_a_revocation_reaches_what_has_not_begun(partition: Partition) -> None:
    partition.receive(_due(0, "begun"))
    begun = _next(partition)
    assert begun is not None
    partition.receive(_due(1, "waiting"))
    partition.receive(_due(2, "begun", attempt=2))
    assert _next(partition) is not None
    partition.receive(_due(3, "late"))
    for offset, name in ((4, "late"), (5, "begun"), (6, "unknown")):
        partition.receive(Due(offset, None, events.revocation(_fire(name), "paid"), None))
    assert _next(partition) is None
    assert _recorded(partition) == [("late", 1, Status.CANCELLED)]
    partition.finish(begun, FAILED, "webhook", NOW_MS)
    assert _next(partition) is None
    assert _recorded(partition)[-1] == ("begun", 2, Status.CANCELLED)


@pytest.mark.parametrize(("late_ms", "sent"), [(-1, True), (0, True), (1, False)])
def test_later_than_not_after_is_stale(partition: Partition, late_ms: int, sent: bool) -> None:
    partition.receive(_due(0, not_after="2027-01-15T08:00:00.000Z"))
    found = partition.next_call(CHANNELS, NOW_MS + late_ms)
    assert (found is not None) is sent
    assert _recorded(partition) == ([] if sent else [("a", 1, Status.STALE)])


@pytest.mark.parametrize("destination", ["due", "topic:x", "ftp://x", "anything"])
def test_what_others_answer_is_passed_over(partition: Partition, destination: str) -> None:
    partition.receive(_due(0, destination=destination))
    assert _next(partition) is None
    batch = partition.batch()
    assert batch is not None
    assert (batch.next_offset, batch.outcomes, batch.refusals) == (1, [], [])


@pytest.mark.parametrize("destination", ["mailto:a@example.org", "channel:pigeon", "channel:"])
def test_no_channel_is_a_rejection(partition: Partition, destination: str) -> None:
    partition.receive(_due(0, destination=destination))
    assert _next(partition) is None
    assert _recorded(partition) == [("a", 1, Status.REJECTED)]


@pytest.mark.parametrize(
    "due",
    [
        Due(0, b"k", None, None),
        Due(0, b"k", b"", None),
        Due(0, b"k", b"\xff", None),
        Due(0, b"k", b"[" * 100_000, None),
        Due(0, b"k", b'{"revoke": null}', None),
        _due(0, fire_id="../../etc"),
        _due(0, fire_id="A" * 32),
        _due(0, attempt=0),
        _due(0, fired_at="yesterday"),
        _due(0, not_after="2027-01-01T00:00:00"),
    ],
)
def test_what_cannot_be_read_is_refused(partition: Partition, due: Due) -> None:
    partition.receive(due)
    batch = partition.batch()
    assert batch is not None
    assert batch.next_offset == 1
    assert [refusal.due for refusal in batch.refusals] == [due]


def test_own_outcomes_count_before_they_come_back(partition: Partition) -> None:
    partition.receive(_due(0))
    job = _next(partition)
    assert job is not None
    partition.finish(job, DELIVERED, "webhook", NOW_MS)
    batch = partition.batch()
    assert batch is not None
    partition.recorded(batch)
    partition.receive(_due(1))
    assert _next(partition) is None
    partition.came_back([(0, batch.outcomes[0].outcome)], 2)
    partition.receive(_due(2))
    assert _next(partition) is None
    assert partition.ledger is not None
    assert partition.ledger.get(_fire("a")) is not None


def test_a_foreign_outcome_reaches_what_still_waits(partition: Partition) -> None:
    partition.receive(_due(0))
    foreign = Outcome(fire_id=_fire("a"), id="a", attempt=1, status=Status.ACCEPTED)
    partition.came_back([(0, foreign)], 1)
    assert _next(partition) is None
    assert _recorded(partition) == []
    assert partition.offsets.next_unfinished == 1


def test_reconciling_keeps_what_is_not_in_the_topic(partition: Partition) -> None:
    for offset, name in enumerate("ab"):
        partition.receive(_due(offset, name))
        job = _next(partition)
        assert job is not None
        partition.finish(job, DELIVERED, "webhook", NOW_MS)
    batch = partition.batch()
    assert batch is not None
    partition.came_back([(0, batch.outcomes[0].outcome)], 1)
    partition.reconcile()
    assert _recorded(partition) == [("b", 1, Status.DELIVERED)]
