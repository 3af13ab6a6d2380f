"""The local Kafka with real processes: what a user does with it, and what goes wrong."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.broker import (
    AlreadyRunningError,
    ForeignDirectoryError,
    LocalCluster,
    PortTakenError,
    StartFailedError,
    StartTimeoutError,
    process,
    run_tool,
)
from tests.kafka import RunningKafka, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
ANSWER_TIMEOUT_S = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of one node that is not started yet, and is stopped at the end."""
    # A path as people have them: with a space, a comma and letters beyond Latin-1.
    data_dir = tmp_path / "Zoë's data, 数据"
    cluster = LocalCluster(data_dir, port=free_port(), heap="512m")
    yield cluster
    cluster.stop()


def create_topic(bootstrap: str, replicas: int = 1) -> str:
    topic = f"topic-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, 1, replicas)])
    created[topic].result(ANSWER_TIMEOUT_S)
    return topic


def produce_in_transaction(bootstrap: str, topic: str, values: list[str], commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id-{topic}"})
    producer.init_transactions(ANSWER_TIMEOUT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    if commit:
        producer.commit_transaction(ANSWER_TIMEOUT_S)
    else:
        producer.flush(ANSWER_TIMEOUT_S)
        producer.abort_transaction(ANSWER_TIMEOUT_S)


def read(bootstrap: str, topic: str, count: int) -> list[str]:
    """The first `count` values a read_committed reader sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    values: list[str] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
        return len(values) >= count

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        wait_until(enough, ANSWER_TIMEOUT_S, f"{count} records in {topic}")
    finally:
        consumer.close()
    return values


def test_records_and_transactions_survive_a_restart_on_another_port(cluster: LocalCluster) -> None:
    cluster.start()
    topic = create_topic(cluster.bootstrap)
    produce_in_transaction(cluster.bootstrap, topic, ["aborted"], commit=False)
    produce_in_transaction(cluster.bootstrap, topic, ["one", "two"], commit=True)
    assert read(cluster.bootstrap, topic, 2) == ["one", "two"]
    assert cluster.status().answers
    cluster.stop()
    assert not cluster.status().running

    with LocalCluster(cluster.directory.data_dir, port=free_port(), heap="512m") as again:
        assert again.bootstrap != cluster.bootstrap
        assert read(again.bootstrap, topic, 2) == ["one", "two"]


def test_a_second_start_is_refused_and_says_where_the_first_runs(cluster: LocalCluster) -> None:
    cluster.start()
    with pytest.raises(AlreadyRunningError, match=cluster.bootstrap):
        LocalCluster(cluster.directory.data_dir, port=free_port()).start()
    with pytest.raises(AlreadyRunningError, match=f"process {cluster.pids()[1]}"):
        LocalCluster(cluster.directory.data_dir, nodes=3, port=free_port(3)).start()
    assert cluster.status().answers


def test_a_port_taken_by_a_kafka_is_refused_and_its_data_kept(
    kafka: RunningKafka, tmp_path: Path
) -> None:
    port = int(kafka.bootstrap.split(",")[0].rsplit(":", 1)[1])
    with pytest.raises(PortTakenError, match=rf"{port} on 127\.0\.0\.1 is taken by a Kafka"):
        LocalCluster(tmp_path, port=port).start()


def test_a_port_taken_by_something_else_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        cluster = LocalCluster(tmp_path, port=free_port(), controller_port=port)
        with pytest.raises(PortTakenError, match=f"{port} .* not a Kafka"):
            cluster.start()
    assert not cluster.status().running


def test_a_node_that_dies_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, port=free_port(), heap="1k")
    with pytest.raises(StartFailedError, match=r"(?s)Node 1 ended with code 1.*heap.*--heap"):
        cluster.start()
    assert cluster.pids() == {1: None}


def test_a_start_that_takes_too_long_leaves_nothing_running(cluster: LocalCluster) -> None:
    with pytest.raises(StartTimeoutError, match=r"broker\.log"):
        cluster.start(timeout_s=0)
    assert cluster.pids() == {1: None}


def test_another_number_of_nodes_is_refused(cluster: LocalCluster) -> None:
    cluster.start()
    cluster.stop()
    with pytest.raises(ForeignDirectoryError, match="--nodes 1"):
        LocalCluster(cluster.directory.data_dir, nodes=3, port=free_port(3)).start()


def run_python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", f"import sys\nfrom deploy.broker import *\n{program}", *arguments]


def test_detached_it_outlives_its_starter_and_another_process_stops_it(tmp_path: Path) -> None:
    program = "print(LocalCluster(sys.argv[1], port=int(sys.argv[2])).start(detached=True))"
    port = free_port()
    command = run_python(program, str(tmp_path), str(port))
    subprocess.run(command, cwd=ROOT, check=True, timeout=90)
    cluster = LocalCluster.existing(tmp_path)
    try:
        assert cluster.status().answers
        command = run_python("LocalCluster.existing(sys.argv[1]).stop()", str(tmp_path))
        subprocess.run(command, cwd=ROOT, check=True, timeout=60)
        assert not cluster.status().running
    finally:
        cluster.stop()


def test_attached_it_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    program = "LocalCluster(sys.argv[1], port=int(sys.argv[2])).start(); print('up', flush=True)\n"
    program += "sys.stdin.read()"
    command = run_python(program, str(tmp_path), str(free_port()))
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"
        cluster = LocalCluster.existing(tmp_path)
        try:
            assert cluster.status().running
            pid = cluster.pids()[1]
            assert pid is not None
            assert os.getsid(pid) != os.getsid(starter.pid), "Ctrl-C would reach the node"
            starter.send_signal(signal.SIGKILL)
            wait_until(lambda: cluster.pids()[1] is None, 30, "the node has ended too")
        finally:
            cluster.stop()
    properties = cluster.directory.node(1).properties
    assert process.find_node(properties) is None


def test_kafkas_own_tools_run(kafka: RunningKafka) -> None:
    topic = create_topic(kafka.bootstrap)
    server = ("--bootstrap-server", kafka.bootstrap)
    produced = run_tool(
        "kafka-console-producer", *server, "--topic", topic, text_in="first\nsecond\n"
    )
    assert produced.returncode == 0, produced.stderr
    consumed = run_tool(
        "kafka-console-consumer", *server, "--topic", topic, "--group", topic,
        "--from-beginning", "--max-messages", "2",
    )  # fmt: skip
    assert consumed.stdout.split() == ["first", "second"]
    reset = run_tool(
        "kafka-consumer-groups", *server, "--group", topic, "--topic", topic,
        "--reset-offsets", "--to-earliest", "--execute",
    )  # fmt: skip
    assert reset.returncode == 0, reset.stdout + reset.stderr
    assert topic in reset.stdout


def test_three_nodes_go_on_without_one(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=3, port=free_port(3), heap="256m")
    try:
        bootstrap = cluster.start()
        topic = create_topic(bootstrap, replicas=3)
        produce_in_transaction(bootstrap, topic, ["before"], commit=True)
        cluster.kill_node(2)
        assert [node.pid is None for node in cluster.status().nodes] == [False, True, False]
        produce_in_transaction(bootstrap, topic, ["without"], commit=True)
        cluster.start_node(2)
        assert cluster.status().running
        produce_in_transaction(bootstrap, topic, ["after"], commit=True)
        assert read(bootstrap, topic, 3) == ["before", "without", "after"]
    finally:
        cluster.stop()
