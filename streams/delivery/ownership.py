"""The partitions this worker owns, and the way of each from assigned to open."""

from __future__ import annotations

import shutil
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams import logs
from streams.clock import Clock
from streams.delivery.following import Follower, Located, Locator
from streams.delivery.ledger import Ledger
from streams.delivery.partition import Partition, Phase
from streams.errors import EngineFailed, StreamsError
from streams.settings import Settings

LOCK_WAIT_S: Final = 30.0
PRUNE_EVERY_S: Final = 1.0
PRUNE_KEYS_MAX: Final = 1_000
FIRST_OFFSET_EVERY_S: Final = 600.0

_log: Final = logs.get("delivery")


class Ownership:
    """Assigned partitions are paused, located, restored, then open; each at its own pace."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        consumer: Consumer,
        locator: Locator,
        follower: Follower,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._consumer = consumer
        self._locator = locator
        self._follower = follower
        self._partitions: dict[int, Partition] = {}
        self._locating: dict[int, Future[Located]] = {}
        self._opening_since_s: dict[int, float] = {}
        self._first_offsets: dict[int, Future[int]] = {}
        self._turn = 0
        self.paused = False
        now_s = clock.monotonic_s()
        self._pruned_s = self._asked_s = self._flushed_s = now_s

    def __len__(self) -> int:
        """How many partitions are owned, open or not."""
        return len(self._partitions)

    def get(self, number: int) -> Partition | None:
        """The owned partition of a number."""
        return self._partitions.get(number)

    def open(self) -> list[Partition]:
        """The partitions that are delivering."""
        return [one for one in self._partitions.values() if one.phase is Phase.OPEN]

    def in_turn(self) -> deque[Partition]:
        """The open partitions, beginning with another one each time."""
        turn = deque(self.open())
        self._turn += 1
        turn.rotate(-self._turn)
        return turn

    # -- the way to open -------------------------------------------------------------------

    def assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Take partitions over, paused, and begin to locate their outcomes."""
        # Any offset will do: `_position` sets the true one. Without one the client asks for the
        # group's, of all partitions at once: one open transaction would hold up every other.
        consumer.incremental_assign(
            [TopicPartition(place.topic, place.partition, 0) for place in places]
        )
        if places:
            consumer.pause(places)
        for place in places:
            partition = Partition(place.partition)
            self._partitions[partition.number] = partition
            self._locate(partition)
        _log.info("partitions assigned", partitions=[place.partition for place in places])

    def relocate(self) -> None:
        """Read the outcomes of all partitions to their end again before anything goes on."""
        for partition in self.open():
            self._locate(partition)

    def advance(self) -> None:
        """Do what is next for each partition, without waiting for anything."""
        for number, future in list(self._locating.items()):
            if future.done():
                self._look_at(self._partitions[number], future)
        for number, news in self._follower.poll().items():
            partition = self._partitions[number]
            partition.came_back(news.outcomes, news.next_offset)
            if news.gone:
                self._follower.leave(number)
                self._locate(partition)
        for partition in self._partitions.values():
            if partition.phase is Phase.RESTORING:
                self._open_if_restored(partition)
        self._tend()

    def _locate(self, partition: Partition) -> None:
        if partition.phase is Phase.OPEN:
            self._consumer.pause([self._due(partition.number)])
        partition.phase = Phase.LOCATING
        self._locating[partition.number] = self._locator.locate(
            partition.number, lambda: self._partitions.get(partition.number) is partition
        )

    def _look_at(self, partition: Partition, search: Future[Located]) -> None:
        try:
            located = search.result()
        except KafkaException as error:
            _log.warning("outcomes not located, will be tried again", error=error.args[0].name())
            self._locate(partition)
        else:
            self._located(partition, located)

    def _located(self, partition: Partition, located: Located) -> None:
        number = partition.number
        if partition.ledger is None:
            partition.ledger = self._open_ledger(number, located)
            if partition.ledger is None:
                return
            partition.start_offset = located.due_offset
        del self._locating[number]
        partition.first_offset = located.first_offset
        partition.target_offset = located.end_offset
        partition.ledger.skip_to(located.first_offset)
        if not self._follower.follows(number):
            self._follower.follow(number, partition.ledger.next_offset)
        partition.phase = Phase.RESTORING

    def _open_if_restored(self, partition: Partition) -> None:
        assert partition.ledger is not None, "a located partition has its ledger"
        if partition.ledger.next_offset < partition.target_offset or not self._position(partition):
            return
        partition.reconcile()
        partition.phase = Phase.OPEN
        if not self.paused:
            self._consumer.resume([self._due(partition.number)])
        _log.info("partition open", partition=partition.number)

    def _position(self, partition: Partition) -> bool:
        """Whether the consumer stands where the partition's due events are to be read from."""
        if partition.start_offset is None:
            return True
        due = self._settings.topics.due
        try:
            self._consumer.seek(TopicPartition(due, partition.number, partition.start_offset))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # The client has not begun to fetch the new partition: position it next time round.
            return False
        partition.start_offset = None
        return True

    def _open_ledger(self, number: int, located: Located) -> Ledger | None:
        """The ledger, or None while another process still holds its folder."""
        folder = self._folder(number)
        try:
            return Ledger(folder, located.origin, located.end_offset)
        except StreamsError:
            raise
        except Exception as error:
            if "lock" in str(error).lower():
                since_s = self._opening_since_s.setdefault(number, self._clock.monotonic_s())
                if self._clock.monotonic_s() - since_s < LOCK_WAIT_S:
                    return None
                raise EngineFailed(
                    f"{folder} is held by another process: give each its own --data-dir"
                ) from None
            _log.warning("ledger unreadable, will be read anew", folder=str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        return Ledger(folder, located.origin, located.end_offset)

    # -- back pressure ---------------------------------------------------------------------

    def pause(self) -> None:
        """Read no more due events for now."""
        if not self.paused:
            self.paused = True
            self._consumer.pause([self._due(one.number) for one in self.open()])

    def resume(self) -> None:
        """Read due events again."""
        if self.paused:
            self.paused = False
            self._consumer.resume([self._due(one.number) for one in self.open()])

    # -- giving back -----------------------------------------------------------------------

    def drop_waiting(self, numbers: list[int]) -> None:
        """Start nothing more of these partitions."""
        for number in numbers:
            if (partition := self._partitions.get(number)) is not None:
                partition.drop_waiting()

    def let_go(self, numbers: list[int]) -> None:
        """Close what belongs to partitions that are no longer owned."""
        for number in numbers:
            self._locating.pop(number, None)
            self._opening_since_s.pop(number, None)
            self._first_offsets.pop(number, None)
            self._follower.leave(number)
            if (partition := self._partitions.pop(number, None)) is not None:
                partition.close()
        self._consumer.incremental_unassign([self._due(number) for number in numbers])
        _log.info("partitions given back", partitions=numbers)

    def close_locator(self) -> None:
        """End the threads that look for outcomes."""
        self._locator.close()

    def close(self) -> None:
        """Close what is still open."""
        for partition in self._partitions.values():
            partition.close()
        self._partitions.clear()
        self._follower.close()

    # -- tending ---------------------------------------------------------------------------

    def _tend(self) -> None:
        """Forget old entries, and bring ledgers to disk, a little at a time."""
        now_s = self._clock.monotonic_s()
        if now_s - self._flushed_s >= self._settings.store_flush_s:
            self._flushed_s = now_s
            for partition in self.open():
                if partition.ledger is not None:
                    partition.ledger.flush()
        if now_s - self._asked_s >= FIRST_OFFSET_EVERY_S:
            self._asked_s = now_s
            for partition in self.open():
                future = self._locator.first_offset(partition.number)
                self._first_offsets[partition.number] = future
        if now_s - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = now_s
            for partition in self.open():
                self._prune(partition)

    def _prune(self, partition: Partition) -> None:
        future = self._first_offsets.get(partition.number)
        if future is not None and future.done():
            del self._first_offsets[partition.number]
            if future.exception() is None:
                partition.first_offset = future.result()
        if partition.ledger is not None:
            partition.ledger.prune(partition.first_offset, PRUNE_KEYS_MAX)

    def _due(self, number: int) -> TopicPartition:
        return TopicPartition(self._settings.topics.due, number)

    def _folder(self, number: int) -> Path:
        return self._settings.data_dir / "delivery" / str(number)
