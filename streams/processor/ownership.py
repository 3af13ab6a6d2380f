"""Which partitions this process owns, and bringing each to where turns may touch it.

The group's assignment of `commands` decides. A new partition is paused, its store opened, its
changelog read from where the store ends to the end of the topic, its inputs positioned, and only
then is it resumed. All of that happens in steps between turns, so the others go on meanwhile.

    OPENING ─store open─▶ LOCATING ─ends known─▶ RESTORING ─end read─▶ RESTORED ─seek─▶ ACTIVE
                             ▲                                                            │
                             └───────────────────── a turn failed ────────────────────────┘
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from buckets.errors import StoreLocked
from buckets.partition import Applied, Partition
from schemas.instants import DAY_MS
from streams import kafka
from streams.clock import Clock
from streams.errors import EngineFailed
from streams.logs import Log
from streams.processor import changelog, layout
from streams.processor.owned import Bounds, Owned, Phase
from streams.processor.stores import Identity, Stores
from streams.settings import Settings

RESTORE_RECORDS_MAX: Final = 5_000
LOCK_WAIT_S: Final = 60.0


class TopicIds:
    """The cluster's id and those of the topics whose offsets are stored."""

    def __init__(self, cluster: kafka.Cluster, settings: Settings) -> None:
        described = cluster.our_topics()
        topics = settings.topics
        self.cluster = cluster.cluster_id()
        self.commands = str(described[topics.commands].topic_id)
        self.outcomes = str(described[topics.outcomes].topic_id)
        self.state = str(described[topics.state].topic_id)
        self.partitions = len(described[topics.commands].partitions)
        config = cluster.config(topics.state)
        told_ms = int(config["min.compaction.lag.ms"]) + int(config["delete.retention.ms"])
        # A tenth of it is left for clocks that differ.
        self.store_age_ms_max = told_ms * 9 // 10

    def check(self, cluster: kafka.Cluster, settings: Settings) -> None:
        """Raises `EngineFailed` where a topic is not the one that was there at the start.

        Also `TopicsMissing`, `PartitionsChanged`, and `KafkaException` while nobody answers.
        """
        described, topics = cluster.our_topics(), settings.topics
        for name, known in (
            (topics.commands, self.commands),
            (topics.outcomes, self.outcomes),
            (topics.state, self.state),
        ):
            same_count = len(described[name].partitions) == self.partitions
            if str(described[name].topic_id) != known or not same_count:
                raise EngineFailed(f"{name} is another topic than at the start: start again")


class Ownership:
    """The owned partitions by number, and their way to `Phase.ACTIVE`."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        stores: Stores,
        cluster: kafka.Cluster,
        topic_ids: TopicIds,
        commands: Consumer,
        log: Log,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._stores = stores
        self._cluster = cluster
        self._ids = topic_ids
        self._commands = commands
        self._log = log
        self._changelog = kafka.reader(settings, "restore")
        self._outcomes = kafka.reader(settings, "outcomes")
        self._asking = ThreadPoolExecutor(max_workers=4, thread_name_prefix="bounds")
        self.owned: dict[int, Owned] = {}
        self.ever_assigned = False
        self._layout_checked = False

    # ---- what the group says: called from inside the commands consumer's poll ----

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """New partitions: paused until they are restored."""
        # Any offset will do, since `_activate` sets the true one. Without one the client asks for
        # the group's, of all partitions at once: one open transaction would hold up every other.
        consumer.incremental_assign(
            [TopicPartition(taken.topic, taken.partition, 0) for taken in partitions]
        )
        consumer.pause(partitions)
        self.ever_assigned = True
        for taken in partitions:
            self.owned[taken.partition] = Owned(taken.partition, since_s=self._clock.monotonic_s())
        if partitions:
            self._log.info("assigned", partitions=[taken.partition for taken in partitions])

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Partitions handed over in good order: everything settled is flushed."""
        self._let_go([given.partition for given in partitions], current=True)
        consumer.incremental_unassign(partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Partitions another process may already own. Nothing is written to them any more.

        What this process committed is in the changelog, and an uncommitted turn left no trace,
        so closing is the same as after a revocation.
        """
        self._log.warning("lost", partitions=[gone.partition for gone in partitions])
        self._let_go([gone.partition for gone in partitions], current=False)
        consumer.incremental_unassign(partitions)

    def _let_go(self, numbers: list[int], *, current: bool) -> None:
        for number in numbers:
            owned = self.owned.pop(number, None)
            if owned is None:
                continue
            self._stop_reading(owned)
            if owned.partition_or_none is not None:
                if current and owned.active:
                    owned.partition.mark_current(self._clock.now_ms())
                owned.partition.store.close()
        if numbers:
            self._log.info("let go", partitions=numbers)

    def _stop_reading(self, owned: Owned) -> None:
        topics = self._settings.topics
        if owned.phase is Phase.RESTORING:
            self._changelog.incremental_unassign([TopicPartition(topics.state, owned.number)])
        elif owned.phase is Phase.ACTIVE:
            self._outcomes.incremental_unassign([TopicPartition(topics.outcomes, owned.number)])

    # ---- between turns ----

    @property
    def active(self) -> list[Owned]:
        """The partitions turns may touch."""
        return [owned for owned in self.owned.values() if owned.active]

    @property
    def all_active(self) -> bool:
        """Whether everything assigned has been restored."""
        return self.ever_assigned and all(owned.active for owned in self.owned.values())

    @property
    def restore_remaining(self) -> int:
        """Changelog records, markers among them, that partitions being restored still have to read.

        Nothing once the end has been read: the markers behind the last record are not waited for.
        """
        restoring = [owned for owned in self.owned.values() if owned.phase is Phase.RESTORING]
        return sum(max(0, owned.restore_to - owned.partition.changelog) for owned in restoring)

    def advance(self) -> bool:
        """Bring every partition that is not active one step further.

        Returns whether changelog records were applied, so that the caller does not wait.
        """
        waiting = [owned for owned in self.owned.values() if not owned.active]
        if not waiting:
            return False
        for owned in waiting:
            if owned.phase is Phase.OPENING:
                self._open(owned)
            if owned.phase is Phase.LOCATING:
                self._locate(owned)
        restored = self._restore()
        for owned in waiting:
            if owned.phase is Phase.RESTORED:
                self._activate(owned)
        return restored

    def fail(self) -> None:
        """A turn failed: nothing in memory is believed, the changelog is read again."""
        for owned in self.active:
            self._relocate(owned)

    def _relocate(self, owned: Owned) -> None:
        """Take an active partition back to where its offsets and ends are asked for."""
        self._commands.pause([self._commands_place(owned)])
        self._stop_reading(owned)
        owned.partition.abandon()
        owned.phase = Phase.LOCATING
        owned.bounds_asked = None

    def reopen(self) -> None:
        """A store failed: close all and go through everything from the opening of the files."""
        self.fail()
        for owned in self.owned.values():
            self._stop_reading(owned)
            if owned.partition_or_none is not None:
                owned.partition.store.close()
                owned.partition_or_none = None
            owned.bounds_asked = None
            owned.phase = Phase.OPENING
            owned.since_s = self._clock.monotonic_s()

    def _commands_place(self, owned: Owned, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._settings.topics.commands, owned.number, offset)

    def _identity(self, owned: Owned) -> Identity:
        return Identity(self._ids.cluster, self._ids.state, self._ids.partitions, owned.number)

    def _open(self, owned: Owned) -> None:
        try:
            owned.partition_or_none = self._stores.open(self._identity(owned))
        except StoreLocked as error:
            # A process that is just closing it may still hold the lock; the others go on.
            if self._clock.monotonic_s() - owned.since_s > LOCK_WAIT_S:
                raise EngineFailed(str(error)) from None
            return
        owned.phase = Phase.LOCATING

    def _locate(self, owned: Owned) -> None:
        if owned.bounds_asked is None:
            owned.bounds_asked = self._asking.submit(self._bounds, owned.number)
        if not owned.bounds_asked.done():
            return
        try:
            bounds = owned.bounds_asked.result()
        except kafka.Unstable:
            owned.bounds_asked = None
            return
        except KafkaException as error:
            self._say_waiting(owned, error.args[0].str())
            owned.bounds_asked = None
            return
        why = self._why_useless(owned.partition, bounds)
        if why is not None:
            self._log.error("store wiped", partition=owned.number, why=why)
            self._start_over(owned)
            return
        self._begin_restore(owned, bounds)

    def _why_useless(self, partition: Partition, bounds: Bounds) -> str | None:
        """Why reading on from where the store ends would not give today's state, or None."""
        stored = partition.changelog
        if stored == 0:
            return None
        if stored > bounds.state_high or stored < bounds.state_low:
            return (
                f"it ends at {stored}, the changelog spans "
                f"{bounds.state_low} to {bounds.state_high}"
            )
        # Compaction takes away the news of what was forgotten, and nothing in the offsets says so.
        if partition.current_ms == 0:
            return "it was never restored to the end of the changelog"
        age_ms = self._clock.now_ms() - partition.current_ms
        if age_ms > self._ids.store_age_ms_max:
            return (
                f"it was current {age_ms // DAY_MS} days ago, the changelog tells what was "
                f"forgotten for {self._ids.store_age_ms_max // DAY_MS} days"
            )
        return None

    def _say_waiting(self, owned: Owned, why: str) -> None:
        """Once for each reason: it is asked again with every turn."""
        if why != owned.waits_for:
            owned.waits_for = why
            self._log.warning("waiting", partition=owned.number, why=why)

    def _start_over(self, owned: Owned) -> None:
        owned.partition_or_none = self._stores.reopen_empty(self._identity(owned), owned.partition)
        owned.bounds_asked = None
        owned.phase = Phase.LOCATING

    def _bounds(self, number: int) -> Bounds:
        """Ask the broker, in a thread beside the loop.

        The ends come after the group's offset: the transaction in which a previous owner moved
        it has then ended. Raises `Unstable`, `KafkaException`, and `PartitionsChanged` where ids
        hash to other partitions now.
        """
        topics, cluster = self._settings.topics, self._cluster
        commands = TopicPartition(topics.commands, number)
        state = TopicPartition(topics.state, number)
        outcomes = TopicPartition(topics.outcomes, number)
        self._ids.check(cluster, self._settings)
        bounds = Bounds(
            cluster.stable_offset(self._settings.processor_group, commands),
            cluster.first_offset(commands),
            cluster.first_offset(outcomes),
            cluster.first_offset(state),
            cluster.end_offset(state),
        )
        if bounds.state_low == bounds.state_high and not self._layout_checked:
            self._check_layout()
        return bounds

    def _check_layout(self) -> None:
        """An empty partition: what the others were written with decides whether it is to be one."""
        partitions = self._ids.partitions
        found = layout.written_counts(self._settings, self._cluster, self._clock, partitions)
        layout.refuse_another_count(found, partitions)
        self._layout_checked = True

    def _begin_restore(self, owned: Owned, bounds: Bounds) -> None:
        start = max(owned.partition.changelog, bounds.state_low)
        owned.restore_to = bounds.state_high
        owned.waits_for = ""
        owned.phase = Phase.RESTORING
        self._changelog.incremental_assign(
            [TopicPartition(self._settings.topics.state, owned.number, start)]
        )
        if start >= bounds.state_high:
            self._end_restore(owned)
        else:
            self._log.info("restoring", partition=owned.number, records=bounds.state_high - start)

    def _restore(self) -> bool:
        restoring = [owned for owned in self.owned.values() if owned.phase is Phase.RESTORING]
        if not restoring:
            return False
        messages = self._changelog.consume(RESTORE_RECORDS_MAX, 0.0 if self.active else 0.02)
        records: dict[Owned, list[Message]] = {owned: [] for owned in restoring}
        for message in messages:
            owned = self.owned.get(message.partition() or 0)
            if owned not in records:
                continue
            error = message.error()
            if error is None:
                records[owned].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._restore_records(owned, records[owned])
                records[owned] = []
                if (message.offset() or 0) >= owned.restore_to:
                    self._end_restore(owned)
            elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
                self._stop_reading(owned)
                self._log.error("store wiped", partition=owned.number, why=error.str())
                self._start_over(owned)
                del records[owned]
            elif error.fatal():
                raise EngineFailed(error.str())
        for owned, remaining in records.items():
            self._restore_records(owned, remaining)
        return bool(messages)

    def _end_restore(self, owned: Owned) -> None:
        self._stop_reading(owned)
        owned.phase = Phase.RESTORED

    def _restore_records(self, owned: Owned, records: list[Message]) -> None:
        if not records:
            return
        applied = owned.partition.applied
        changes: dict[bytes, bytes | None] = {}
        for record in records:
            key, value = record.key(), record.value()
            if key == changelog.APPLIED_KEY:
                if value is not None:
                    applied = changelog.decode_applied(value)
            elif isinstance(key, bytes):
                changes[key] = value
        last = records[-1].offset()
        assert last is not None, "a consumed record has an offset"
        owned.partition.restore(changes, last + 1, applied)

    def _activate(self, owned: Owned) -> None:
        """Everything is restored: position the inputs and let turns touch it."""
        assert owned.bounds_asked is not None, "a restoring partition has been located"
        bounds = owned.bounds_asked.result()
        applied = self._checked_applied(owned)
        owned.commands_next = self._commands_start(owned, bounds, applied)
        owned.outcomes_next = max(applied.outcomes, bounds.outcomes_low)
        try:
            self._commands.seek(self._commands_place(owned, owned.commands_next))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # The client has not begun to fetch the new partition: position it next time round.
            return
        outcomes = TopicPartition(self._settings.topics.outcomes, owned.number, owned.outcomes_next)
        self._outcomes.incremental_assign([outcomes])
        owned.partition.mark_current(self._clock.now_ms())
        self._commands.resume([self._commands_place(owned)])
        owned.phase = Phase.ACTIVE
        self._log.info(
            "active",
            partition=owned.number,
            pending=owned.partition.counts.pending,
            commands_from=owned.commands_next,
            seconds=round(self._clock.monotonic_s() - owned.since_s, 3),
        )

    def _checked_applied(self, owned: Owned) -> Applied:
        """The applied offsets, for the topics that exist today."""
        ids, applied = self._ids, owned.partition.applied
        layout.refuse_another_count({applied.partitions}, ids.partitions)
        commands, outcomes = applied.commands, applied.outcomes
        if applied.commands_topic not in {"", ids.commands}:
            self._log.error("commands topic is a new one", partition=owned.number)
            commands = 0
        if applied.outcomes_topic not in {"", ids.outcomes}:
            self._log.error("outcomes topic is a new one", partition=owned.number)
            outcomes = 0
        checked = Applied(commands, outcomes, ids.commands, ids.outcomes, ids.partitions)
        owned.partition.applied = checked
        return checked

    def _commands_start(self, owned: Owned, bounds: Bounds, applied: Applied) -> int:
        """Where to read commands: the group's offset, but never past what was applied.

        A group that was wound back is read again from there: what was applied is recognised by
        its offset, counted, and has no second effect. A group wound forward, or whose offset is
        that of an older topic of the same name, would skip commands nobody has decided: the
        applied offset counts then, also where nothing has been applied yet.
        """
        committed = bounds.committed
        if committed is None:
            return max(applied.commands, bounds.commands_low)
        if committed > applied.commands:
            self._log.warning(
                "group offset is ahead of what was applied: not skipping",
                partition=owned.number,
                committed=committed,
                applied=applied.commands,
            )
            return max(applied.commands, bounds.commands_low)
        if committed < applied.commands:
            self._log.warning(
                "group offset was wound back: reading again, without a second effect",
                partition=owned.number,
                records=applied.commands - committed,
            )
        return committed

    def consume_outcomes(self, records_max: int) -> list[Message]:
        """Outcomes that have arrived for active partitions."""
        found = []
        for message in self._outcomes.consume(records_max, 0.0):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                self._outcomes_failed(message.partition(), error)
        return found

    def _outcomes_failed(self, number: int | None, error: KafkaError) -> None:
        """The client reads this partition no more, or is at an end altogether."""
        if error.fatal():
            raise EngineFailed(error.str())
        self._log.error("outcomes cannot be read", partition=number, error=error.str())
        owned = None if number is None else self.owned.get(number)
        if owned is not None and owned.active:
            self._relocate(owned)

    def flush_stores(self, now_ms: int) -> None:
        """Begin to bring the stores to disk, which bounds what a crash replays.

        An active partition's store is marked as current: nothing of the log is missing in it.
        """
        for owned in self.owned.values():
            if owned.active:
                owned.partition.mark_current(now_ms)
            if owned.partition_or_none is not None:
                owned.partition.store.begin_flush()

    def check_flushes(self) -> None:
        """Raises what the flush of a store has met: `StoreDamaged`, `StoreUnavailable`."""
        for owned in self.owned.values():
            if owned.partition_or_none is not None:
                owned.partition.store.check_flush()

    def close(self) -> None:
        """Let go of everything."""
        self._let_go(list(self.owned), current=False)
        self._asking.shutdown(cancel_futures=True)
        self._changelog.close()
        self._outcomes.close()
