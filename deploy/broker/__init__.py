"""The local Kafka: a real one, from Python alone. See deploy/README.md."""

from deploy.broker.cluster import LocalCluster
from deploy.broker.errors import (
    AlreadyRunningError,
    BrokerError,
    CacheError,
    DataDirectoryError,
    DigestMismatchError,
    DownloadError,
    ForeignDirectoryError,
    JavaNotFoundError,
    NoClusterError,
    PortTakenError,
    StartFailedError,
    StartTimeoutError,
    StopFailedError,
    UnknownToolError,
)
from deploy.broker.settings import PORT_DEFAULT
from deploy.broker.status import ClusterStatus, NodeStatus
from deploy.broker.tools import TOOL_CLASSES, run_tool, tool_command

__all__ = [
    "PORT_DEFAULT",
    "TOOL_CLASSES",
    "AlreadyRunningError",
    "BrokerError",
    "CacheError",
    "ClusterStatus",
    "DataDirectoryError",
    "DigestMismatchError",
    "DownloadError",
    "ForeignDirectoryError",
    "JavaNotFoundError",
    "LocalCluster",
    "NoClusterError",
    "NodeStatus",
    "PortTakenError",
    "StartFailedError",
    "StartTimeoutError",
    "StopFailedError",
    "UnknownToolError",
    "run_tool",
    "tool_command",
]
