"""The ledger: a fold of the outcomes, kept whole through crashes and of one topic only."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from schemas.events import SETTLED, Outcome, Status
from streams.delivery.ledger import Entry, Ledger, Origin, merge

ORIGIN = Origin("cluster", "topic", 4)


def _fire(number: int) -> str:
    return f"{number:032x}"


def _outcome(number: int, status: Status, attempt: int = 1) -> Outcome:
    return Outcome(fire_id=_fire(number), id=f"id-{number}", attempt=attempt, status=status)


def _ledger(folder: Path, origin: Origin = ORIGIN, end_offset: int = 1_000_000) -> Ledger:
    return Ledger(folder, origin, end_offset)


def test_the_first_settled_outcome_stands(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "a")
    ledger.fold([(0, _outcome(1, Status.FAILED)), (1, _outcome(1, Status.DELIVERED, 2))], 2)
    ledger.fold([(2, _outcome(1, Status.REJECTED, 3)), (3, _outcome(1, Status.FAILED, 4))], 4)
    assert ledger.get(_fire(1)) == Entry(2, Status.DELIVERED, 1)
    assert ledger.get(_fire(2)) is None
    assert ledger.next_offset == 4
    ledger.close()


@pytest.mark.parametrize(
    ("entry", "attempt", "covered"),
    [
        (Entry(1, Status.FAILED), 1, True),
        (Entry(1, Status.FAILED), 2, False),
        (Entry(3, Status.FAILED), 2, True),
        (Entry(1, Status.DELIVERED), 7, True),
        (Entry(1, Status.ACCEPTED), 2, True),
    ],
)
def test_what_an_entry_covers(entry: Entry, attempt: int, covered: bool) -> None:
    assert entry.covers(attempt) is covered


@given(some.lists(some.tuples(some.integers(1, 5), some.sampled_from(list(Status))), min_size=1))
def test_the_fold_keeps_the_first_settled_or_the_highest(said: list[tuple[int, Status]]) -> None:
    known = None
    for offset, (attempt, status) in enumerate(said):
        known = merge(known, Entry(attempt, status, offset))
    settled = [entry for entry in said if entry[1] in SETTLED]
    assert known is not None
    if settled:
        assert (known.attempt, known.status) == settled[0]
    else:
        assert known.attempt == max(attempt for attempt, _ in said)


def test_a_closed_ledger_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "a")
    ledger.fold([(7, _outcome(1, Status.DELIVERED))], 8)
    ledger.skip_to(12)
    ledger.close()
    again = _ledger(tmp_path / "a")
    assert again.next_offset == 12
    assert again.get(_fire(1)) == Entry(1, Status.DELIVERED, 7)
    again.close()


@pytest.mark.parametrize(
    ("origin", "end_offset"),
    [
        (Origin("other", "topic", 4), 100),
        (Origin("cluster", "recreated", 4), 100),
        (Origin("cluster", "topic", 8), 100),
        (ORIGIN, 7),
    ],
)
def test_a_ledger_of_something_else_is_wiped(
    tmp_path: Path, origin: Origin, end_offset: int
) -> None:
    ledger = _ledger(tmp_path / "a")
    ledger.fold([(7, _outcome(1, Status.DELIVERED))], 8)
    ledger.close()
    again = _ledger(tmp_path / "a", origin, end_offset)
    assert again.next_offset == 0
    assert again.get(_fire(1)) is None
    again.close()


def test_a_ledger_at_the_end_of_the_topic_is_kept(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "a")
    ledger.fold([(7, _outcome(1, Status.DELIVERED))], 8)
    ledger.close()
    again = _ledger(tmp_path / "a", ORIGIN, 8)
    assert again.next_offset == 8
    again.close()


def test_pruning_forgets_what_left_the_topic_in_bounded_steps(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "a")
    ledger.fold([(n, _outcome(n, Status.DELIVERED)) for n in range(100)], 100)
    steps = [ledger.prune(60, keys_max=7) for _ in range(20)]
    assert sum(steps) == 60
    assert max(steps) <= 7
    assert ledger.get(_fire(59)) is None
    assert ledger.get(_fire(60)) is not None
    assert sum(ledger.prune(61, keys_max=7) for _ in range(20)) == 1, "it goes round again"
    ledger.close()


def test_a_folder_in_use_is_not_opened_twice(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "a")
    with pytest.raises(Exception, match=r"(?i)lock"):
        _ledger(tmp_path / "a")
    ledger.close()
