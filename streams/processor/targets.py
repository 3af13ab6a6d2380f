"""Whether a reminder's own topic would take its record, asked before it can break a turn."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from streams.clock import Clock
from streams.kafka import Cluster

KNOWN_FOR_S: Final = 60.0
REFUSED_FOR_S: Final = 5.0
ANY_SIZE: Final = 2**31
FINAL_ANSWERS: Final = {
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "INVALID_TOPIC_EXCEPTION",
    "UNKNOWN_TOPIC_OR_PART",
}
BATCH_OVERHEAD_BYTES: Final = 512
"""What a record batch adds at most around one record with a handful of headers."""

_NEVER: Final[tuple[float, int | str]] = (0.0, ANY_SIZE)


class Targets:
    """What is known of target topics, remembered for a while."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, tuple[float, int | str]] = {}

    def learn(self, topics: set[str]) -> None:
        """Ask about those that are not known, or not any more, all at once.

        Raises `KafkaException` while the brokers cannot be asked.
        """
        now_s = self._clock.monotonic_s()
        if all(now_s < self._known.get(topic, _NEVER)[0] for topic in topics):
            return
        self._known = {topic: said for topic, said in self._known.items() if now_s < said[0]}
        for topic, found in self._ask([*(topics - self._known.keys())]).items():
            kept_s = REFUSED_FOR_S if isinstance(found, str) else KNOWN_FOR_S
            self._known[topic] = (now_s + kept_s, found)

    def refusal(self, topic: str, size_bytes: int) -> str | None:
        """Why a topic would refuse a record of this size (key, value, headers), as far as known."""
        _, found = self._known.get(topic, _NEVER)
        if isinstance(found, str):
            return found
        return "MSG_SIZE_TOO_LARGE" if size_bytes + BATCH_OVERHEAD_BYTES > found else None

    def batch_bytes_max(self, topic: str) -> int:
        """The largest batch the topic takes, as far as it is known."""
        _, found = self._known.get(topic, _NEVER)
        return found if isinstance(found, int) else ANY_SIZE

    def _ask(self, topics: list[str]) -> dict[str, int | str]:
        """The largest record each topic takes, in bytes, or the name of the error it answers."""
        found: dict[str, int | str] = {}
        for topic, said in self._cluster.described(topics).items():
            if not isinstance(said, KafkaError):
                # Where nobody may ask for more, the broker's own answer to the record decides.
                found[topic] = ANY_SIZE
            elif said.name() in FINAL_ANSWERS:
                found[topic] = said.name()
            else:
                raise KafkaException(said)
        there = [topic for topic, said in found.items() if said == ANY_SIZE]
        for topic, config in self._cluster.configs(there).items() if there else ():
            if not isinstance(config, KafkaError):
                found[topic] = int(config["max.message.bytes"])
        return found
