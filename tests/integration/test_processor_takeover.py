"""Taking a partition over when its topics or its group are not what the state was written with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType
from confluent_kafka.admin._config import ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from buckets.partition import Applied, Partition
from buckets.rocks_store import RocksMemory, RocksStore
from deploy.broker import run_tool
from schemas import reminder as codec
from schemas.routing import partition_of
from streams import kafka as clients
from streams import topics
from streams.errors import EngineFailed, PartitionsChanged
from streams.processor import changelog
from streams.processor.owned import Owned
from streams.processor.ownership import LOCK_WAIT_S, Ownership
from streams.processor.pressure import Publisher
from tests import zeros
from tests.acceptance import upstream
from tests.kafka import RunningKafka
from tests.processor_lab import Lab, SetClock, laboratory
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

COUNT = 40
DAY_MS = 86_400_000


@pytest.fixture
def lab(kafka: RunningKafka, tmp_path: Path) -> Iterator[Lab]:
    """Processors in this thread."""
    with laboratory(kafka.bootstrap, tmp_path) as lab:
        yield lab


def _send(lab: Lab, name: str, count: int = COUNT, due_ms: int | None = None) -> None:
    at = upstream.now_ms() + DAY_MS if due_ms is None else due_ms
    lab.send(*(upstream.schedule(f"{name}-{n}", at, "due") for n in range(count)))


def _taken_in(lab: Lab, count: int) -> None:
    lab.turn_until(lambda: lab.pending() == count, f"{count} taken in")


# ---- the group ----


@pytest.mark.parametrize("before", [COUNT, 0])
def test_commands_nobody_decided_are_not_skipped(lab: Lab, before: int) -> None:
    """The group wound forward with Kafka's own tool, also where it had never committed."""
    if before:
        lab.active()
        _send(lab, "before", before)
        _taken_in(lab, before)
        lab.close()
    _send(lab, "undecided")
    done = run_tool(
        "kafka-consumer-groups",
        "--bootstrap-server",
        lab.settings.bootstrap,
        "--group",
        lab.settings.processor_group,
        "--topic",
        lab.settings.topics.commands,
        "--reset-offsets",
        "--to-latest",
        "--execute",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lab.active()
    _taken_in(lab, before + COUNT)
    lab.assert_all_zero("a")


# ---- the topics ----


def _recreate(lab: Lab, topic: str) -> None:
    """Delete a topic and make it anew under the same name, as an operator may."""
    cluster = clients.Cluster(lab.settings)
    cluster.admin.delete_topics([topic])[topic].result()
    wait_until(lambda: not cluster.topics([topic]), 30, f"{topic} is gone")
    wait_until(lambda: topics.create(cluster, lab.settings) == [topic], 30, f"{topic} made anew")
    wait_until(lambda: cluster.topics([topic]), 30, f"{topic} is known")


def _commit(lab: Lab, topic: str, offset: int) -> None:
    places = [TopicPartition(topic, n, offset) for n in range(lab.settings.partitions)]
    group = lab.settings.processor_group
    wanted = [ConsumerGroupTopicPartitions(group, places)]
    admin = clients.Cluster(lab.settings).admin
    admin.alter_consumer_group_offsets(wanted)[group].result()


@pytest.mark.parametrize("offsets_survive", [False, True])
def test_commands_of_a_topic_made_anew_are_no_replays(lab: Lab, offsets_survive: bool) -> None:
    lab.active()
    _send(lab, "old")
    _taken_in(lab, COUNT)
    lab.close()
    _recreate(lab, lab.settings.topics.commands)
    if offsets_survive:
        # Whether a group forgets a deleted topic's offsets is the broker's affair, not ours.
        _commit(lab, lab.settings.topics.commands, COUNT // 4)
    _send(lab, "new", COUNT // 2)
    lab.active()
    _taken_in(lab, COUNT + COUNT // 2)
    lab.assert_all_zero("a")


def test_outcomes_of_a_topic_made_anew_are_no_replays(lab: Lab) -> None:
    lab.active()
    _send(lab, "old", due_ms=0)
    lab.turn_until(lambda: lab.claims() == COUNT, "all have left")
    for event in lab.due():
        lab.answer(event, "delivered")
    lab.turn_until(lambda: lab.claims() == 0, "all answered")
    _send(lab, "new", COUNT // 2, due_ms=0)
    lab.turn_until(lambda: lab.claims() == COUNT // 2, "more have left")
    lab.close()
    _recreate(lab, lab.settings.topics.outcomes)
    for event in lab.due():
        if event.id.startswith("new"):
            lab.answer(event, "delivered")
    lab.active()
    lab.turn_until(lambda: lab.claims() == 0, "the new topic's answers taken in")
    lab.assert_all_zero("a")


def test_partitions_that_were_added_are_noticed_before_any_of_them_is_worked_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C10. What a process owns may be new partitions only, in which nothing was ever written."""
    lab.active()
    _send(lab, "old")
    _taken_in(lab, COUNT)
    lab.close()
    shutil.rmtree(lab.directory())
    names = lab.settings.topics.all()
    admin = clients.Cluster(lab.settings).admin
    for future in admin.create_partitions([NewPartitions(name, 4) for name in names]).values():
        future.result()
    _send(lab, "new")
    activate = Ownership._activate

    def activate_new(self: Ownership, owned: Owned) -> None:
        if owned.number >= lab.settings.partitions:
            activate(self, owned)

    monkeypatch.setattr(Ownership, "_activate", activate_new)
    lab.processor()
    with pytest.raises(PartitionsChanged, match="ids hash to other partitions"):
        lab.turn_until(lambda: False, "the end", timeout_s=5)
    lab.close()
    written = zeros.read_topic(lab.settings, lab.settings.topics.state)
    assert {record.partition for record in written} == {0, 1}


# ---- a store in other hands ----

HOLDING = """
import sys
from pathlib import Path
from buckets.rocks_store import RocksMemory, RocksStore
held = RocksStore(Path(sys.argv[1]), RocksMemory(32 << 20))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _held(store: Path) -> Iterator[None]:
    """Another process has the store open."""
    command = [sys.executable, "-c", HOLDING, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()
    assert holder.returncode == 0


def test_a_locked_store_holds_up_only_its_own_partition(lab: Lab) -> None:
    lab.active()
    lab.close()
    _send(lab, "waiting", due_ms=0)
    with _held(lab.directory() / "processor" / "0"):
        processor = lab.processor()
        lab.turn_until(lambda: [each.number for each in processor.active] == [1], "1 is active")
        lab.turn_until(lambda: lab.partitions()[0].counts.claims > 0, "1 fires")
        assert processor.phases()[0] == "opening"
        assert not processor.ready
    lab.turn_until(lambda: lab.claims() == COUNT, "0 fires too")
    assert processor.ready
    lab.assert_all_zero("a")


def test_a_store_that_stays_locked_ends_the_process(lab: Lab) -> None:
    lab.active()
    lab.close()
    clock = SetClock()
    with _held(lab.directory() / "processor" / "0"):
        processor = lab.processor(clock=clock)
        lab.turn_until(lambda: len(processor.active) == 1, "the other one is active")
        clock.monotonic_ahead_s += LOCK_WAIT_S
        with pytest.raises(EngineFailed, match="is open in another process: stop it"):
            lab.turn_until(lambda: False, "patience ends", timeout_s=10)
    lab.assert_all_zero("a")


# ---- a transaction in other hands ----


def test_the_open_transaction_of_the_previous_owner_is_waited_for(lab: Lab) -> None:
    """Nothing is decided beside it, and what it commits after all is found."""
    lab.active()
    _send(lab, "before", 1)
    _taken_in(lab, 1)
    number = partition_of("before-0", lab.settings.partitions)
    lab.close()
    member = clients.group_consumer(lab.settings, lab.settings.processor_group, "test")
    member.subscribe([lab.settings.topics.commands])
    wait_until(lambda: member.poll(0.05) is None and member.assignment(), 20, "its ownership")
    producer = clients.transactional_producer(lab.settings, lab.settings.prefix + "x", "test")
    producer.init_transactions(20)
    producer.begin_transaction()
    (place,) = [one for one in member.assignment() if one.partition == number]
    place.offset = 1
    producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), 20)
    producer.flush(20)
    member.close()
    processor = lab.processor()
    _send(lab, "after", 8, due_ms=0)
    lab.turn_until(lambda: len(processor.active) == 1, "the other one is active")
    lab.turn_until(lambda: lab.partitions()[0].counts.claims > 0, "the other one fires")
    assert processor.phases()[number] == "locating"
    producer.commit_transaction(20)
    lab.turn_until(lambda: lab.claims() == 8, "this one too")
    lab.assert_all_zero("a")


@pytest.mark.parametrize("number", [0, 1])
def test_what_was_left_open_under_either_of_its_ids_is_ended_at_once(lab: Lab, number: int) -> None:
    """A process that was killed may have left open the one or the other."""
    settings = lab.settings
    left = clients.transactional_producer(settings, f"{settings.processor_group}-a-{number}", "x")
    left.init_transactions(20)
    left.begin_transaction()
    left.produce(settings.topics.state, b"never committed", b"x", 0)
    left.flush(20)
    lab.active("a")
    with pytest.raises(KafkaException) as fenced:
        left.commit_transaction(20)
    assert fenced.value.args[0].name() == "_FENCED"
    _send(lab, "after", 8)
    _taken_in(lab, 8)
    lab.assert_all_zero("a")


# ---- the changelog and the store ----


def _ahead_of_the_changelog(lab: Lab, store: Path) -> None:
    """As after a changelog that lost its end: more was applied than is in it."""
    opened = Partition(RocksStore(store, RocksMemory(32 << 20)))
    opened.settle(1_000_000, Applied(*opened.applied.__reduce__()[1]), upstream.now_ms())
    opened.store.close()


def _behind_the_changelog(lab: Lab, store: Path) -> None:
    """An old copy of the disk, and a changelog whose beginning has gone since."""
    copy = store.with_name("copy")
    shutil.copytree(store, copy)
    lab.active()
    for version in (1, 2):
        at = upstream.now_ms() + DAY_MS
        moves = [{"type": "reschedule", "id": f"old-{n}", "due_at": at} for n in range(COUNT)]
        lab.send(*moves)
        lab.turn_until(lambda wanted=version: _versions(lab) == {wanted}, "all moved")
    lab.close()
    shutil.rmtree(store)
    copy.rename(store)
    _forget_before(lab, int(store.name), version=2)


def _versions(lab: Lab) -> set[int]:
    found = [lab.standing(f"old-{n}") for n in range(COUNT)]
    return {one.asked.version for one in found if one is not None}


def _forget_before(lab: Lab, number: int, version: int) -> None:
    """Delete records that later ones replace, as compaction does, from the log's beginning."""
    topic = lab.settings.topics.state
    first = next(
        record.offset
        for record in zeros.read_topic(lab.settings, topic)
        if record.partition == number
        and record.key != changelog.APPLIED_KEY
        and codec.decode(record.value or b"").asked.version == version
    )
    _policy(lab, topic, "compact,delete")
    place = TopicPartition(topic, number, first)
    # A broker hears of a topic's new policy a moment after it has been set.
    wait_until(lambda: _forgotten(lab, place), 30, "the beginning is gone")
    _policy(lab, topic, "compact")


def _forgotten(lab: Lab, place: TopicPartition) -> bool:
    admin = clients.Cluster(lab.settings).admin
    try:
        admin.delete_records([place])[place].result()
    except KafkaException as raised:
        if raised.args[0].code() != KafkaError.POLICY_VIOLATION:
            raise
        return False
    return True


def _policy(lab: Lab, topic: str, policy: str) -> None:
    wanted = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[wanted])
    admin = clients.Cluster(lab.settings).admin
    admin.incremental_alter_configs([changed])[changed].result()


@pytest.mark.parametrize("damage", [_ahead_of_the_changelog, _behind_the_changelog])
def test_a_store_that_does_not_fit_the_changelog_is_rebuilt(
    lab: Lab, damage: Callable[[Lab, Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    lab.active()
    _send(lab, "old")
    _taken_in(lab, COUNT)
    lab.close()
    damage(lab, lab.directory() / "processor" / "0")
    capsys.readouterr()
    lab.active()
    assert "store wiped" in capsys.readouterr().out
    _send(lab, "new")
    _taken_in(lab, 2 * COUNT)
    lab.assert_all_zero("a")


def test_a_changelog_whose_beginning_goes_while_it_is_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The place that is read is no longer there: everything is read again from the beginning."""
    lab.active()
    _send(lab, "old")
    _taken_in(lab, COUNT)
    store = lab.directory() / "processor" / "0"
    lab.close()
    _behind_the_changelog(lab, store)
    shutil.rmtree(lab.directory())
    asked = clients.Cluster.first_offset
    stale = [0]

    def first_offset(self: clients.Cluster, place: TopicPartition) -> int:
        if stale and (place.topic, place.partition) == (lab.settings.topics.state, 0):
            return stale.pop()
        return asked(self, place)

    monkeypatch.setattr(clients.Cluster, "first_offset", first_offset)
    capsys.readouterr()
    lab.active()
    assert capsys.readouterr().out.count("store wiped") == 1
    assert lab.pending() == COUNT
    lab.assert_all_zero("a")


def test_figures_that_were_not_published_are_replaced_by_the_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "_send", lambda *_: None)
        lab.active()
        _send(lab, "owed")
        _taken_in(lab, COUNT)
        lab.close()
    lab.active()

    def owed() -> int:
        latest = {
            record.key: record.value
            for record in zeros.read_topic(lab.settings, lab.settings.topics.pressure)
        }
        return sum(_pending(value) for value in latest.values())

    lab.turn_until(lambda: owed() == COUNT, "the figures are right")
    lab.assert_all_zero("a")


def _pending(figures: bytes | None) -> int:
    return int(orjson.loads(figures or b"{}")["pending"])
