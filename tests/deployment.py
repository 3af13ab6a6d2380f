"""A deployment of its own for one test: topics under a fresh prefix, processors, workers."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deploy.broker.probe import is_free
from streams import kafka, topics
from streams.settings import Settings
from tests.processes import Program
from tests.waiting import wait_until

TOPICS_TIMEOUT_S = 30.0


# Beside the range brokers are put into, and below that of outgoing connections.
HTTP_PORTS = (10_000, 19_000)


def free_http() -> str:
    """A loopback address whose port is free, and the next one too."""
    # Not from the seeded generator: two runs at once must not try the same ports.
    source = random.SystemRandom()
    while True:
        port = source.randrange(*HTTP_PORTS)
        if is_free(port) and is_free(port + 1):
            return f"127.0.0.1:{port}"


@dataclass
class Deployment:
    """Where everything of one deployment is, and its processes."""

    settings: Settings
    directory: Path
    extra: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)

    def worker(self, name: str = "a", **extra: str) -> Program:
        """A processor, not yet started; the same name is the same process started again."""
        http = free_http()
        program = Program(
            ["worker"],
            self.directory / f"worker-{name}.log",
            http,
            self._environment(f"worker-{name}", http, extra),
        )
        self.programs.append(program)
        return program

    def delivery(self, name: str = "a", **extra: str) -> Program:
        """A delivery worker, not yet started."""
        http = free_http()
        program = Program(
            ["deliver"],
            self.directory / f"delivery-{name}.log",
            http,
            self._environment(f"delivery-{name}", http, {"deliver_http": http, **extra}),
        )
        self.programs.append(program)
        return program

    def data_dir(self, name: str) -> Path:
        """Where a process keeps its store: `worker-a`, `delivery-a`."""
        return self.directory / name

    def _environment(self, name: str, http: str, extra: dict[str, str]) -> dict[str, str]:
        wanted = {
            "bootstrap": self.settings.bootstrap,
            "prefix": self.settings.prefix,
            "data_dir": str(self.data_dir(name)),
            "name": name,
            "http": http,
            "egress_allow": "127.0.0.0/8",
            "static_membership": "true",
            **self.extra,
            **extra,
        }
        return {f"MINUTEWHEEL_{key.upper()}": value for key, value in wanted.items()}

    def stop_all(self) -> None:
        """End whatever still runs."""
        for program in self.programs:
            if program.process is not None and program.process.poll() is None:
                program.kill()


@contextmanager
def deployed(
    bootstrap: str, directory: Path, partitions: int = 4, **extra: str
) -> Iterator[Deployment]:
    """A deployment under a prefix of its own; its processes end with the block."""
    prefix = f"test-{uuid.uuid4().hex[:8]}."
    settings = Settings(bootstrap=bootstrap, prefix=prefix, partitions=partitions)
    cluster = kafka.Cluster(settings)
    topics.create(cluster, settings)
    # A broker hears of a new topic a moment after it has been made.
    wait_until(
        lambda: len(cluster.topics(settings.topics.all())) == len(settings.topics.all()),
        TOPICS_TIMEOUT_S,
        "the topics are there",
    )
    deployment = Deployment(settings, directory, extra)
    try:
        yield deployment
    finally:
        deployment.stop_all()
