"""A partition against its model: whatever comes, the zeros hold after every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from buckets.memory_store import MemoryStore
from buckets.partition import Partition
from schemas.commands import Command
from schemas.events import Outcome, Status, fire_id_of
from tests.reminders import MINUTE_MS, NOW_MS, cancel, reschedule, schedule, trigger
from tests.simulation.checker import Checker, contents
from tests.simulation.small import make_wheels_small
from tests.simulation.world import Crash, World

IDS = st.sampled_from(["a", "b", "c", "d", "e", "e/1", "ü"])
VERSIONS = st.integers(0, 5)
EDGES = st.sampled_from([-1, 0, 1, 30_000])
INSTANTS = st.builds(
    lambda minute, edge: NOW_MS + minute * MINUTE_MS + edge, st.integers(-3, 8), EDGES
)
DESTINATIONS = st.sampled_from(["due", "https://example.org/", "topic:t"])
TENANTS = st.sampled_from(["x", "y"])


def given_or_not(**choices: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these fields, or none."""
    return st.fixed_dictionaries({}, optional=choices)


SCHEDULES = st.builds(
    lambda name, due, fields: schedule(name, due, **fields),
    IDS,
    INSTANTS,
    given_or_not(version=VERSIONS, destination=DESTINATIONS, tenant=TENANTS, not_after=INSTANTS),
)
CANCELS = st.builds(
    lambda name, fields: cancel(name, **fields), IDS, given_or_not(version=VERSIONS)
)
RESCHEDULES = st.builds(
    lambda name, due, fields: reschedule(name, due, **fields),
    IDS,
    INSTANTS,
    given_or_not(version=VERSIONS),
)
TRIGGERS = st.builds(trigger, IDS)
CHUNKS = st.integers(1, 7)


class PartitionMachine(RuleBasedStateMachine):
    """Commands, answers, time and crashes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.checker = Checker(self.world)

    # ---- inputs ----

    @rule(commands=st.lists(st.one_of(SCHEDULES, SCHEDULES, CANCELS, RESCHEDULES, TRIGGERS)))
    def command(self, commands: list[Command]) -> None:
        self.world.commands += commands

    @precondition(lambda self: self.world.fired)
    @rule(
        back=st.integers(0, 5),
        status=st.sampled_from([*Status, Status.FAILED, Status.DELIVERED]),
        attempt=st.integers(-1, 1),
        times=st.integers(1, 2),
    )
    def answer(self, back: int, status: Status, attempt: int, times: int) -> None:
        fired = self.world.fired
        reminder = fired[-1 - back % len(fired)]
        number = max(1, reminder.attempt + attempt)
        answer = Outcome(fire_id_of(reminder), reminder.id, number, status)
        self.world.outcomes += [answer] * times

    @rule(name=IDS, status=st.sampled_from(Status))
    def answer_something_foreign(self, name: str, status: Status) -> None:
        self.world.outcomes.append(Outcome("f" * 32, name, 1, status))

    # ---- time ----

    @rule(by_ms=st.one_of(st.integers(1, 90_000), st.sampled_from([1, 1_000, 300_000, 700_000])))
    def time_passes(self, by_ms: int) -> None:
        self.world.now_ms += by_ms

    @rule(beside_ms=st.integers(-1, 1))
    def time_stands_where_something_is_due(self, beside_ms: int) -> None:
        next_ms = self.world.partition.next_ms()
        if next_ms is not None:
            self.world.now_ms = next_ms + beside_ms

    @rule(by_ms=st.sampled_from([1, 999, MINUTE_MS, 5 * MINUTE_MS]))
    def the_clock_is_set_back(self, by_ms: int) -> None:
        self.world.now_ms -= by_ms

    @rule(refuses=st.booleans())
    def the_target_topic(self, refuses: bool) -> None:
        self.world.target_refuses = refuses

    # ---- turns ----

    @rule(
        inputs_max=st.sampled_from([0, 1, 100]),
        rows_max=st.sampled_from([0, 1, 100]),
        crash=st.sampled_from(Crash),
    )
    def turn_that_may_crash(self, inputs_max: int, rows_max: int, crash: Crash) -> None:
        self.world.turn(inputs_max=inputs_max, rows_max=rows_max, crash=crash)

    @rule()
    def turn(self) -> None:
        self.world.turn()

    # ---- restarts ----

    @rule(chunk=CHUNKS)
    def restart(self, chunk: int) -> None:
        before = contents(self.world.partition)
        self.world.restart(self.world.store, chunk)
        assert contents(self.world.partition) == before

    @rule()
    def keep_copy(self) -> None:
        self.world.keep_copy()

    @rule(number=st.integers(0, 100), chunk=CHUNKS)
    def old_store_and_tail(self, number: int, chunk: int) -> None:
        before = contents(self.world.partition)
        self.world.restart_from_copy(number, chunk)
        assert contents(self.world.partition) == before

    @rule(chunk=CHUNKS, compacted=st.booleans())
    def total_loss(self, chunk: int, compacted: bool) -> None:
        before = contents(self.world.partition)
        self.world.lose_everything(chunk, compacted=compacted)
        assert contents(self.world.partition) == before

    # ---- after every step ----

    @invariant()
    def the_zeros_hold(self) -> None:
        self.checker.check()

    @invariant()
    def what_is_due_soon_is_known(self) -> None:
        """The loop sleeps until then: a later answer than the truth would be lateness."""
        partition = self.world.partition
        partition.take_due(self.world.now_ms, 0, 0)
        known = partition.next_ms()
        for wheel in partition._wheels:
            if wheel._rows:
                assert known is not None
                assert known <= min(int.from_bytes(key[1:9], "big") for key in wheel._rows)

    def teardown(self) -> None:
        self.checker.drain()


def run(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_any_history(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheels_small(monkeypatch)
    run(PartitionMachine, 120, 40)


def test_any_history_with_wheels_as_they_are() -> None:
    run(PartitionMachine, 30, 40)


def test_a_partition_restored_from_nothing_is_a_new_one() -> None:
    partition = Partition(MemoryStore())
    partition.restore({}, 0, partition.applied)
    assert contents(partition) == contents(Partition(MemoryStore()))
