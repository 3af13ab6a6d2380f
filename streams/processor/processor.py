"""The processor's loop: turn after turn until it is told to stop.

It never does two things at once, and nothing acts from inside a callback: what the group says
changes only which partitions the next turn sees.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

from buckets.errors import BucketsError, StoreDamaged
from buckets.partition import Partition
from buckets.rocks_store import RocksMemory
from buckets.rules import Rules
from schemas.instants import MINUTE_MS
from streams import kafka, logs, metrics
from streams.clock import Clock
from streams.errors import EngineFailed, Fenced
from streams.processor.owned import Owned
from streams.processor.ownership import Ownership, TopicIds
from streams.processor.pressure import Publisher
from streams.processor.producers import Producers
from streams.processor.stores import Stores
from streams.processor.targets import Targets
from streams.processor.transaction import Transaction, TurnFailed
from streams.processor.turn import Refusals, Turn
from streams.settings import Settings

CLOCK_STEP_REPORTED_MS: Final = 1_000
GAUGES_INTERVAL_S: Final = 1.0
HORIZON_MINUTES: Final = {"hour": 60, "day": 24 * 60, "week": 7 * 24 * 60}
FAILURE_PAUSE_S: Final = 0.01
FAILURE_PAUSE_S_MAX: Final = 2.0
FAILURES_COUNTED_MAX: Final = 10
MANY_RECORDS: Final = 2_500
"""A turn with so many inputs is followed by the next without waiting."""

Answer = TypeVar("Answer")


class Processor:
    """One member of the processor group. `run` in one thread; `stop` and `ask` from any."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Connects and checks the topics. Raises `BrokerUnreachable`, `TopicsMissing`, …"""
        self._settings = settings
        self._clock = clock
        self._log = logs.get("processor")
        self._rules = rules_of(settings)
        self._cluster = cluster = kafka.Cluster(settings)
        self._ids = TopicIds(cluster, settings)
        self._targets = Targets(cluster, clock)
        self._commands = kafka.group_consumer(settings, settings.processor_group, "commands")
        memory = RocksMemory(settings.store_cache_mib << 20)
        stores = Stores(settings.data_dir / "processor", memory, self._log)
        self._ownership = Ownership(
            settings, clock, stores, cluster, self._ids, self._commands, self._log
        )
        self._producers = Producers(settings, self._log)
        # Faust reads these, and of the codecs it has only gzip where nothing more is installed.
        self._figures = kafka.plain_producer(settings, "pressure", compression="gzip")
        self._publisher = Publisher(settings, self._figures)
        self._refusals: Refusals = {}
        self._questions: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stopping = Event()
        self._more = False
        self._first = 0
        self._failures = 0
        self._fires_max = settings.fires_per_turn_max
        self._flush_at_s = clock.monotonic_s() + settings.store_flush_s
        self._gauges_at_s = clock.monotonic_s()
        self._wall_minus_monotonic_ms = self._clock_difference_ms()

    # ---- from other threads ----

    def stop(self) -> None:
        """Ask the loop to finish its turn, hand its partitions over and return."""
        self._stopping.set()

    @property
    def ready(self) -> bool:
        """Whether everything assigned to this process is restored and being worked on."""
        return self._ownership.all_active and self._producers.ready

    @property
    def partitions(self) -> int:
        """How many partitions the topics have."""
        return self._ids.partitions

    @property
    def active(self) -> list[Owned]:
        """The partitions turns are working on. Only for the thread that turns."""
        return self._ownership.active

    def phases(self) -> dict[int, str]:
        """The owned partitions and how far each has come."""
        return {number: owned.phase.value for number, owned in self._ownership.owned.copy().items()}

    def ask(self, number: int, question: Callable[[Partition], Answer]) -> Future[Answer | None]:
        """Put a question to an owned partition between two turns; None where it is not here."""
        future: Future[Answer | None] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                # Nobody waits any more.
                return
            owned = self._ownership.owned.get(number)
            try:
                found = question(owned.partition) if owned is not None and owned.active else None
                future.set_result(found)
            except Exception as error:
                # The question's own fault is the asker's to hear of, not the loop's to die of.
                future.set_exception(error)
                if isinstance(error, StoreDamaged):
                    raise

        self._questions.put(answer)
        return future

    # ---- the loop ----

    def run(self) -> None:
        """Turn until `stop`. Raises `Fenced`, `EngineFailed` and their kin when it cannot go on."""
        self.join()
        try:
            while not self._stopping.is_set():
                self.turn()
        except BucketsError as error:
            raise EngineFailed(str(error)) from error
        finally:
            self.close()

    def join(self) -> None:
        """Join the group; the first partitions come with one of the next turns.

        The producers come first: they end the transactions that a killed process of this name may
        have left open, which would hold up its partitions until they time out.
        """
        self._producers.open()
        self._commands.subscribe(
            [self._settings.topics.commands],
            on_assign=self._ownership.assigned,
            on_revoke=self._ownership.revoked,
            on_lost=self._ownership.lost,
        )

    def close(self) -> None:
        """Leave the group, hand everything over and let go of all files."""
        self._answer_questions()
        # Leaving the group first lets another process begin with our partitions at once.
        self._commands.close()
        self._ownership.close()
        self._producers.drop()
        self._figures.flush(2.0)
        self._log.info("stopped")

    def turn(self) -> None:
        """One round: poll, restore a little, decide, commit, settle."""
        started_s = self._clock.monotonic_s()
        messages = self._poll()
        # Nothing is active without producers, so no message has been handed out in vain.
        self._producers.open()
        try:
            self._answer_questions()
            if self._producers.ready:
                self._work(messages, started_s)
            self._housekeeping(started_s)
        except TurnFailed as failed:
            self._recover(failed)
        except StoreDamaged as damaged:
            self._rebuild(damaged)

    def _work(self, messages: list[Message], started_s: float) -> None:
        self._more = self._ownership.advance()
        active = self._ownership.active
        if active:
            self._one_turn(active, messages, started_s)
            self._publisher.publish(active, self._clock)

    def _poll(self) -> list[Message]:
        """Commands that have arrived, waited for no longer than the next due entry allows."""
        found: list[Message] = []
        for message in self._commands.consume(self._settings.turn_records_max, self._wait_s()):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                # It may be slow to hear of the topic; one that is gone ends the process here.
                self._log.warning("a broker does not know the topic yet", error=error.str())
                with suppress(KafkaException):
                    self._ids.check(self._cluster, self._settings)
            elif error.code() == KafkaError.FENCED_INSTANCE_ID:
                raise Fenced("another process joined the group under this one's --name")
            elif error.fatal():
                raise EngineFailed(error.str())
            else:
                self._log.warning("commands cannot be read", error=error.str())
        return found

    def _wait_s(self) -> float:
        if self._more:
            return 0.0
        wait_ms = self._settings.turn_wait_ms_max
        now_ms = self._clock.now_ms()
        for owned in self._ownership.active:
            # What waits for a free claim is overdue, and no reason to spin.
            next_ms = owned.partition.next_ms(self._rules.claims_max)
            if next_ms is not None:
                wait_ms = min(wait_ms, next_ms - now_ms)
        return max(wait_ms, 0) / 1_000

    def _one_turn(self, active: list[Owned], messages: list[Message], started_s: float) -> None:
        turn = Turn(
            self._settings,
            self._rules,
            Transaction(self._producers.current, self._settings),
            self._targets,
            self._refusals,
            self._ids.partitions,
            self._clock.now_ms(),
        )
        try:
            busy, committed = self._carry_out(turn, active, messages)
        except Fenced as fenced:
            # A transaction that lasts too long is ended by the coordinator under the same error.
            lasted_s = self._clock.monotonic_s() - started_s
            if lasted_s * 1_000 < self._settings.transaction_timeout_ms:
                raise
            error = KafkaError(KafkaError._TIMED_OUT, "the transaction lasted too long")
            raise TurnFailed(error, unknown=True) from fenced
        self._forget_refusals()
        self._failures = 0
        self._fires_max = min(2 * self._fires_max, self._settings.fires_per_turn_max)
        self._more |= busy
        if committed:
            self._producers.committed()
            metrics.TURN.observe(self._clock.monotonic_s() - started_s)
            metrics.TURN_RECORDS.observe(turn.inputs)

    def _carry_out(
        self, turn: Turn, active: list[Owned], messages: list[Message]
    ) -> tuple[bool, bool]:
        """Returns whether there is likely more at once, and whether anything was committed."""
        try:
            busy = self._fill(turn, active, messages)
            return busy, turn.commit(self._commands.consumer_group_metadata())
        except TurnFailed as failed:
            # The abort first: it brings the answer to every record.
            turn.abort(failed)
            turn.note_refusals(failed, self._refusals)
            raise

    def _forget_refusals(self) -> None:
        """They have had their effect; only those of partitions that are not back yet stay."""
        if self._refusals:
            waiting = {each.number for each in self._ownership.owned.values() if not each.active}
            self._refusals = {
                which: why for which, why in self._refusals.items() if which[0] in waiting
            }

    def _fill(self, turn: Turn, active: list[Owned], messages: list[Message]) -> bool:
        """Decide everything there is; returns whether there is likely more at once."""
        owned_by_number = self._ownership.owned
        for number, commands in _by_partition(messages).items():
            owned = owned_by_number.get(number)
            # A message handed out before its partition was revoked is the next owner's.
            if owned is not None and owned.active:
                turn.take_commands(owned, commands)
        outcomes = self._ownership.consume_outcomes(self._settings.turn_records_max)
        for number, answers in _by_partition(outcomes).items():
            owned = owned_by_number.get(number)
            if owned is not None and owned.active:
                turn.take_outcomes(owned, answers)
        due = [turn.take_due(owned, share) for owned, share in self._shares(active)]
        return (
            sum(due) >= max(1, self._fires_max // 2)
            or len(messages) >= MANY_RECORDS
            or len(outcomes) >= MANY_RECORDS
        )

    def _shares(self, active: list[Owned]) -> list[tuple[Owned, int]]:
        """How many entries each partition may fire, another one first each time.

        Fewer after a turn that failed, down to one in all: so a record that breaks its transaction
        without being named is found in the end.
        """
        self._first = (self._first + 1) % len(active)
        turned = active[self._first :] + active[: self._first]
        share = max(1, self._fires_max // len(active))
        return [(owned, share) for owned in turned[: self._fires_max]]

    def _recover(self, failed: TurnFailed) -> None:
        """Nothing of the turn is believed: the changelog says what is true, and is read again."""
        metrics.ACK_FAILURES.inc()
        self._log.warning("turn failed", error=str(failed), unknown=failed.unknown)
        self._fires_max = max(1, self._fires_max // 2)
        # A little patience, so that a broker in trouble is not asked ever faster.
        self._stopping.wait(min(FAILURE_PAUSE_S * 2**self._failures, FAILURE_PAUSE_S_MAX))
        self._failures = min(self._failures + 1, FAILURES_COUNTED_MAX)
        # New producers make the coordinator end the old transaction, one way or the other.
        self._producers.drop()
        self._ownership.fail()
        self._more = True

    def _rebuild(self, damaged: StoreDamaged) -> None:
        """A store cannot be read: opened anew, it is found damaged, wiped and restored."""
        self._log.error("store damaged", why=str(damaged))
        # Whatever the turn has produced is ended by the next producers.
        self._producers.drop()
        self._ownership.reopen()
        self._more = True

    def _answer_questions(self) -> None:
        while True:
            try:
                self._questions.get_nowait()()
            except Empty:
                return

    # ---- now and then ----

    def _housekeeping(self, started_s: float) -> None:
        self._watch_clock()
        if started_s >= self._flush_at_s:
            self._flush_at_s = started_s + self._settings.store_flush_s
            self._ownership.flush_stores(self._clock.now_ms())
        if started_s >= self._gauges_at_s:
            self._gauges_at_s = started_s + GAUGES_INTERVAL_S
            self._ownership.check_flushes()
            self._set_gauges(self._clock.now_ms())

    def _watch_clock(self) -> None:
        difference_ms = self._clock_difference_ms()
        step_ms = difference_ms - self._wall_minus_monotonic_ms
        self._wall_minus_monotonic_ms = difference_ms
        if abs(step_ms) >= CLOCK_STEP_REPORTED_MS:
            metrics.CLOCK_STEP.set(step_ms / 1_000)
            self._log.error("the wall clock was set", step_s=step_ms / 1_000)

    def _set_gauges(self, now_ms: int) -> None:
        partitions = [owned.partition for owned in self._ownership.active]
        metrics.HEARTBEAT.set(now_ms / 1_000)
        metrics.PENDING.set(sum(partition.counts.pending for partition in partitions))
        metrics.CLAIMS.set(sum(partition.counts.claims for partition in partitions))
        metrics.RESTORE_REMAINING.set(self._ownership.restore_remaining)
        metrics.STORE_BYTES.set(sum(partition.store.size_bytes() for partition in partitions))
        oldest = [at for each in partitions if (at := each.oldest_pending_ms()) is not None]
        metrics.OLDEST_DUE.set(min(oldest, default=0) / 1_000)
        claims_max = self._rules.claims_max
        held_back = sum(partition.holds_back(now_ms, claims_max) for partition in partitions)
        metrics.THROTTLED.labels("claims").inc(held_back)
        minute = now_ms // MINUTE_MS
        for name, minutes in HORIZON_MINUTES.items():
            due = sum(each.counts.before_minute(minute + minutes) for each in partitions)
            metrics.DUE.labels(name).set(due)

    def _clock_difference_ms(self) -> int:
        return self._clock.now_ms() - int(self._clock.monotonic_s() * 1_000)


def rules_of(settings: Settings) -> Rules:
    """The rules as configured."""
    return Rules(
        retry_delays_s=settings.retry_delays_s,
        retry_attempts_max=settings.retry_attempts_max,
        lease_ms=settings.lease_s * 1_000,
        dedupe_retention_ms=settings.dedupe_retention_s * 1_000,
        cancel_memory_ms=settings.cancel_memory_s * 1_000,
        claims_max=settings.claims_max,
    )


def _by_partition(messages: list[Message]) -> dict[int, list[Message]]:
    grouped: dict[int, list[Message]] = {}
    for message in messages:
        number = message.partition()
        assert number is not None, "a consumed message has a partition"
        grouped.setdefault(number, []).append(message)
    return grouped
