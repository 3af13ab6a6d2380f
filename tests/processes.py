"""The product's processes as an operator runs them: started, killed, stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.waiting import wait_until

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


@dataclass
class Program:
    """One `minutewheel` process with its log in a file."""

    arguments: list[str]
    log: Path
    http: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(
        default_factory=lambda: [sys.executable, "-m", "streams.console.cli"]
    )
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `wait_ready` waits for it."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.command, *self.arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Until /health/ready says yes, or the process has ended."""
        wait_until(self._ready, READY_TIMEOUT_S, f"{self.arguments} ready; see\n{self.tail()}")

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.arguments} ended:\n{self.tail()}"
        try:
            with urllib.request.urlopen(f"http://{self.http}/health/ready", timeout=2) as answer:
                return bool(orjson.loads(answer.read())["ready"])
        except (urllib.error.URLError, OSError):
            return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process, which the test has started."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.arguments} did not stop:\n{self.tail()}") from None

    def tail(self, lines: int = 30) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
