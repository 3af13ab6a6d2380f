"""The checker is checked: each planted bug must be caught, by a zero it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from buckets import decisions, keys
from buckets.counts import Counts
from buckets.memory_store import MemoryStore
from buckets.partition import Applied, Partition
from buckets.store import Batch, Pair
from buckets.wheel import Wheel
from schemas.events import Outcome, fire_id_of
from schemas.instants import MINUTE_MS
from schemas.reminder import Reminder
from tests.simulation.checker import Violation
from tests.simulation.test_simulation import Simulation
from tests.simulation.world import Crash, Staged, World

SEEDS = range(30)
Plant = Callable[[pytest.MonkeyPatch], None]


def fires_at_the_start_of_the_minute(planted: pytest.MonkeyPatch) -> None:
    take_due = Wheel.take_due

    def early(wheel: Wheel, now_ms: int, rows_max: int) -> list[Pair]:
        return take_due(wheel, keys.minute_start_ms(now_ms) + MINUTE_MS - 1, rows_max)

    planted.setattr(Wheel, "take_due", early)


def fires_a_millisecond_early(planted: pytest.MonkeyPatch) -> None:
    take_due = Wheel.take_due

    def early(wheel: Wheel, now_ms: int, rows_max: int) -> list[Pair]:
        return take_due(wheel, now_ms + 1, rows_max)

    planted.setattr(Wheel, "take_due", early)


def drops_index_writes(planted: pytest.MonkeyPatch) -> None:
    write = MemoryStore.write

    def without_index(store: MemoryStore, batch: Batch) -> None:
        batch.index_puts = batch.index_puts[:2]
        write(store, batch)

    planted.setattr(MemoryStore, "write", without_index)


def drops_row_deletes(planted: pytest.MonkeyPatch) -> None:
    write = MemoryStore.write

    def without_deletes(store: MemoryStore, batch: Batch) -> None:
        batch.row_deletes = []
        write(store, batch)

    planted.setattr(MemoryStore, "write", without_deletes)


def commits_offsets_before_records(planted: pytest.MonkeyPatch) -> None:
    decide = World._decide

    def offsets_first(world: World, inputs_max: int, rows_max: int) -> Staged:
        staged = decide(world, inputs_max, rows_max)
        world.group_commands = staged.commands_next
        return staged

    planted.setattr(World, "_decide", offsets_first)


def settles_before_the_commit(planted: pytest.MonkeyPatch) -> None:
    turn = World.turn

    def settled_first(world: World, **given: Any) -> int:
        if given.get("crash") is Crash.KILLED_BEFORE_COMMIT:
            staged = world._decide(100, 100)
            applied = Applied(staged.commands_next, staged.outcomes_next)
            world.partition.settle(len(world.changelog), applied, world.now_ms)
            world.restart(world.store)
            return 0
        return turn(world, **given)

    planted.setattr(World, "turn", settled_first)


def uses_a_fire_id_again(planted: pytest.MonkeyPatch) -> None:
    replaced = decisions._replace

    def forgetful(standing: Reminder, fresh: Reminder, status: Any) -> Any:
        return replaced(replace(standing, fired_instants_ms=()), fresh, status)

    planted.setattr(decisions, "_replace", forgetful)


def takes_husks_for_rows(planted: pytest.MonkeyPatch) -> None:
    planted.setattr(Wheel, "_without_husks", lambda _, found: found)


def forgets_how_far_husks_reach(planted: pytest.MonkeyPatch) -> None:
    planted.setattr(Wheel, "remove", lambda wheel, key: bool(wheel._rows.pop(key, None)) or True)


def moves_the_cursor_too_far(planted: pytest.MonkeyPatch) -> None:
    def too_far(wheel: Wheel, now_ms: int) -> Pair | None:
        closed_to_ms = keys.minute_start_ms(now_ms)
        if closed_to_ms <= wheel.cursor_ms:
            return None
        dropped = keys.bound(wheel.lane, wheel.cursor_ms), keys.bound(wheel.lane, closed_to_ms)
        wheel.cursor_ms = closed_to_ms
        return dropped

    planted.setattr(Wheel, "close_past", too_far)


def leaves_the_cursor_when_the_clock_steps_back(planted: pytest.MonkeyPatch) -> None:
    place = Wheel.place

    def stubborn(wheel: Wheel, key: bytes, value: bytes) -> None:
        cursor_ms = wheel.cursor_ms
        place(wheel, key, value)
        wheel.cursor_ms = cursor_ms

    planted.setattr(Wheel, "place", stubborn)


def keeps_what_a_failed_turn_took(planted: pytest.MonkeyPatch) -> None:
    planted.setattr(Wheel, "reopen", lambda _: None)


def restores_without_tombstones(planted: pytest.MonkeyPatch) -> None:
    restore = Partition.restore

    def keeping(partition: Partition, records: Any, changelog: int, applied: Applied) -> None:
        kept = {key: value for key, value in records.items() if value is not None}
        restore(partition, kept, changelog, applied)

    planted.setattr(Partition, "restore", keeping)


def loses_the_position(planted: pytest.MonkeyPatch) -> None:
    write = MemoryStore.write

    def late(store: MemoryStore, batch: Batch) -> None:
        before = store.position()
        write(store, batch)
        if before is not None and len(batch.row_puts) > 2:
            store._position = before

    planted.setattr(MemoryStore, "write", late)


def obeys_late_outcomes(planted: pytest.MonkeyPatch) -> None:
    def any_answer(standing: Reminder, outcome: Outcome) -> bool:
        return outcome.fire_id == fire_id_of(standing) and standing.attempt > 0

    planted.setattr(decisions, "_answers", any_answer)


def obeys_foreign_outcomes(planted: pytest.MonkeyPatch) -> None:
    planted.setattr(decisions, "_answers", lambda *_: True)


def does_not_count_what_goes(planted: pytest.MonkeyPatch) -> None:
    change = Counts.change

    def only_up(counts: Counts, header: bytes, by: int) -> None:
        if by > 0:
            change(counts, header, by)

    planted.setattr(Counts, "change", only_up)


def answers_cancelled_and_forgets_to_write_it(planted: pytest.MonkeyPatch) -> None:
    cancelled = decisions._cancel

    def unwritten(*given: Any) -> Any:
        return replace(cancelled(*given), reminder=None)

    planted.setattr(decisions, "_cancel", unwritten)


def never_turns_the_claiming_lane(planted: pytest.MonkeyPatch) -> None:
    take_due = Partition.take_due

    def free_only(partition: Partition, now_ms: int, rows_max: int, _: int) -> Any:
        return take_due(partition, now_ms, rows_max, 0)

    planted.setattr(Partition, "take_due", free_only)


PLANTED: list[tuple[Plant, set[str]]] = [
    (fires_at_the_start_of_the_minute, {"early"}),
    (fires_a_millisecond_early, {"early"}),
    (drops_index_writes, {"hole", "skew"}),
    (drops_row_deletes, {"skew"}),
    (commits_offsets_before_records, {"jump"}),
    (settles_before_the_commit, {"hole", "jump", "skew"}),
    (uses_a_fire_id_again, {"double"}),
    (takes_husks_for_rows, {"skew", "double", "ghost"}),
    (forgets_how_far_husks_reach, {"skew"}),
    (moves_the_cursor_too_far, {"skew", "lost"}),
    (leaves_the_cursor_when_the_clock_steps_back, {"lost"}),
    (keeps_what_a_failed_turn_took, {"skew"}),
    (restores_without_tombstones, {"hole"}),
    (loses_the_position, {"hole"}),
    (obeys_late_outcomes, {"double"}),
    (obeys_foreign_outcomes, {"ghost", "double"}),
    (does_not_count_what_goes, {"skew"}),
    (never_turns_the_claiming_lane, {"stall"}),
    (answers_cancelled_and_forgets_to_write_it, {"ghost"}),
]


def first_violation() -> str | None:
    """The first zero any seed finds broken."""
    for seed in SEEDS:
        try:
            Simulation(seed).run()
        except Violation as violation:
            return violation.zero
    return None


@pytest.mark.parametrize(
    ("plant", "zeros"), PLANTED, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_planted_bug_is_caught(
    plant: Plant, zeros: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_violation() in zeros


def test_without_a_bug_nothing_is_found() -> None:
    assert first_violation() is None
