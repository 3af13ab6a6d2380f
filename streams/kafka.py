"""One door to the brokers: how every client of this project is configured, and what they are."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription

from schemas.errors import Refused
from streams.errors import BrokerUnreachable, PartitionsChanged, TopicsMissing
from streams.settings import Settings

REQUEST_TIMEOUT_S: Final = 10.0
_FIRST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_headers: Final = methodcaller("headers")
_END: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Assigned = Callable[[Consumer, list[TopicPartition]], None]


def base(settings: Settings, role: str) -> dict[str, Any]:
    """What every client shares. The user's own properties win over ours, here and in each client:
    those that a promise rests on are refused when settings are read.
    """
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": f"minutewheel-{role}-{settings.name}",
        # A topic that is not there is an error to report, never one to create by accident.
        "allow.auto.create.topics": "false",
        **settings.kafka,
    }


def group_consumer(settings: Settings, group: str, role: str) -> Consumer:
    """A member of a consumer group whose offsets move only inside our transactions."""
    properties: dict[str, Any] = {
        "group.id": group,
        "group.protocol": settings.group_protocol,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": settings.poll_interval_ms_max,
        "fetch.wait.max.ms": 50,
        "queued.max.messages.kbytes": 65_536,
    }
    if settings.static_membership:
        properties["group.instance.id"] = f"{group}-{settings.name}"
    if settings.group_protocol == "classic":
        properties["session.timeout.ms"] = settings.session_timeout_ms
        properties["heartbeat.interval.ms"] = max(1, settings.session_timeout_ms // 5)
        properties["partition.assignment.strategy"] = "cooperative-sticky"
    return Consumer(base(settings, role) | properties | dict(settings.kafka))


def reader(settings: Settings, role: str) -> Consumer:
    """A consumer that is told what to read, belongs to no group and says where topics end."""
    return Consumer(
        base(settings, role)
        | {
            # librdkafka wants a group id even where none is joined; it is never committed to.
            "group.id": f"{settings.prefix}reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 65_536,
        }
        | dict(settings.kafka)
    )


def transactional_producer(settings: Settings, transactional_id: str, role: str) -> Producer:
    """A producer whose records and offsets appear together or not at all."""
    return Producer(
        base(settings, role)
        | {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": settings.transaction_timeout_ms,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 2,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": 2_097_152,
            # The coordinator asks for patience while it still writes the markers of the last
            # transaction; the default of 100 ms would be most of a small turn.
            "retry.backoff.ms": 2,
        }
        | dict(settings.kafka)
    )


def plain_producer(settings: Settings, role: str, compression: str | None = None) -> Producer:
    """An idempotent producer for commands and figures, outside any transaction.

    `compression` is for readers that know no other, whatever the user prefers.
    """
    return Producer(
        base(settings, role)
        | {
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": 2_097_152,
            "delivery.timeout.ms": 30_000,
        }
        | dict(settings.kafka)
        | ({} if compression is None else {"compression.type": compression})
    )


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A record's headers, or `Refused`. Ask once for each message, and only here.

    On a name that is not UTF-8 the client returns a list with a hole in it beside the error it
    sets. Touching the hole ends the process, and a call that the interpreter has made fast does
    not look at the error: `methodcaller` calls in a way that always does.
    """
    try:
        found: Any = _headers(message)
    except SystemError:
        raise Refused("bad_header", "the name of a Kafka header is not UTF-8") from None
    return found or []


class Unstable(Exception):
    """A transaction that moves the offset is open; whether it commits is not known yet."""


class Cluster:
    """What the brokers say about themselves and their topics."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Kept in a field: an admin client that is dropped dies before its futures finish.
        self._admin = AdminClient(base(settings, "admin") | {"socket.timeout.ms": 10_000})

    @property
    def admin(self) -> AdminClient:
        """The client itself, for what is not wrapped here."""
        return self._admin

    def cluster_id(self, timeout_s: float = REQUEST_TIMEOUT_S) -> str:
        """The cluster's id, or `BrokerUnreachable`."""
        try:
            described = self._admin.describe_cluster(request_timeout=timeout_s).result()
        except KafkaException as error:
            raise BrokerUnreachable(
                f"no broker answered at {self._settings.bootstrap}: {error.args[0].str()}"
            ) from None
        return str(described.cluster_id)

    def topics(self, names: list[str]) -> dict[str, TopicDescription]:
        """The descriptions of those topics that exist."""
        found = {}
        futures = self._admin.describe_topics(
            TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S
        )
        for name, future in futures.items():
            try:
                found[name] = future.result()
            except KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
        return found

    def config(self, topic: str) -> dict[str, str]:
        """A topic's configuration. Raises `KafkaException`."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        futures = self._admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        return {name: entry.value for name, entry in futures[resource].result().items()}

    def our_topics(self) -> dict[str, TopicDescription]:
        """All topics of the contract, or `TopicsMissing`, `PartitionsChanged`."""
        names = self._settings.topics.all()
        found = self.topics(names)
        missing = [name for name in names if name not in found]
        if missing:
            raise TopicsMissing(
                f"no topic {', '.join(missing)} at {self._settings.bootstrap}: "
                "run `minutewheel topics create`"
            )
        counts = {name: len(found[name].partitions) for name in names}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise PartitionsChanged(
                f"the topics must all have the same number of partitions; found {listed}"
            )
        return found

    def stable_offset(self, group: str, place: TopicPartition) -> int | None:
        """A group's committed offset, None where it has none. Raises `Unstable`.

        Not by `Consumer.committed`: calls of a consumer wait for one another, and one that another
        thread polls without a pause never lets it in.
        """
        answer = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [place])],
            require_stable=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        found = answer[group].result().topic_partitions[0]
        if found.error is not None:
            if found.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
                raise Unstable(f"an open transaction moves the offset of {place.topic}")
            raise KafkaException(found.error)
        return int(found.offset) if found.offset >= 0 else None

    def first_offset(self, place: TopicPartition) -> int:
        """The first offset a partition still holds."""
        return self._offset(place, _FIRST)

    def end_offset(self, place: TopicPartition) -> int:
        """The end of everything written, not of what is committed: a committed transaction
        becomes visible in one topic sooner than in another, and has to be waited for.
        """
        return self._offset(place, _END)

    def committed_spans(self, places: list[TopicPartition]) -> list[tuple[int, int]]:
        """First offset and end of what is committed, of each of these partitions."""
        first, end = (
            self._admin.list_offsets(
                dict.fromkeys(places, which),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=REQUEST_TIMEOUT_S,
            )
            for which in (_FIRST, _END)
        )
        return [
            (int(first[place].result().offset), int(end[place].result().offset)) for place in places
        ]

    def _offset(self, place: TopicPartition, which: OffsetSpec) -> int:
        futures = self._admin.list_offsets(
            {place: which},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return int(futures[place].result().offset)
