"""What a node of the local Kafka is started with: its ports and its server.properties."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

HOST = "127.0.0.1"
DATA_NAME = "data"
PORT_DEFAULT = 19092
CONTROLLER_PORT_DISTANCE = 10
NODE_COUNTS = (1, 3)
HEAP_DEFAULT = {1: "1g", 3: "512m"}

# A record of 1 MiB, the largest legal command, must still fit when it has become a due event, a
# dead letter or a rejected record with headers.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
# Enough for a local load, few enough that 3 nodes create them in no time.
INTERNAL_PARTITIONS = 4
SESSION_TIMEOUT_MIN_MS = 6_000
# The log cleaner reserves this from the heap at start: 128 MiB by default, which is much of it.
CLEANER_BUFFER_BYTES = 32 * 1024 * 1024

_HEAP = re.compile(r"[1-9]\d*[kKmMgG]")


@dataclass(frozen=True, slots=True)
class Layout:
    """How many nodes, where they listen and how much memory each may take (as for -Xmx)."""

    nodes: int
    port: int
    controller_port: int
    heap: str

    def __post_init__(self) -> None:
        if self.nodes not in NODE_COUNTS:
            raise ValueError(f"nodes must be 1 or 3, not {self.nodes}")
        if _HEAP.fullmatch(self.heap) is None:
            raise ValueError(f"heap must be a size such as 512m or 1g, not {self.heap!r}")
        taken = [*self.ports(), *self.controller_ports()]
        if len(set(taken)) != len(taken) or not all(0 < port < 65_536 for port in taken):
            raise ValueError(f"ports must be different and between 1 and 65535, not {taken}")

    def ports(self) -> list[int]:
        """The clients' ports, in the nodes' order."""
        return [self.port + node - 1 for node in self.node_ids()]

    def controller_ports(self) -> list[int]:
        """The controllers' ports, in the nodes' order."""
        return [self.controller_port + node - 1 for node in self.node_ids()]

    def node_ids(self) -> range:
        """The nodes' numbers, from 1."""
        return range(1, self.nodes + 1)

    def bootstrap(self) -> str:
        """What clients are given as bootstrap.servers."""
        return ",".join(f"{HOST}:{port}" for port in self.ports())


def server_properties(layout: Layout, node: int, more: Mapping[str, str] | None = None) -> str:
    """The server.properties of one node, for a process that runs in the node's directory.

    What is in `more` wins over what stands here.
    """
    replicas = layout.nodes
    in_sync_min = 1 if replicas == 1 else 2
    quorum = ",".join(
        f"{number}@{HOST}:{port}"
        for number, port in zip(layout.node_ids(), layout.controller_ports(), strict=True)
    )
    listener = f"PLAINTEXT://{HOST}:{layout.ports()[node - 1]}"
    controller = f"CONTROLLER://{HOST}:{layout.controller_ports()[node - 1]}"
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": quorum,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener},{controller}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # Relative, since the file knows neither commas nor letters beyond Latin-1 in a path.
        "log.dirs": DATA_NAME,
        # Topics are created on purpose, with their settings, or not at all.
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync_min,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
        "log.cleaner.dedupe.buffer.size": CLEANER_BUFFER_BYTES,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": SESSION_TIMEOUT_MIN_MS,
        "group.consumer.min.session.timeout.ms": SESSION_TIMEOUT_MIN_MS,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync_min,
        "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync_min,
        "share.coordinator.state.topic.num.partitions": INTERNAL_PARTITIONS,
    }
    settings |= more or {}
    return "".join(f"{name}={value}\n" for name, value in settings.items())
