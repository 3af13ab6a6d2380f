"""`minutewheel up`: everything on one machine, started in order, watched, and ended in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import ConsumerGroupState, KafkaException

from deploy.broker import ClusterStatus, LocalCluster, NoClusterError
from streams import topics
from streams.clock import Clock
from streams.console import children, guards, leaders, nodes
from streams.console.children import Child
from streams.console.failures import ChildDied
from streams.console.output import note
from streams.console.session import Session
from streams.errors import StreamsError
from streams.kafka import Cluster
from streams.settings import ENVIRONMENT_PREFIX, Settings

READY_TIMEOUT_S: Final = 120.0
LOOK_INTERVAL_S: Final = 0.2
CHILD_STOP_TIMEOUT_S: Final = 30.0
EGRESS_LOCAL: Final = "127.0.0.0/8,::1/128"


def run(
    session: Session,
    *,
    data_dir: Path | None,
    port: int,
    http: str | None,
    nodes: int,
    name: str | None,
) -> None:
    """Start everything, say where it is, and stay until a signal or until a part dies.

    Raises `AlreadyUp`, `ChildDied`, BrokerError and whatever a part cannot start for.
    """
    settings = session.settings(data_dir=data_dir, http=http, name=name)
    settings = replace(
        settings,
        data_dir=settings.data_dir.absolute(),
        deliver_http=settings.deliver_http or next_address(settings.http),
    )
    cluster = None
    if not session.names_a_cluster():
        cluster = LocalCluster(settings.data_dir, nodes, port, on_progress=_progress)
        # A copy on every node: that is what several are for.
        settings = replace(settings, bootstrap=cluster.bootstrap, replication=nodes)
    with guards.only_one(settings), guards.signals() as stopping:
        for address in (settings.http, settings.deliver_http):
            guards.refuse_taken(address)
        household = Household(session, settings, cluster, stopping)
        try:
            household.start()
            if not stopping.is_set():
                household.say_where()
            household.watch()
        finally:
            household.stop()


class Household:
    """The parts, in the order in which they are started; ended in the reverse one."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        cluster: LocalCluster | None,
        stopping: threading.Event,
    ) -> None:
        self._session = session
        self._settings = settings
        self._cluster = cluster
        self._stopping = stopping
        self._clock: Clock = session.clock
        self._children: list[Child] = []
        self._owns_broker = False

    def start(self) -> None:
        """Kafka, topics, processor and delivery worker; returns when they are ready."""
        if self._cluster is not None:
            self._start_broker(self._cluster)
        if self._stopping.is_set():
            return
        made = self._make_topics()
        _progress(f"Topics are there ({len(made)} made)" if made else "Topics are there")
        self._start_children()
        for child, ready in zip(
            self._children, (self._processor_ready, self._delivery_ready), strict=True
        ):
            self._wait(child, ready)

    def watch(self) -> None:
        """Wait for the signal to stop. Raises `ChildDied` if a part ends before it."""
        while not self._stopping.wait(LOOK_INTERVAL_S):
            self._check()

    def stop(self) -> None:
        """End delivery, then the processor, then Kafka."""
        while self._children:
            child = self._children.pop()
            if child.exit_code() is None:
                _progress(f"Stopping the {child.name}")
                if not child.end(CHILD_STOP_TIMEOUT_S):
                    note(f"minutewheel: the {child.name} did not end cleanly; see {child.log}")
        if self._cluster is not None and self._owns_broker:
            _progress("Stopping Kafka")
            self._cluster.stop()
            self._owns_broker = False

    def say_where(self) -> None:
        """Where to look, and what to try."""
        settings = self._settings
        lines = [
            "",
            "minutewheel is up.",
            f"  kafka   {settings.bootstrap}",
            f"  http    http://{settings.http} (delivery worker: http://{settings.deliver_http})",
            f"  data    {settings.data_dir}",
            f"  logs    {settings.data_dir / 'logs'}",
            "",
            "Try, in another terminal:",
            *(f"  {line}" for line in self._examples()),
            "",
            "Ctrl-C stops everything; the data stays.",
        ]
        record = {
            "bootstrap": settings.bootstrap,
            "http": settings.http,
            "deliver_http": settings.deliver_http,
            "data_dir": str(settings.data_dir),
            "logs": str(settings.data_dir / "logs"),
            "processes": {child.name: child.pid for child in self._children},
        }
        self._session.output.show(record, lambda _: "\n".join(lines))

    def _examples(self) -> list[str]:
        command = children.as_typed()
        more = "".join(f" {word}" for word in self._needed())
        return [
            f"{command} schedule hello --at +10s --to channel:log{more}",
            f"{command} get hello{more}",
            f"{command} due --by minute{more}",
        ]

    def _needed(self) -> list[str]:
        """The options without which the examples would ask somebody else."""
        given = self._session.given
        words = replace(given, bootstrap=None).arguments()
        if self._session.settings().bootstrap != self._settings.bootstrap or given.bootstrap:
            words += ["--bootstrap", self._settings.bootstrap]
        return words

    def _start_broker(self, cluster: LocalCluster) -> None:
        # The lock on the data directory is ours, so whoever started an attached node is gone.
        cluster.wait_orphans_gone()
        found = _running(self._settings.data_dir)
        if found is not None:
            # Somebody's `broker start`: it was there before us and stays after us.
            self._settings = replace(self._settings, bootstrap=found.bootstrap)
            _progress(f"Using the Kafka that runs at {found.bootstrap}")
            return
        cluster.start()
        self._owns_broker = True
        _progress(f"Kafka answers at {cluster.bootstrap}")

    def _make_topics(self) -> list[str]:
        cluster = Cluster(self._settings)
        made = topics.create(cluster, self._settings)
        leaders.wait_visible(cluster, self._clock)
        return made

    def _start_children(self) -> None:
        settings = self._settings
        given = replace(self._session.given, bootstrap=settings.bootstrap)
        level = ["--log-level", self._session.given.log_level]
        command = [*children.this_command(), *given.arguments(), *level]
        common = ["--name", settings.name, "--until-stdin-closes"]
        place = ["--data-dir", str(settings.data_dir)]
        for name, words in (
            ("processor", ["worker", *place, "--http", settings.http, *common]),
            ("delivery worker", ["deliver", *place, "--http", settings.deliver_http, *common]),
        ):
            _progress(f"Starting the {name}")
            log = settings.data_dir / "logs" / f"{words[0]}.log"
            self._children.append(Child(name, [*command, *words], environment(settings), log))

    def _processor_ready(self) -> bool:
        return _is_ready(self._settings.http)

    def _delivery_ready(self) -> bool:
        """Whether the worker is, and its group has settled: before, it owns and owes nothing."""
        if not _is_ready(self._settings.deliver_http):
            return False
        group = self._settings.delivery_group
        admin = Cluster(self._settings).admin
        with suppress(KafkaException):
            described = admin.describe_consumer_groups([group], request_timeout=5.0)[group].result()
            return bool(described.members) and described.state == ConsumerGroupState.STABLE
        return False

    def _wait(self, child: Child, ready: Callable[[], bool]) -> None:
        deadline_s = self._clock.monotonic_s() + READY_TIMEOUT_S
        while not ready():
            if self._stopping.wait(LOOK_INTERVAL_S):
                return
            self._check()
            if self._clock.monotonic_s() > deadline_s:
                said = f"the {child.name} is not ready after {READY_TIMEOUT_S:g} s"
                raise ChildDied(_with_tail(said, child.log, child.log_begin))
        _progress(f"The {child.name} is ready")

    def _check(self) -> None:
        """Raises `ChildDied` if a part has ended."""
        for child in self._children:
            code = child.exit_code()
            if code is not None:
                said = f"the {child.name} ended {children.said_of(code)}"
                raise ChildDied(_with_tail(said, child.log, child.log_begin))
        if self._cluster is not None and self._owns_broker:
            for number, pid in self._cluster.pids().items():
                if pid is None:
                    log = self._cluster.directory.node(number).log
                    raise ChildDied(_with_tail(f"Kafka's node {number} ended", log, 0))


def next_address(address: str) -> str:
    """The same host and the port after it."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def _is_ready(address: str) -> bool:
    with suppress(StreamsError):
        nodes.ask(address, "/health/ready", "not ready")
        return True
    return False


def environment(settings: Settings) -> dict[str, str]:
    """What the children see: ours, with what makes sense on one machine where nothing is said."""
    variables = dict(os.environ)
    # A restart then needs no rebalance.
    variables.setdefault(f"{ENVIRONMENT_PREFIX}STATIC_MEMBERSHIP", "true")
    if not settings.egress_allow:
        variables.setdefault(f"{ENVIRONMENT_PREFIX}EGRESS_ALLOW", EGRESS_LOCAL)
    return variables


def _running(data_dir: Path) -> ClusterStatus | None:
    try:
        status = LocalCluster.existing(data_dir).status()
    except NoClusterError:
        return None
    return status if status.running else None


def _with_tail(said: str, log: Path, begin: int) -> str:
    tail = "\n".join(f"    {line}" for line in children.tail(log, begin))
    return f"{said}; the end of {log}:\n{tail}" if tail else f"{said}; {log} says nothing"


def _progress(line: str) -> None:
    note(f"  {line}")
