"""What can be told about a cluster at a moment."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: its number, port, process id (None if it does not run) and log."""

    node: int
    port: int
    pid: int | None
    log: Path


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster: `answers` says whether clients get metadata right now."""

    bootstrap: str
    data_dir: Path
    cluster_id: str | None
    nodes: tuple[NodeStatus, ...]
    answers: bool

    @property
    def running(self) -> bool:
        """Whether every node's process lives."""
        return all(node.pid is not None for node in self.nodes)
