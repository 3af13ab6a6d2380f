"""Whether a reminder's own topic would take its record, asked before it can break a turn."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from streams.clock import Clock
from streams.kafka import Cluster

KNOWN_FOR_S: Final = 60.0
REFUSED_FOR_S: Final = 5.0
ANY_SIZE: Final = 2**31
FINAL_ANSWERS: Final = {"TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION", "INVALID_TOPIC_EXCEPTION"}
BATCH_OVERHEAD_BYTES: Final = 512
"""What a record batch adds at most around one record with a handful of headers."""


class Targets:
    """What is known of target topics, remembered for a while."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, tuple[float, int | str]] = {}

    def refusal(self, topic: str, size_bytes: int) -> str | None:
        """Why the topic would refuse a record of this size (key, value, headers), or None.

        Raises `KafkaException` while the brokers cannot be asked.
        """
        until_s, found = self._known.get(topic, (0.0, ""))
        now_s = self._clock.monotonic_s()
        if now_s >= until_s:
            found = self._ask(topic)
            kept_s = REFUSED_FOR_S if isinstance(found, str) else KNOWN_FOR_S
            self._known[topic] = (now_s + kept_s, found)
        if isinstance(found, str):
            return found
        return "MSG_SIZE_TOO_LARGE" if size_bytes + BATCH_OVERHEAD_BYTES > found else None

    def batch_bytes_max(self, topic: str) -> int:
        """The largest batch the topic takes, as far as it is known."""
        _, found = self._known.get(topic, (0.0, ANY_SIZE))
        return found if isinstance(found, int) else ANY_SIZE

    def _ask(self, topic: str) -> int | str:
        """The largest record the topic takes, in bytes, or the name of the error it answers."""
        try:
            if not self._cluster.topics([topic]):
                return "UNKNOWN_TOPIC_OR_PART"
        except KafkaException as raised:
            error = raised.args[0]
            if error.name() not in FINAL_ANSWERS:
                raise
            return str(error.name())
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            configured = self._cluster.admin.describe_configs([resource])[resource].result()
        except KafkaException:
            # Not allowed to ask: the broker's own answer to the record decides.
            return ANY_SIZE
        return int(configured["max.message.bytes"].value)
