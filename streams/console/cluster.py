"""The commands about Kafka itself: `broker` runs a local one, `topics` makes what it must hold."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.console.options import add, dress, global_parameters
from streams.console.output import note, printable
from streams.console.session import Session

if TYPE_CHECKING:
    from deploy.broker import LocalCluster


class NodeCount(IntEnum):
    """How many nodes a local Kafka can have."""

    ONE = 1
    THREE = 3


def node_count(text: str) -> int:
    """1 or 3."""
    try:
        return NodeCount(int(text)).value
    except ValueError:
        raise typer.BadParameter("1 or 3") from None


DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Where data is kept. Default: .minutewheel.",
    ),
]  # fmt: skip
Nodes = Annotated[
    int,
    typer.Option("--nodes", metavar="1|3", parser=node_count, help="How many Kafka nodes."),
]
Port = Annotated[
    int, typer.Option("--port", min=1, max=65_535, help="The first node's port.", metavar="PORT")
]


def broker_start(
    session: Session, data_dir: DataDir = None, nodes: Nodes = 1, port: Port = 19092
) -> None:
    """Start the local Kafka and leave it running.

    Example: minutewheel broker start --nodes 3 --data-dir /var/tmp/kafka
    """
    from deploy.broker import LocalCluster

    directory = session.settings(data_dir=data_dir).data_dir
    cluster = LocalCluster(directory, nodes, port, on_progress=note)
    cluster.start(detached=True)
    _show_status(session, cluster)


def broker_stop(session: Session, data_dir: DataDir = None) -> None:
    """Stop the local Kafka of a data directory; its records stay.

    Example: minutewheel broker stop
    """
    from deploy.broker import LocalCluster

    cluster = LocalCluster.existing(session.settings(data_dir=data_dir).data_dir)
    cluster.stop()
    _show_status(session, cluster)


def broker_status(session: Session, data_dir: DataDir = None) -> None:
    """Show whether the local Kafka runs and answers; exit code 1 if it does not.

    Example: minutewheel broker status -o json
    """
    from deploy.broker import LocalCluster

    cluster = LocalCluster.existing(session.settings(data_dir=data_dir).data_dir)
    if not _show_status(session, cluster):
        raise typer.Exit(1)


def _show_status(session: Session, cluster: LocalCluster) -> bool:
    status = cluster.status()
    record = {
        "bootstrap": status.bootstrap,
        "running": status.running,
        "answers": status.answers,
        "cluster_id": status.cluster_id,
        "data_dir": str(status.data_dir),
        "nodes": [
            {"node": node.node, "port": node.port, "pid": node.pid, "log": str(node.log)}
            for node in status.nodes
        ],
    }
    session.output.show(record, _status_view)
    return status.running and status.answers


def _status_view(record: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table("node", "port", "process", "log", box=None, padding=(0, 2, 0, 0))
    for node in record["nodes"]:
        pid = "not running" if node["pid"] is None else str(node["pid"])
        table.add_row(str(node["node"]), str(node["port"]), pid, printable(node["log"]))
    state = "not running"
    if record["running"]:
        state = "running" if record["answers"] else "running, but does not answer"
    elif any(node["pid"] is not None for node in record["nodes"]):
        state = "running in part"
    return Group(f"Kafka at {record['bootstrap']}: {state}", table)


def topics_create(
    session: Session,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="Fixed for life. Default: 4.")
    ] = None,
    replication: Annotated[
        int | None, typer.Option("--replication", min=1, help="Copies of each. Default: 1.")
    ] = None,
) -> None:
    """Make those topics of the contract that are not there yet.

    Example: minutewheel topics create --partitions 12 --replication 3
    """
    from dataclasses import replace

    from streams import topics
    from streams.console import leaders
    from streams.kafka import Cluster

    settings = session.settings()
    settings = replace(
        settings,
        partitions=partitions or settings.partitions,
        replication=replication or settings.replication,
    )
    cluster = Cluster(settings)
    made = topics.create(cluster, settings)
    # So that the next command in a script finds them.
    leaders.wait_visible(cluster, session.clock)
    session.output.show_all([{"topic": name, "made": True} for name in made], _made_view)


def _made_view(made: list[dict[str, Any]]) -> str:
    if not made:
        return "all topics were there already; nothing was made"
    return "\n".join(f"made {each['topic']}" for each in made)


def topics_check(session: Session) -> None:
    """Compare the topics with the contract; exit code 1 and a line for each difference.

    Example: minutewheel topics check --prefix reminders.
    """
    from streams import topics
    from streams.kafka import Cluster

    settings = session.settings()
    found = topics.differences(Cluster(settings), settings)
    session.output.show_all([{"difference": each} for each in found], _differences_view)
    if found:
        raise typer.Exit(1)


def _differences_view(found: list[dict[str, Any]]) -> str:
    if not found:
        return "all topics are as they should be"
    return "\n".join(printable(each["difference"]) for each in found)


def _group(app: typer.Typer, name: str, doc: str) -> typer.Typer:
    """A command that has commands of its own."""
    group = typer.Typer(no_args_is_help=True)

    def root(context: typer.Context, **_: Any) -> None:
        """Global options only; they are read where the command runs."""

    dress(root, global_parameters(), doc)
    group.callback()(root)
    app.add_typer(group, name=name)
    return group


def register(app: typer.Typer) -> None:
    """Put these commands under their names."""
    broker = _group(
        app,
        "broker",
        "Run a real Kafka on this machine.\n\nExample: minutewheel broker start --nodes 3",
    )
    add(broker, "start", broker_start)
    add(broker, "stop", broker_stop)
    add(broker, "status", broker_status)
    topics = _group(
        app,
        "topics",
        "Make or check the topics.\n\nExample: minutewheel topics create --partitions 12",
    )
    add(topics, "create", topics_create)
    add(topics, "check", topics_check)
