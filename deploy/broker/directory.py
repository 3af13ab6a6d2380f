"""The data directory: what lies where, whose it is, and who may start in it.

<data_dir>/kafka/cluster.json        what this is: cluster id, number of nodes, Kafka's version
<data_dir>/kafka/lock                held while nodes are started
<data_dir>/kafka/node-N/data         the records
<data_dir>/kafka/node-N/server.properties, node.pid, broker.log (Kafka's), broker.out (Java's)
"""

import base64
import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.broker.errors import (
    AlreadyRunningError,
    DataDirectoryError,
    ForeignDirectoryError,
)
from deploy.broker.files import NodeFiles
from deploy.broker.manifest import KAFKA_VERSION

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """What cluster.json says: the part that stays for life, and the ports of the last start."""

    format_version: int
    kafka_version: str
    cluster_id: str
    nodes: int
    port: int
    controller_port: int


class ClusterDirectory:
    """`<data_dir>/kafka`. Raises DataDirectoryError where it cannot be read or written."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.home = self.data_dir / "kafka"
        self.identity_path = self.home / "cluster.json"

    def node(self, number: int) -> NodeFiles:
        """The files of node `number`, from 1."""
        return NodeFiles(self.home / f"node-{number}")

    def identity(self) -> Identity | None:
        """What lies here, or None in a directory that was never used.

        Raises ForeignDirectoryError if it is not ours or of a form this version does not know.
        """
        try:
            stored = json.loads(self.identity_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._refuse_strangers()
            return None
        except ValueError as error:
            raise ForeignDirectoryError(f"{self.identity_path} is not JSON.") from error
        except OSError as error:
            raise DataDirectoryError(f"{self.home} cannot be read: {error}.") from error
        try:
            identity = Identity(**stored)
            known = identity.format_version == FORMAT_VERSION
            too_new = _version_key(identity.kafka_version) > _version_key(KAFKA_VERSION)
        except (TypeError, ValueError) as error:
            raise ForeignDirectoryError(f"{self.identity_path} has unknown fields.") from error
        if not known or too_new:
            raise ForeignDirectoryError(
                f"{self.home} was made by a newer minutewheel (Kafka {identity.kafka_version}, "
                f"format {identity.format_version}); this one has Kafka {KAFKA_VERSION}, format "
                f"{FORMAT_VERSION}. The newer one can still read it."
            )
        return identity

    def claim(self, nodes: int, port: int, controller_port: int) -> Identity:
        """Makes the directory this cluster's, or checks that it is, and notes the ports.

        Raises ForeignDirectoryError if it has another number of nodes or other nodes' data.
        """
        found = self.identity()
        if found is not None and found.nodes != nodes:
            raise ForeignDirectoryError(
                f"{self.home} belongs to a cluster of {found.nodes} node(s), not {nodes}: "
                f"start it with --nodes {found.nodes}."
            )
        identity = Identity(
            FORMAT_VERSION,
            found.kafka_version if found else KAFKA_VERSION,
            found.cluster_id if found else new_cluster_id(),
            nodes,
            port,
            controller_port,
        )
        for number in range(1, nodes + 1):
            self._check_node(number, identity.cluster_id)
        if identity != found:
            self._write(identity)
        return identity

    def is_formatted(self, number: int) -> bool:
        """Whether node `number` has been formatted."""
        return (self.node(number).data / "meta.properties").exists()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Held while nodes are started, so that two starts at once do not mix.

        Raises AlreadyRunningError if another process holds it.
        """
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            lock = (self.home / "lock").open("a")
        except OSError as error:
            raise DataDirectoryError(f"{self.home} cannot be written: {error}.") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadyRunningError(
                    f"Another start in {self.data_dir} is under way right now."
                ) from error
            yield

    def _refuse_strangers(self) -> None:
        if not self.home.exists():
            return
        if not self.home.is_dir():
            raise DataDirectoryError(f"{self.home} is not a directory.")
        strangers = sorted({entry.name for entry in self.home.iterdir()} - {"lock"})
        if strangers:
            raise ForeignDirectoryError(
                f"{self.home} has no cluster.json but holds {', '.join(strangers[:3])}."
            )

    def _check_node(self, number: int, cluster_id: str) -> None:
        path = self.node(number).data / "meta.properties"
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        stored = dict(line.split("=", 1) for line in lines if "=" in line)
        if stored.get("cluster.id") != cluster_id:
            raise ForeignDirectoryError(
                f"{path} is of cluster {stored.get('cluster.id')}, cluster.json of {cluster_id}."
            )
        if stored.get("node.id") != str(number):
            raise ForeignDirectoryError(
                f"{path} is of node {stored.get('node.id')}, its directory of node {number}."
            )

    def _write(self, identity: Identity) -> None:
        unfinished = self.identity_path.with_suffix(".new")
        try:
            unfinished.write_text(json.dumps(asdict(identity), indent=2) + "\n", encoding="utf-8")
            unfinished.rename(self.identity_path)
        except OSError as error:
            raise DataDirectoryError(f"{self.home} cannot be written: {error}.") from error


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 16 bytes, URL-safe base64. Never begins with "-"."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
