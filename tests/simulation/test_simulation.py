"""Random histories with crashes in every gap of a turn; the seed is the whole input."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from schemas.events import Outcome, Status, fire_id_of
from tests.reminders import MINUTE_MS, cancel, reschedule, schedule, trigger
from tests.simulation.checker import Checker, Violation, contents
from tests.simulation.world import Crash, World

SEEDS = range(40)
STEPS = 250
IDS = ["a", "b", "c", "d", "e", "f", "g", "h"]
DESTINATIONS = ["due", "due", "due", "https://example.org/", "topic:t"]


class Simulation:
    """A world, what is done to it, and a trace of both."""

    def __init__(self, seed: int, world: World | None = None) -> None:
        self.chance = random.Random(seed)
        self.world = world or World()
        self.checker = Checker(self.world)
        self.trace: list[str] = []
        self.instants: list[int] = []

    def run(self, steps: int = STEPS) -> list[str]:
        """All steps, each checked, then the drain. Raises `Violation`."""
        for _ in range(steps):
            try:
                self.step()
            finally:
                # Also where the step broke off: what was committed says more than the exception.
                self.checker.check()
        self.checker.drain()
        self.trace += [repr(event) for event in self.world.history]
        return self.trace

    def step(self) -> None:
        """One thing happens."""
        action = self.chance.choices(
            [self.command, self.answer, self.pass_time, self.turn, self.disaster],
            [5, 4, 4, 8, 1],
        )[0]
        self.trace.append(f"{action.__name__} {self.world.now_ms}")
        action()

    def instant(self) -> int:
        """A due time near now, often at a minute's edge, or one that was given before."""
        if self.instants and self.chance.random() < 0.4:
            return self.chance.choice(self.instants[-4:])
        self.instants.append(self.new_instant())
        return self.instants[-1]

    def new_instant(self) -> int:
        """A due time near now, often at a minute's edge and a millisecond beside it."""
        minute = self.world.now_ms // MINUTE_MS + self.chance.randint(-2, 6)
        return minute * MINUTE_MS + self.chance.choice([-1, 0, 1, 5_000, 30_000])

    def command(self) -> None:
        """Some service wants something."""
        name = self.chance.choice(IDS)
        version = self.chance.randint(0, 9)
        which = self.chance.choices(["schedule", "cancel", "reschedule", "trigger"], [8, 2, 3, 2])
        if which == ["schedule"]:
            due_ms = self.instant()
            limit = {"not_after": due_ms + 60_000} if self.chance.random() < 0.2 else {}
            destination = self.chance.choice(DESTINATIONS)
            made = schedule(name, due_ms, version=version, destination=destination, **limit)
        elif which == ["cancel"]:
            given = {"version": version} if self.chance.random() < 0.5 else {}
            made = cancel(name, **given)
        elif which == ["reschedule"]:
            given = {"version": version} if self.chance.random() < 0.3 else {}
            made = reschedule(name, self.instant(), **given)
        else:
            made = trigger(name)
        self.world.commands.append(made)

    def answer(self) -> None:
        """Some delivery worker answers, perhaps late, twice, or for something else."""
        fired = self.world.fired
        if not fired:
            return
        reminder = self.chance.choice(fired[-6:])
        status = self.chance.choice([*Status, Status.FAILED, Status.DELIVERED])
        name = fire_id_of(reminder) if self.chance.random() < 0.95 else "0" * 32
        self.world.outcomes.append(Outcome(name, reminder.id, reminder.attempt, status))

    def pass_time(self) -> None:
        """The clock goes on, or is set."""
        step = self.chance.choices(["edge", "ms", "s", "min", "back", "hour"], [4, 4, 6, 4, 2, 1])[
            0
        ]
        next_ms = self.world.partition.next_ms() or self.world.now_ms
        self.world.now_ms += {
            "edge": max(next_ms - self.world.now_ms - self.chance.choice([0, 0, 1]), 0),
            "ms": self.chance.randint(1, 1_500),
            "s": self.chance.randint(1, 60) * 1_000,
            "min": self.chance.randint(1, 5) * MINUTE_MS,
            "back": -self.chance.randint(1, 4 * MINUTE_MS),
            "hour": self.chance.choice([-1, 1]) * 10 * MINUTE_MS,
        }[step]
        self.world.target_refuses = self.chance.random() < 0.1

    def turn(self) -> None:
        """A turn, which may not live to its end."""
        crash = self.chance.choices(list(Crash), [12, 1, 1, 1, 1])[0]
        inputs, rows = self.chance.choice([0, 1, 3, 100]), self.chance.choice([0, 1, 2, 100])
        self.trace.append(f"{crash.name} {inputs} {rows}")
        self.world.turn(inputs_max=inputs, rows_max=rows, crash=crash)
        if self.chance.random() < 0.3:
            self.world.keep_copy()

    def disaster(self) -> None:
        """The process goes, and the next one finds less than it left."""
        chunk = self.chance.randint(1, 9)
        kind = self.chance.randrange(4)
        before = contents(self.world.partition)
        if kind == 0:
            self.world.restart(self.world.store, chunk)
        elif kind == 1:
            self.world.restart_from_copy(self.chance.randrange(1_000), chunk)
        else:
            self.world.lose_everything(chunk, compacted=kind == 3)
        if contents(self.world.partition) != before:
            raise Violation("hole", f"{kind} brought back another state")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories_keep_the_zeros(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    Simulation(seed).run()


def test_the_same_seed_makes_the_same_trace() -> None:
    assert Simulation(3).run() == Simulation(3).run()
    assert Simulation(3).run() != Simulation(4).run()


def test_the_histories_reach_everything() -> None:
    """A simulation that never claims, retries or crashes would prove nothing."""
    statuses: Counter[str] = Counter()
    states: Counter[str] = Counter()
    emissions: Counter[str] = Counter()
    crashes: Counter[str] = Counter()
    for seed in SEEDS[:15]:
        simulation = Simulation(seed)
        trace = simulation.run()
        crashes.update(line.split()[0] for line in trace if line.split()[0] in Crash.__members__)
        for event in simulation.world.history:
            statuses[event.decision.status] += 1
            emissions.update(type(emission).__name__ for emission in event.decision.emissions)
            if event.decision.reminder is not None:
                states[event.decision.reminder.state.wire] += 1
    assert set(crashes) == set(Crash.__members__)
    assert set(emissions) == {"Fire", "Revoke", "Bury"}
    assert {"pending", "claimed", "sent", "delivered", "bounced"} <= set(states)
    assert {"suppressed", "stale", "cancelled", "dead"} <= set(states)
    expected = {"accepted", "duplicate", "replaced", "rescheduled", "cancelled", "conflict"}
    expected |= {"cancel_requested", "already_final", "not_found", "stale_version"}
    assert expected <= set(statuses)
