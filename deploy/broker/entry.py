"""What is checked before a start: nothing runs here yet, and the ports are free."""

from collections.abc import Iterable

from deploy.broker import probe
from deploy.broker.directory import ClusterDirectory
from deploy.broker.errors import AlreadyRunningError, PortTakenError
from deploy.broker.process import find_node
from deploy.broker.settings import HOST, NODE_COUNTS, Layout


def refuse_second_start(directory: ClusterDirectory, layout: Layout) -> None:
    """Raises AlreadyRunningError if any node of this directory runs, whoever started it."""
    running = []
    # Not only the nodes that are asked for: the running ones may be more.
    for number in range(1, max(NODE_COUNTS) + 1):
        files = directory.node(number)
        if (pid := find_node(files.properties, files.pid)) is not None:
            running.append(f"node {number} is process {pid}")
    if running:
        identity = directory.identity()
        port = identity.port if identity else layout.port
        raise AlreadyRunningError(
            f"A Kafka runs in {directory.data_dir} at {HOST}:{port} ({', '.join(running)})."
        )


def refuse_taken_ports(ports: Iterable[int]) -> None:
    """Raises PortTakenError for the first port that something listens on, and says what."""
    for port in ports:
        if not probe.is_free(port):
            owner = probe.describe_owner(port)
            raise PortTakenError(f"Port {port} on {HOST} is taken by {owner}.")
