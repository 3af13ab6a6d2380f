"""The contract's topics: made, and compared with what they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from schemas.limits import RECORD_BYTES_MAX
from streams.kafka import REQUEST_TIMEOUT_S, Cluster
from streams.settings import Settings, Topics

DAY_MS: Final = 86_400_000
COMMAND_RECORD_BYTES_MAX: Final = 1_310_720
"""A largest legal command with its headers."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic as the contract has it."""

    name: str
    config: dict[str, str]


def view_changelog(settings: Settings) -> str:
    """The topic in which Faust keeps the replicated view of `pressure`; Faust's name for it."""
    return f"{settings.prefix}worker-pressure-view-changelog"


def own_topics(settings: Settings) -> list[str]:
    """Every topic that only minutewheel writes to."""
    return [*settings.topics.all(), view_changelog(settings)]


def wanted(topics: Topics) -> list[Wanted]:
    """All topics, in the contract's order."""

    def kept(days: int) -> dict[str, str]:
        return {"cleanup.policy": "delete", "retention.ms": str(days * DAY_MS)}

    compacted = {"cleanup.policy": "compact"}
    audited = compacted | {"min.compaction.lag.ms": str(7 * DAY_MS)}
    configs = {
        topics.commands: kept(7),
        topics.state: audited,
        topics.due: kept(7),
        topics.outcomes: kept(30),
        topics.replies: kept(1),
        topics.rejected: kept(30),
        topics.dead: kept(30),
        topics.suppressions: compacted,
        topics.pressure: compacted,
    }
    largest = dict.fromkeys(configs, RECORD_BYTES_MAX) | {topics.commands: COMMAND_RECORD_BYTES_MAX}
    return [
        Wanted(name, config | {"max.message.bytes": str(largest[name])})
        for name, config in configs.items()
    ]


def create(cluster: Cluster, settings: Settings) -> list[str]:
    """Make the topics that are not there; returns their names."""
    return create_these(cluster, settings, wanted(settings.topics))


def create_these(cluster: Cluster, settings: Settings, asked: list[Wanted]) -> list[str]:
    """The same for topics of any names."""
    there = cluster.topics([topic.name for topic in asked])
    new = [
        NewTopic(
            topic.name,
            num_partitions=settings.partitions,
            replication_factor=settings.replication,
            config=topic.config,
        )
        for topic in asked
        if topic.name not in there
    ]
    if not new:
        return []
    made = []
    for name, future in cluster.admin.create_topics(
        new, request_timeout=REQUEST_TIMEOUT_S, operation_timeout=REQUEST_TIMEOUT_S
    ).items():
        try:
            future.result()
            made.append(name)
        except KafkaException as error:
            # Another process may have made it between our look and our request.
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
    return made


def differences(cluster: Cluster, settings: Settings) -> list[str]:
    """How the topics differ from the contract, a sentence each; empty when they do not."""
    found = cluster.topics(settings.topics.all())
    said = [f"{name}: is missing" for name in settings.topics.all() if name not in found]
    counts = {name: len(topic.partitions) for name, topic in found.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        said.append(f"partition counts differ: {listed}")
    resources = {
        topic.name: ConfigResource(ResourceType.TOPIC, topic.name)
        for topic in wanted(settings.topics)
        if topic.name in found
    }
    if not resources:
        return said
    futures = cluster.admin.describe_configs(
        list(resources.values()), request_timeout=REQUEST_TIMEOUT_S
    )
    for topic in wanted(settings.topics):
        if topic.name not in resources:
            continue
        config = futures[resources[topic.name]].result()
        for key, value in topic.config.items():
            if config[key].value != value:
                said.append(f"{topic.name}: {key} is {config[key].value}, should be {value}")
    return said
