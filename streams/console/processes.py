"""The commands that keep running: up, worker, deliver."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from typing import Annotated, Any, Final

import typer

from streams.console.cluster import DataDir, Nodes, Port
from streams.console.failures import INTERRUPTED
from streams.console.options import add
from streams.console.output import note
from streams.console.session import Session

PARENT_GRACE_S: Final = 20.0

Http = Annotated[
    str | None,
    typer.Option("--http", metavar="HOST:PORT", help="Where HTTP is served: 127.0.0.1:6066."),
]
Name = Annotated[
    str | None,
    typer.Option("--name", help="Which process of the group this is. Default: the host's name."),
]
Static = Annotated[
    bool | None,
    typer.Option(
        "--static-membership/--no-static-membership",
        help="Keep the partitions for this process while it restarts.",
    ),
]
FollowStdin = Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)]


def worker(
    session: Session,
    data_dir: DataDir = None,
    http: Http = None,
    http_advertised: Annotated[
        str | None,
        typer.Option("--http-advertised", metavar="HOST:PORT", help="As other nodes reach it."),
    ] = None,
    name: Name = None,
    static_membership: Static = None,
    until_stdin_closes: FollowStdin = False,
) -> None:
    """Run one processor; SIGTERM and Ctrl-C let it finish its turn.

    Example: minutewheel worker --data-dir /var/lib/minutewheel --http 127.0.0.1:6066
    """
    settings = session.settings(
        data_dir=data_dir,
        http=http,
        http_advertised=http_advertised,
        name=name,
        static_membership=static_membership,
    )
    from streams.app import run_worker
    from streams.credentials import credentials

    # Before any broker is asked: what only librdkafka can do may look like a broker that is silent.
    credentials(settings.kafka)
    _begin(session, until_stdin_closes)
    code = run_worker(settings)
    if code:
        raise typer.Exit(code)


def deliver(
    session: Session,
    data_dir: DataDir = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Where metrics and health are served."),
    ] = None,
    name: Name = None,
    static_membership: Static = None,
    until_stdin_closes: FollowStdin = False,
) -> None:
    """Run one delivery worker; SIGTERM and Ctrl-C let it finish the calls under way.

    Example: minutewheel deliver --name deliver-1 --http 127.0.0.1:6067
    """
    settings = session.settings(
        data_dir=data_dir, deliver_http=http, name=name, static_membership=static_membership
    )
    _begin(session, until_stdin_closes)
    from streams.delivery import pages
    from streams.delivery.worker import DeliveryWorker

    delivery = DeliveryWorker(settings, session.clock)
    stops = 0

    def stop(number: int, _: Any) -> None:
        nonlocal stops
        stops += 1
        if stops > 1:
            note("minutewheel: ended at once; what was not recorded will be delivered again")
            os._exit(128 + number)
        note("minutewheel: finishing the calls under way; once more ends at once")
        delivery.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with pages.serving(settings.deliver_http, lambda: delivery.ready):
        delivery.run()


def _begin(session: Session, until_stdin_closes: bool) -> None:
    from streams import logs
    from streams.kafka import Cluster

    logs.configure(session.given.log_level.upper())
    # What every thread is at, for whoever finds the process hanging.
    faulthandler.register(signal.SIGUSR1)
    # Where no broker answers, one line says so, before anything is started.
    Cluster(session.settings()).cluster_id()
    if until_stdin_closes:
        threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Stop when standard input closes: whoever started us is gone, in whatever way it went."""
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(PARENT_GRACE_S)
    # The Kafka that a clean end needs has ended with the parent.
    os._exit(INTERRUPTED)


def up(
    session: Session,
    data_dir: DataDir = None,
    port: Port = 19092,
    http: Http = None,
    nodes: Nodes = 1,
    name: Name = None,
) -> None:
    """Run everything here: Kafka, topics, one processor, one delivery worker, until Ctrl-C.

    With --bootstrap, that Kafka is used and none is started.

    Example: minutewheel up --data-dir .minutewheel
    """
    from streams.console.up import run

    run(session, data_dir=data_dir, port=port, http=http, nodes=nodes, name=name)


def register(app: typer.Typer) -> None:
    """Put these commands under their names."""
    add(app, "up", up)
    add(app, "worker", worker)
    add(app, "deliver", deliver)
