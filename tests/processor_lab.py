"""Processors in the test's own thread: turned one turn at a time, on topics of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from buckets.partition import Partition
from schemas import events
from schemas.events import DueEvent, Outcome, Status
from schemas.reminder import Reminder
from schemas.routing import partition_of, routing_key
from streams.clock import Clock, SystemClock
from streams.processor.processor import Processor
from streams.settings import Settings
from tests import zeros
from tests.acceptance import upstream
from tests.deployment import Deployment, deployed
from tests.waiting import wait_until

TURNING_S = 40.0
SESSION_MS = 6_000


class SetClock(SystemClock):
    """The machine's clocks, set forward or back by the test."""

    def __init__(self) -> None:
        self.wall_ahead_ms = 0
        self.monotonic_ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + self.wall_ahead_ms

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.monotonic_ahead_s


@dataclass
class Lab:
    """One deployment whose processors the test turns itself."""

    deployment: Deployment
    settings: Settings
    running: dict[str, Processor] = field(default_factory=dict)

    def processor(self, name: str = "a", clock: Clock | None = None, **more: Any) -> Processor:
        """A processor that has joined the group; the same name has the same disk."""
        said = replace(self.settings, name=name, data_dir=self.directory(name), **more)
        processor = Processor(said, clock or SystemClock())
        self.running[name] = processor
        processor.join()
        return processor

    def directory(self, name: str = "a") -> Path:
        """Where a processor keeps its stores."""
        return self.deployment.data_dir(name)

    def active(self, name: str = "a", **more: Any) -> Processor:
        """A processor alone in the group, once it works on every partition."""
        processor = self.processor(name, **more)
        self.turn_until(lambda: len(processor.active) == self.settings.partitions, "all active")
        return processor

    def turn_until(
        self, condition: Callable[[], object], what: str, timeout_s: float = TURNING_S
    ) -> None:
        """Turn every processor that runs until the condition holds."""

        def turned() -> object:
            for processor in self.running.values():
                processor.turn()
            return condition()

        wait_until(turned, timeout_s, what)

    def close(self, *names: str) -> None:
        """Close these processors, or all."""
        for name in names or list(self.running):
            self.running.pop(name).close()

    # ---- what the outside writes ----

    def send(self, *commands: Any) -> None:
        """Write commands."""
        upstream.send(self.deployment, *commands)

    def answer(self, event: DueEvent, status: str, **more: Any) -> None:
        """Write an outcome of a due event."""
        said = {"fire_id": event.fire_id, "id": event.id, "attempt": event.attempt, **more}
        producer = Producer({"bootstrap.servers": self.settings.bootstrap})
        producer.produce(
            self.settings.topics.outcomes,
            events.outcome(Outcome(status=Status(status), **said)),
            routing_key(event.id),
            partition_of(event.id, self.settings.partitions),
        )
        assert producer.flush(upstream.FLUSH_TIMEOUT_S) == 0

    # ---- what is to be seen ----

    def partitions(self) -> list[Partition]:
        """The states that turns are working on."""
        return [one.partition for each in self.running.values() for one in each.active]

    def standing(self, reminder_id: str) -> Reminder | None:
        """A reminder as of the last turn."""
        number = partition_of(reminder_id, self.settings.partitions)
        for processor in self.running.values():
            for owned in processor.active:
                if owned.number == number:
                    return owned.partition.look_up(reminder_id.encode())
        return None

    def pending(self) -> int | None:
        """How many reminders wait to fire; None while a partition is not being worked on."""
        return self._sum("pending")

    def claims(self) -> int | None:
        """How many due events are unanswered; None while a partition is not being worked on."""
        return self._sum("claims")

    def _sum(self, count: str) -> int | None:
        partitions = self.partitions()
        if len(partitions) < self.settings.partitions:
            return None
        return sum(getattr(partition.counts, count) for partition in partitions)

    def due(self) -> list[DueEvent]:
        """Every due event that has left, in the log's order."""
        records = zeros.read_topic(self.settings, self.settings.topics.due)
        return zeros.due_events(zeros.History(due=records))

    def assert_all_zero(self, *names: str, targets: tuple[str, ...] = ()) -> zeros.History:
        """Close everything and judge it, with the stores of these processors."""
        self.close()
        history = zeros.read(self.settings, targets)
        for name in names:
            zeros.look_into(history, self.directory(name))
        zeros.assert_all_zero(zeros.verdict(history, upstream.now_ms()))
        return history


@contextmanager
def laboratory(bootstrap: str, directory: Path, partitions: int = 2, **more: Any) -> Iterator[Lab]:
    """A lab on topics of its own; whatever still runs is closed at the end."""
    with deployed(bootstrap, directory, partitions) as deployment:
        said = {"session_timeout_ms": SESSION_MS} | more
        lab = Lab(deployment, replace(deployment.settings, **said))
        try:
            yield lab
        finally:
            lab.close()
