"""The data directory: whose it is, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.broker import (
    AlreadyRunningError,
    DataDirectoryError,
    ForeignDirectoryError,
    LocalCluster,
    NoClusterError,
    UnknownToolError,
    process,
)
from deploy.broker.directory import ClusterDirectory, new_cluster_id
from deploy.broker.settings import Layout, server_properties
from deploy.broker.tools import tool_class
from tests.waiting import wait_until


def claimed(data_dir: Path, nodes: int = 1) -> ClusterDirectory:
    directory = ClusterDirectory(data_dir)
    with directory.starting():
        directory.claim(nodes, 19192, 19202)
    return directory


def test_a_new_directory_is_claimed_and_stays_the_same_cluster(tmp_path: Path) -> None:
    first = claimed(tmp_path).identity()
    assert first is not None
    again = ClusterDirectory(tmp_path).claim(1, 19292, 19302)
    assert again.cluster_id == first.cluster_id
    assert LocalCluster.existing(tmp_path).bootstrap == "127.0.0.1:19292"


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    directory = claimed(tmp_path, nodes=3)
    with pytest.raises(ForeignDirectoryError, match="start it with --nodes 3"):
        directory.claim(1, 19192, 19202)


@pytest.mark.parametrize(
    "change", [{"format_version": 2}, {"kafka_version": "99.0.0"}, {"colour": "red"}]
)
def test_a_directory_of_another_version_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    directory = claimed(tmp_path)
    stored = json.loads(directory.identity_path.read_text())
    directory.identity_path.write_text(json.dumps(stored | change))
    with pytest.raises(ForeignDirectoryError, match=r"--data-dir"):
        directory.identity()


def test_a_strangers_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kafka" / "wallpapers").mkdir(parents=True)
    with pytest.raises(ForeignDirectoryError, match="holds wallpapers"):
        ClusterDirectory(tmp_path).identity()


@pytest.mark.parametrize(
    "stored", ["cluster.id=another\nnode.id=1\n", "cluster.id={id}\nnode.id=2\n"]
)
def test_data_of_another_cluster_or_node_is_refused(tmp_path: Path, stored: str) -> None:
    directory = claimed(tmp_path)
    identity = directory.identity()
    assert identity is not None
    data = directory.node(1).data
    data.mkdir(parents=True)
    (data / "meta.properties").write_text(stored.format(id=identity.cluster_id))
    with pytest.raises(ForeignDirectoryError, match=r"meta\.properties is of"):
        directory.claim(1, 19192, 19202)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryError, match=r"file/kafka cannot be"):
        LocalCluster(tmp_path / "file", port=19192).start()


def test_a_start_under_way_refuses_another(tmp_path: Path) -> None:
    with (
        ClusterDirectory(tmp_path).starting(),
        pytest.raises(AlreadyRunningError, match="under way"),
    ):
        LocalCluster(tmp_path, port=19192).start()


def test_nothing_to_stop_is_said_or_harmless(tmp_path: Path) -> None:
    with pytest.raises(NoClusterError):
        LocalCluster.existing(tmp_path)
    cluster = LocalCluster(tmp_path, port=19192)
    cluster.stop()
    assert not cluster.status().running
    assert list(tmp_path.iterdir()) == []


def test_a_stale_pid_file_is_not_believed(tmp_path: Path) -> None:
    directory = claimed(tmp_path)
    files = directory.node(1)
    files.home.mkdir()
    for stale in (str(os.getpid()), "999999999", "nonsense", ""):
        files.pid.write_text(stale)
        assert process.find_node(files.properties, files.pid) is None
    LocalCluster(tmp_path, port=19192).stop()
    assert not files.pid.exists()


def test_a_node_is_found_without_its_pid_file_and_ended(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    # Any process whose command line ends like a node's is one, as far as the system can tell.
    waits = "import signal; signal.pause()"
    command = [sys.executable, "-c", waits, process.MAIN_CLASS, str(properties)]
    with subprocess.Popen(command) as child:
        wait_until(lambda: process.is_node(child.pid, properties), 10, "the process has begun")
        assert process.find_node(properties) == child.pid
        assert process.find_node(tmp_path / "other.properties") is None
        assert process.terminate(child.pid, properties, timeout_s=10)
    assert process.find_node(properties) is None


@pytest.mark.parametrize(
    ("nodes", "port", "heap"), [(2, 19192, "1g"), (1, 0, "1g"), (3, 65_530, "1g"), (1, 19192, "1")]
)
def test_impossible_layouts_are_refused(nodes: int, port: int, heap: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Layout(nodes, port, port + 10, heap)


def test_three_nodes_replicate_and_listen_on_loopback_only() -> None:
    text = server_properties(Layout(3, 19192, 19202, "512m"), 2)
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:19193,CONTROLLER://127.0.0.1:19203"
    assert settings["offsets.topic.replication.factor"] == "3"
    assert settings["transaction.state.log.min.isr"] == "2"
    assert settings["controller.quorum.voters"].count("127.0.0.1") == 3


def test_cluster_ids_are_as_kafka_wants_them() -> None:
    ids = {new_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


def test_tools_go_by_their_scripts_names() -> None:
    assert tool_class("kafka-topics.sh") == tool_class("kafka-topics")
    with pytest.raises(UnknownToolError, match="kafka-nonsense"):
        tool_class("kafka-nonsense")
