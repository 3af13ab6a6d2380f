"""How due events come in: as many as there is room for, while the group is listened to."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaError, Message

from schemas.errors import Refused
from streams import logs
from streams.clock import Clock
from streams.delivery.ownership import Ownership
from streams.delivery.partition import Due, Phase
from streams.errors import EngineFailed
from streams.kafka import headers_of

READ_AHEAD_FACTOR: Final = 4
"""Due events held in memory per call that may run at a time."""

OFFSETS_REMEMBERED_MAX: Final = 50_000
"""How far a partition may get ahead of its slowest call."""

FULL_POLL_S: Final = 0.25
"""With no room for more, the group is still listened to this often."""

_log: Final = logs.get("delivery")


class Inflow:
    """Reads the due topic for the partitions that are open."""

    def __init__(
        self, consumer: Consumer, owned: Ownership, clock: Clock, concurrency: int
    ) -> None:
        self._consumer = consumer
        self._owned = owned
        self._clock = clock
        self._read_ahead_max = READ_AHEAD_FACTOR * concurrency
        self._polled_s = clock.monotonic_s()

    def receive(self, wait_s: float, *, taking: bool) -> bool:
        """Read what there is room for and serve the group's callbacks; wait for the first record.

        Without `taking`, records are left for whoever comes next. False if there was no room and
        nothing was done, so that the caller waits for something else.
        """
        now_s = self._clock.monotonic_s()
        room = self._room()
        if room <= 0:
            # Pausing throws away what was fetched ahead, so a short jam is sat out instead.
            if now_s - self._polled_s < FULL_POLL_S:
                return False
            self._owned.pause()
        elif room > self._read_ahead_max // 2:
            self._owned.resume()
        self._polled_s = now_s
        first = self._consumer.poll(wait_s)
        if first is None:
            return True
        self._take(first, taking)
        if room > 1:
            for message in self._consumer.consume(room - 1, 0):
                self._take(message, taking)
        return True

    def _room(self) -> int:
        partitions = self._owned.open()
        if any(len(one.offsets) >= OFFSETS_REMEMBERED_MAX for one in partitions):
            return 0
        return self._read_ahead_max - sum(one.backlog for one in partitions)

    def _take(self, message: Message, taking: bool) -> None:
        error = message.error()
        if error is not None:
            _report(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None, "a record has a place"
        assert offset is not None, "a record has a place"
        owned = self._owned.get(partition)
        if owned is None or not taking:
            # It stays behind the committed offset, for whoever comes next.
            return
        if owned.phase is not Phase.OPEN:
            # To pass over it would let the committed offset pass over it too.
            raise EngineFailed(f"partition {partition} is paused and yet gave offset {offset}")
        owned.receive(Due(offset, message.key(), message.value(), _headers(message)))


def _headers(message: Message) -> list[tuple[str, str | bytes | None]] | None:
    try:
        return list(headers_of(message))
    except Refused:
        # The event itself is in the value; what a stranger put beside it is not needed.
        return None


def _report(error: KafkaError) -> None:
    if error.fatal():
        raise EngineFailed(f"the consumer failed: {error.str()}")
    _log.warning("due events not readable", error=error.name())
