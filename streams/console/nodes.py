"""Asking a running processor: which one owns an id, and what it says over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Final
from urllib.parse import quote, urlencode

from confluent_kafka import Consumer, KafkaError, TopicPartition

from schemas.routing import partition_of
from streams import kafka
from streams.clock import Clock
from streams.console.failures import Usage
from streams.console.leaders import bounds
from streams.console.output import printable
from streams.errors import NoNode, NotFound, StreamsError, TopicsMissing
from streams.settings import Settings

HTTP_TIMEOUT_S: Final = 10.0
RETRY_INTERVAL_S: Final = 0.5
READ_TIMEOUT_S: Final = 10.0
SAID_CHARACTERS_MAX: Final = 300

_never: Final = threading.Event()


class Unavailable(NoNode):
    """The processor answers, but not for this yet: it is restoring, or has just lost it."""


class Nodes:
    """The processors, found in the compacted `pressure` topic.

    With `address` (HOST:PORT) that node is asked about everything, and Kafka about nothing.
    """

    def __init__(self, settings: Settings, clock: Clock, address: str | None) -> None:
        self._settings = settings
        self._clock = clock
        self._address = address

    def reminder(self, reminder_id: str, timeout_s: float) -> bytes:
        """The reminder as JSON. Raises `NotFound`, `NoNode`."""
        path = f"/v1/reminders/{quote(reminder_id, safe='')}"

        def once() -> bytes:
            address = self._address or self._owner_of(reminder_id)
            unknown = f"there is no reminder {reminder_id!r}"
            return ask(address, path, unknown, self._settings.http_token)

        return self._until(once, timeout_s)

    def due(self, query: dict[str, str], timeout_s: float) -> bytes:
        """What is owed, as JSON, from any node that answers. Raises `NoNode`."""
        path = f"/v1/due?{urlencode(query)}"

        def once() -> bytes:
            failure: NoNode | None = None
            for address in [self._address] if self._address else self._owners():
                try:
                    unknown = "this node does not tell what is due"
                    return ask(address, path, unknown, self._settings.http_token)
                except NoNode as error:
                    failure = error
            raise failure or self._nobody()

        return self._until(once, timeout_s)

    def _until(self, once: Callable[[], bytes], timeout_s: float) -> bytes:
        """Ask, and again while the node says that it will soon know."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            try:
                return once()
            except Unavailable:
                if self._clock.monotonic_s() >= deadline_s:
                    raise
                _never.wait(RETRY_INTERVAL_S)

    def _owner_of(self, reminder_id: str) -> str:
        count = self._partitions()
        number = partition_of(reminder_id, count)
        owner = self._read([number]).get(number)
        if owner is None:
            raise self._nobody()
        return owner

    def _owners(self) -> list[str]:
        """The addresses of all owners, each once."""
        return list(dict.fromkeys(self._read(range(self._partitions())).values()))

    def _nobody(self) -> NoNode:
        return NoNode(
            f"no processor of {self._settings.prefix} has ever reported at "
            f"{self._settings.bootstrap}: start `minutewheel worker`"
        )

    def _partitions(self) -> int:
        topic = self._settings.topics.pressure
        found = kafka.Cluster(self._settings).topics([topic])
        if topic not in found:
            raise TopicsMissing(
                f"no topic {topic} at {self._settings.bootstrap}: run `minutewheel topics create`"
            )
        return len(found[topic].partitions)

    def _read(self, numbers: range | list[int]) -> dict[int, str]:
        """The last known owner of each partition."""
        topic = self._settings.topics.pressure
        cluster = kafka.Cluster(self._settings)
        with closing(kafka.reader(self._settings, "pressure")) as reader:
            places = []
            for number in numbers:
                place = TopicPartition(topic, number)
                low, high = bounds(cluster, place, self._clock)
                if high > low:
                    # All records of a partition have the same key, so the last one is the truth.
                    place.offset = high - 1
                    places.append(place)
            reader.assign(places)
            return self._owners_read(reader, len(places))

    def _owners_read(self, reader: Consumer, partitions: int) -> dict[int, str]:
        owners: dict[int, str] = {}
        ended: set[int | None] = set()
        deadline_s = self._clock.monotonic_s() + READ_TIMEOUT_S
        while len(ended) < partitions and self._clock.monotonic_s() < deadline_s:
            message = reader.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                continue
            number, value = message.partition(), message.value()
            if number is not None and value is not None:
                owner = json.loads(value).get("owner")
                if isinstance(owner, str):
                    owners[number] = owner
        return owners


def ask(address: str, path: str, unknown: str, token: str = "") -> bytes:
    """The body that a node answers with.

    Raises `NotFound` saying `unknown` on 404, `Unavailable` on 503, `NoNode` if it is not there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise NoNode(f"{address!r} is no HOST:PORT")
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoNode(f"no processor answers at {address}: {error}") from None
    finally:
        connection.close()
    if response.status == http.HTTPStatus.OK:
        return body
    said = _said(body)
    if response.status == http.HTTPStatus.NOT_FOUND:
        raise NotFound(unknown)
    if response.status == http.HTTPStatus.UNPROCESSABLE_ENTITY:
        raise Usage(said)
    if response.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
        raise Unavailable(f"the processor at {address} cannot answer yet: {said}")
    raise StreamsError(f"{address} answered {response.status}: {said}")


def _said(body: bytes) -> str:
    """What the body of an error says, as one short line."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, TypeError, KeyError):
        message = body[:SAID_CHARACTERS_MAX].decode(errors="replace").strip()
    return printable(message)[:SAID_CHARACTERS_MAX]
