"""One door to the brokers: how every client of this project is configured, and what they are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import (
    Consumer,
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
LEFT_BEHIND_AFTER_S: Final = 0.5
"""How long after its own time-out a call of the client is taken for one that never ends."""

REASON_WAIT_S: Final = 2.0
STABLE_WAIT_S: Final = 1.0
_NOT_STABLE: Final = {KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT}
_NOT_LET_IN: Final = {KafkaError._AUTHENTICATION, KafkaError._SSL}
_FIRST: Final = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_headers: Final = methodcaller("headers")
_END: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_log: Final = logging.getLogger("librdkafka")
_COMMITTED: Final = IsolationLevel.READ_COMMITTED
_WRITTEN: Final = IsolationLevel.READ_UNCOMMITTED

_QUIET: Final = {"log_level": 2, "logger": _log}
"""Nothing but what is fatal, and that into our log: the rest comes back as an error, or is told by
`_complain`. Each of ten clients would write twenty lines a second while a broker is away."""

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
        **({} if settings.kafka.keys() & {"log_level", "debug"} else _QUIET),
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
    properties["error_cb"] = _complain
    return Consumer(base(settings, role) | properties | dict(settings.kafka))


def _complain(error: KafkaError) -> None:
    """What a client has trouble with and goes on trying: seldom written, see `logs`."""
    _log.warning("%s: %s", error.name(), error.str())


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


class TransactionalProducer(Producer):
    """A producer whose `send_offsets_to_transaction` comes back in time.

    The client's own may never do so once the group's coordinator was off the brokers' list for a
    moment, as one is that restarts (librdkafka's issues 5456 and 5511). So the call is made in a
    thread that can be left behind. The producer is of no more use then.
    """

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """As the client's, with its errors. Without an answer in time, a retriable time-out."""
        made: Future[None] = Future()

        def call() -> None:
            try:
                made.set_result(
                    Producer.send_offsets_to_transaction(self, positions, group_metadata, timeout)
                )
            except Exception as error:
                made.set_exception(error)

        # Not by an executor: the interpreter would wait at its end for a thread left behind.
        threading.Thread(target=call, name="send-offsets", daemon=True).start()
        try:
            made.result(None if timeout < 0 else timeout + LEFT_BEHIND_AFTER_S)
        except TimeoutError:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "offsets were not taken in time", retriable=True)
            ) from None


def transactional_producer(
    settings: Settings, transactional_id: str, role: str
) -> TransactionalProducer:
    """A producer whose records and offsets appear together or not at all."""
    return TransactionalProducer(
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
            # A coordinator may ask for patience when it is told the offsets; the default of 100 ms
            # would be most of a small turn. (When it is told partitions, the client waits 20 ms,
            # whatever is set here: see `processor/producers.py`.)
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


def unreachable(settings: Settings, said: str) -> BrokerUnreachable:
    """The error of one whose request was not answered, and why, as far as that can be heard.

    The request itself only times out. What a broker has against a client is told to a callback,
    which somebody has to serve: so a client is asked that does nothing else.
    """
    heard: list[KafkaError] = []
    own = {"log_level": "0", "error_cb": heard.append}
    client = AdminClient(base(settings, "unreachable") | own)
    asked = client.describe_cluster(request_timeout=REASON_WAIT_S)
    while not asked.done() and not any(error.code() in _NOT_LET_IN for error in heard):
        client.poll(0.1)
    for error in heard:
        if error.code() in _NOT_LET_IN:
            return BrokerUnreachable(f"not let in at {settings.bootstrap}: {error.str()}")
    if asked.done() and asked.exception() is None:
        return BrokerUnreachable(f"{settings.bootstrap} answers, but not to this request: {said}")
    told = [error.str() for error in heard if error.code() != KafkaError._ALL_BROKERS_DOWN]
    return BrokerUnreachable(f"no broker answered at {settings.bootstrap}: {[*told, said][0]}")


def _result(future: Future[Any]) -> Any:
    """What was answered: a result, or the error."""
    try:
        return future.result()
    except KafkaException as raised:
        return raised.args[0]


class Unstable(Exception):
    """A transaction that moves the offset is open; whether it commits is not known yet."""


class Cluster:
    """What the brokers say about themselves and their topics."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Kept in a field: an admin client that is dropped dies before its futures finish.
        self._admin = AdminClient(base(settings, "admin") | {"socket.timeout.ms": 10_000})
        self._of_thread = threading.local()

    @property
    def admin(self) -> AdminClient:
        """The client itself, for what is not wrapped here."""
        return self._admin

    def cluster_id(self, timeout_s: float = REQUEST_TIMEOUT_S) -> str:
        """The cluster's id, or `BrokerUnreachable`."""
        try:
            described = self._admin.describe_cluster(request_timeout=timeout_s).result()
        except KafkaException as error:
            raise unreachable(self._settings, error.args[0].str()) from None
        return str(described.cluster_id)

    def topics(self, names: list[str]) -> dict[str, TopicDescription]:
        """The descriptions of those topics that exist. Raises `KafkaException`."""
        found = {}
        for name, said in self.described(names).items():
            if not isinstance(said, KafkaError):
                found[name] = said
            elif said.name() != "UNKNOWN_TOPIC_OR_PART":
                raise KafkaException(said)
        return found

    def described(self, names: list[str]) -> dict[str, TopicDescription | KafkaError]:
        """What the brokers say of each of these topics, asked for all at once."""
        futures = self._admin.describe_topics(
            TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S
        )
        return {name: _result(future) for name, future in futures.items()}

    def config(self, topic: str) -> dict[str, str]:
        """A topic's configuration. Raises `KafkaException`."""
        said = self.configs([topic])[topic]
        if isinstance(said, KafkaError):
            raise KafkaException(said)
        return said

    def configs(self, topics: list[str]) -> dict[str, dict[str, str] | KafkaError]:
        """The configuration of each of these topics, asked for all at once."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        found: dict[str, dict[str, str] | KafkaError] = {}
        for resource, future in futures.items():
            said = _result(future)
            if not isinstance(said, KafkaError):
                said = {name: entry.value for name, entry in said.items()}
            found[resource.name] = said
        return found

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
        """A group's committed offset, None where it has none. Blocks, and may be called in threads.

        Raises `Unstable` while a transaction that moves it is open or nobody answers.

        Not by the group's member: calls of a consumer wait for one another, and one that another
        thread polls without a pause never lets it in. Nor by the admin client: what it asks of a
        coordinator that is away for longer than the request may take ends the process when the
        coordinator is back (an assertion in librdkafka 2.16).
        """
        reader = self._offset_reader(group)
        # Nobody else serves it, and its complaints would pile up: so now, and not after the answer.
        reader.poll(0)
        try:
            found = reader.committed([place], timeout=STABLE_WAIT_S)[0]
        except KafkaException as raised:
            if raised.args[0].code() in _NOT_STABLE:
                raise Unstable(f"no stable offset of {place.topic} yet") from None
            raise
        if found.error is not None:
            if found.error.code() in _NOT_STABLE:
                raise Unstable(f"an open transaction moves the offset of {place.topic}")
            raise KafkaException(found.error)
        self._offset_readers().pop(group).close()
        return int(found.offset) if found.offset >= 0 else None

    def _offset_reader(self, group: str) -> Consumer:
        """A consumer that never joins its group. One of each thread, so that none waits."""
        readers = self._offset_readers()
        if group not in readers:
            # Reading what is committed only makes it wait for transactions that are open.
            own = {"group.id": group, "isolation.level": "read_committed"}
            never = {"enable.auto.commit": False, "enable.auto.offset.store": False}
            readers[group] = Consumer(base(self._settings, "offsets") | own | never)
        return readers[group]

    def _offset_readers(self) -> dict[str, Consumer]:
        readers: dict[str, Consumer] = vars(self._of_thread).setdefault("readers", {})
        return readers

    def first_offset(self, place: TopicPartition) -> int:
        """The first offset a partition still holds."""
        return self._offset(place, _FIRST)

    def end_offset(self, place: TopicPartition) -> int:
        """The end of everything written, not of what is committed: a committed transaction
        becomes visible in one topic sooner than in another, and has to be waited for.
        """
        return self._offset(place, _END)

    def committed_spans(self, places: list[TopicPartition]) -> list[tuple[int, int]]:
        """First offset and end of what is committed, of each of these partitions of one topic."""
        first, end = (self._offsets(places, which, _COMMITTED) for which in (_FIRST, _END))
        return list(zip(first, end, strict=True))

    def _offset(self, place: TopicPartition, which: OffsetSpec) -> int:
        return self._offsets([place], which, _WRITTEN)[0]

    def _offsets(
        self, places: list[TopicPartition], which: OffsetSpec, isolation: IsolationLevel
    ) -> list[int]:
        try:
            return self._ask_offsets(places, which, isolation)
        except KafkaException:
            # The client asks the leader it knows of, under the epoch it knows, and does not look
            # again for minutes after both have changed.
            self._admin.list_topics(places[0].topic, timeout=REQUEST_TIMEOUT_S)
            return self._ask_offsets(places, which, isolation)

    def _ask_offsets(
        self, places: list[TopicPartition], which: OffsetSpec, isolation: IsolationLevel
    ) -> list[int]:
        futures = self._admin.list_offsets(
            dict.fromkeys(places, which),
            isolation_level=isolation,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return [int(futures[place].result().offset) for place in places]
