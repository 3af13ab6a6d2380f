"""Whether a reminder's own topic would take its record, asked before it can break a turn."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from streams.clock import Clock
from streams.kafka import Cluster

KNOWN_FOR_S: Final = 60.0
MISSING_FOR_S: Final = 5.0
BATCH_OVERHEAD_BYTES: Final = 512
"""What a record batch adds at most around one record with a handful of headers."""


class Targets:
    """Existence and size limit of target topics, remembered for a while."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, tuple[float, int | None]] = {}

    def refusal(self, topic: str, size_bytes: int) -> str | None:
        """Why the topic would refuse a record of this size (key, value, headers), or None."""
        bytes_max = self._bytes_max(topic)
        if bytes_max is None:
            return "UNKNOWN_TOPIC_OR_PART"
        if size_bytes + BATCH_OVERHEAD_BYTES > bytes_max:
            return "MSG_SIZE_TOO_LARGE"
        return None

    def _bytes_max(self, topic: str) -> int | None:
        until, bytes_max = self._known.get(topic, (0.0, None))
        now_s = self._clock.monotonic_s()
        if now_s >= until:
            bytes_max = self._ask(topic)
            kept_s = MISSING_FOR_S if bytes_max is None else KNOWN_FOR_S
            self._known[topic] = (now_s + kept_s, bytes_max)
        return bytes_max

    def _ask(self, topic: str) -> int | None:
        if not self._cluster.topics([topic]):
            return None
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            configured = self._cluster.admin.describe_configs([resource])[resource].result()
        except KafkaException:
            # Not allowed to ask: the broker's own answer to the record decides.
            return 2**31
        return int(configured["max.message.bytes"].value)
