"""Runs Kafka's own console tools from the same jars, under the names of its shell scripts."""

import subprocess
from pathlib import Path

from deploy.broker.errors import UnknownToolError
from deploy.broker.jars import Progress, class_path, silent
from deploy.broker.java import find_java

TOOL_CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}

# A tool lives for a second or two, so the first compiler and the simplest collector are best:
# formatting a directory takes 0.6 s with them and 1.0 s without.
TOOL_FLAGS = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
LOG_CONFIGURATION = Path(__file__).with_name("log4j2-tools.properties")


def tool_class(name: str) -> str:
    """The main class behind a script's name (with or without .sh). Raises UnknownToolError."""
    try:
        return TOOL_CLASSES[name.removesuffix(".sh")]
    except KeyError:
        raise UnknownToolError(f"Kafka has no tool {name!r} here.") from None


def tool_command(name: str, *arguments: str, on_progress: Progress = silent) -> list[str]:
    """The command line that runs a tool, e.g. `tool_command("kafka-topics", "--list", …)`.

    Raises UnknownToolError, JavaNotFoundError, and what fetching the jars may raise.
    """
    main_class = tool_class(name)
    java = find_java()
    return [
        str(java.executable),
        *java.flags(),
        *TOOL_FLAGS,
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
        "-cp",
        class_path(on_progress=on_progress),
        main_class,
        *arguments,
    ]


def run_tool(
    name: str, *arguments: str, timeout_s: float = 60.0, text_in: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a tool to its end and returns its exit code and output, both as text.

    Raises what `tool_command` raises, and subprocess.TimeoutExpired.
    """
    return subprocess.run(
        tool_command(name, *arguments),
        input="" if text_in is None else text_in,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
