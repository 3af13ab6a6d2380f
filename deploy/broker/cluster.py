"""The local Kafka as a whole: start, stop, status, and the death of single nodes for tests."""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.broker import probe, process
from deploy.broker.directory import ClusterDirectory
from deploy.broker.entry import refuse_second_start, refuse_taken_ports
from deploy.broker.errors import (
    AlreadyRunningError,
    NoClusterError,
    StopFailedError,
)
from deploy.broker.jars import Progress, class_path, silent
from deploy.broker.java import find_java
from deploy.broker.node import Node, Runtime
from deploy.broker.readiness import METADATA_TIMEOUT_S, wait_ready
from deploy.broker.settings import (
    CONTROLLER_PORT_DISTANCE,
    HEAP_DEFAULT,
    PORT_DEFAULT,
    Layout,
)
from deploy.broker.status import ClusterStatus, NodeStatus

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0


class LocalCluster:
    """A real Kafka on the loopback address, of 1 or 3 nodes, kept under `data_dir`/kafka.

    Nothing is touched before `start`. Another LocalCluster on the same directory, also in another
    process, sees and stops the same nodes. `heap` is a size as Java takes it ("1g"), for each node.
    `properties` are Kafka's own server properties, which win over ours: tests add listeners with
    them that ask for a certificate or a password. What is waited for is the plain one.
    Raises ValueError on an impossible number of nodes, port or heap.
    """

    def __init__(
        self,
        data_dir: Path | str,
        nodes: int = 1,
        port: int = PORT_DEFAULT,
        *,
        controller_port: int | None = None,
        heap: str | None = None,
        properties: Mapping[str, str] | None = None,
        on_progress: Progress = silent,
    ) -> None:
        self.layout = Layout(
            nodes,
            port,
            controller_port or port + CONTROLLER_PORT_DISTANCE,
            heap or HEAP_DEFAULT.get(nodes, "1g"),
        )
        self.directory = ClusterDirectory(Path(data_dir))
        self._properties = properties or {}
        self._on_progress = on_progress
        self._nodes = {
            number: Node(number, self.directory.node(number)) for number in self.layout.node_ids()
        }

    @classmethod
    def existing(cls, data_dir: Path | str) -> Self:
        """The cluster that was last started in this directory, with its nodes and ports.

        Raises NoClusterError if there never was one, ForeignDirectoryError if it is not ours.
        """
        identity = ClusterDirectory(Path(data_dir)).identity()
        if identity is None:
            raise NoClusterError(f"{data_dir} holds no local Kafka.")
        return cls(
            data_dir, identity.nodes, identity.port, controller_port=identity.controller_port
        )

    @property
    def bootstrap(self) -> str:
        """What clients are given as bootstrap.servers."""
        return self.layout.bootstrap()

    def start(self, *, detached: bool = False, timeout_s: float = START_TIMEOUT_S) -> str:
        """Starts all nodes, waits until clients are answered, returns the bootstrap servers.

        Attached (the default), the nodes are stopped when this program ends, however it ends.
        Detached, they go on until somebody calls `stop`. A start that fails leaves nothing running.
        Raises a BrokerError; `timeout_s` bounds the wait after the jars are there.
        """
        with self.directory.starting():
            layout = self.layout
            refuse_second_start(self.directory, layout)
            identity = self.directory.claim(layout.nodes, layout.port, layout.controller_port)
            refuse_taken_ports([*layout.ports(), *layout.controller_ports()])
            runtime = self._runtime()
            try:
                for node in self._nodes.values():
                    self._launch(node, runtime, identity.cluster_id, guarded=not detached)
                wait_ready(self._nodes, layout, identity.cluster_id, timeout_s)
            except BaseException:
                self.stop()
                raise
        if detached:
            for node in self._nodes.values():
                node.release()
        return self.bootstrap

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops every node that runs, whoever started it: SIGTERM, then SIGKILL after `timeout_s`.

        Harmless if nothing runs. Raises StopFailedError if a process survives even that.
        """
        deadline = time.monotonic() + timeout_s
        running = {number: pid for number, pid in self.pids().items() if pid is not None}
        for number, pid in running.items():
            self._signal(number, pid, signal.SIGTERM)
        for number, pid in running.items():
            properties = self._nodes[number].files.properties
            left_s = deadline - time.monotonic()
            if not process.wait_gone(pid, properties, left_s):
                self.kill_node(number)
        for node in self._nodes.values():
            node.reap()

    def kill_node(self, number: int) -> None:
        """SIGKILLs one node, as a crash would. Harmless if it does not run."""
        node = self._nodes[number]
        if (pid := node.pid()) is not None:
            self._signal(number, pid, signal.SIGKILL)
            if not process.wait_gone(pid, node.files.properties, process.KILL_TIMEOUT_S):
                raise StopFailedError(f"Node {number} (process {pid}) cannot be ended.")
        node.reap()

    def start_node(self, number: int, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts one node of a cluster that was started before, attached, and waits for it.

        Raises AlreadyRunningError if it runs, NoClusterError before the first `start`.
        """
        with self.directory.starting():
            identity = self.directory.identity()
            if identity is None:
                raise NoClusterError(f"{self.directory.data_dir} holds no local Kafka.")
            node = self._nodes[number]
            if (pid := node.pid()) is not None:
                raise AlreadyRunningError(f"Node {number} runs as process {pid}.")
            layout = self.layout
            refuse_taken_ports([layout.ports()[number - 1], layout.controller_ports()[number - 1]])
            self._launch(node, self._runtime(), identity.cluster_id, guarded=True)
            wait_ready(self._nodes, layout, identity.cluster_id, timeout_s)

    def wait_orphans_gone(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Waits for attached nodes to end. Only for one who knows that their starter has ended.

        Their guards are ending them then. Detached nodes are not waited for.
        """
        deadline = time.monotonic() + timeout_s
        for number, pid in self.pids().items():
            if pid is not None and process.is_attached(pid):
                properties = self._nodes[number].files.properties
                process.wait_gone(pid, properties, deadline - time.monotonic())

    def pids(self) -> dict[int, int | None]:
        """The process id of each node, None where it does not run."""
        return {number: node.pid() for number, node in self._nodes.items()}

    def status(self) -> ClusterStatus:
        """What runs and whether it answers. Raises ForeignDirectoryError."""
        identity = self.directory.identity()
        nodes = tuple(
            NodeStatus(number, self.layout.ports()[number - 1], node.pid(), node.files.log)
            for number, node in self._nodes.items()
        )
        alive = any(node.pid is not None for node in nodes)
        answer = probe.ask(self.bootstrap, METADATA_TIMEOUT_S) if alive else None
        cluster_id = identity.cluster_id if identity else None
        answers = answer is not None and answer.cluster_id == cluster_id
        return ClusterStatus(self.bootstrap, self.directory.data_dir, cluster_id, nodes, answers)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _runtime(self) -> Runtime:
        return Runtime(find_java(), class_path(on_progress=self._on_progress))

    def _launch(self, node: Node, runtime: Runtime, cluster_id: str, *, guarded: bool) -> None:
        node.prepare(self.layout, self._properties)
        if not self.directory.is_formatted(node.number):
            self._on_progress(f"Formatting node {node.number}")
            node.format(runtime, cluster_id)
        self._on_progress(f"Starting node {node.number}")
        node.spawn(runtime, self.layout.heap, guarded=guarded)

    def _signal(self, number: int, pid: int, sent: signal.Signals) -> None:
        try:
            process.send(pid, self._nodes[number].files.properties, sent)
        except PermissionError as error:
            raise StopFailedError(
                f"Node {number} (process {pid}) belongs to another user."
            ) from error
