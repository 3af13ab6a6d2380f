"""One node: format it, start its process, and watch that it lives."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.broker import process
from deploy.broker.errors import DataDirectoryError, StartFailedError
from deploy.broker.files import NodeFiles
from deploy.broker.java import Java
from deploy.broker.settings import Layout, server_properties
from deploy.broker.tools import TOOL_FLAGS, tool_class

# Measured on 2 cores, one node, Java 17 and 25 alike. Time until "Kafka Server started":
#   defaults (G1) 2.1 s, serial collector 1.9 s, and first compiler only 1.5 s.
# 1.5 M and 9 M records of 250 bytes from an unthrottled producer:
#   G1 215k/s, serial 228k/s (256k/s), and first compiler only 370k/s (329k/s) at the lowest CPU
#   (16 s against 21 s for 9 M): on few cores the second compiler takes what the records need.
# What lives through a young collection lives long, so it is copied twice at most, and a small young
# generation holds little of it: pauses of 9 ms instead of 20 ms. With 500 due events a second their
# p99 lateness is 21-23 ms; with the JVM's own sizes 33-39 ms, with 400 MB 18-25 ms and a maximum
# of 50 ms.
# A class archive (AppCDS) starts in 1.1 s but takes 3-6 s at the stop that writes it, and 60 MB.
SERVER_FLAGS = [
    "-XX:+UseSerialGC",
    "-Xmn64m",
    "-XX:MaxTenuringThreshold=2",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
]
LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
FORMAT_TIMEOUT_S = 60.0
GUARD_EXIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every node is run with."""

    java: Java
    class_path: str


class Node:
    """One node's process and files. `guarded` nodes end when the program that started them does."""

    def __init__(self, number: int, files: NodeFiles) -> None:
        self.number = number
        self.files = files
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._released_pid: int | None = None

    def pid(self) -> int | None:
        """The process id if the node runs, whoever started it."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        return process.find_node(self.files.properties, self.files.pid)

    def prepare(self, layout: Layout, more: Mapping[str, str]) -> None:
        """Writes the node's settings, with `more` of them. Raises DataDirectoryError."""
        try:
            self.files.home.mkdir(parents=True, exist_ok=True)
            text = server_properties(layout, self.number, more)
            self.files.properties.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DataDirectoryError(f"{self.files.home} cannot be written: {error}.") from error

    def format(self, runtime: Runtime, cluster_id: str) -> None:
        """Formats the node's data directory; harmless if it was done before."""
        command = [str(runtime.java.executable), *runtime.java.flags(), *TOOL_FLAGS]
        command += ["-cp", runtime.class_path, tool_class("kafka-storage"), "format"]
        command += ["--ignore-formatted", "-t", cluster_id, "-c", str(self.files.properties)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
            cwd=self.files.home,
            env=_environment(),
        )
        if done.returncode != 0:
            output = (done.stdout + done.stderr).strip()
            raise StartFailedError(f"{self.files.data} could not be formatted:\n{output}")

    def spawn(self, runtime: Runtime, heap: str, *, guarded: bool) -> None:
        """Starts the node's process and writes its pid file. Does not wait until it answers.

        The process gets a session of its own, so that Ctrl-C in the terminal reaches the program
        that started it, which then stops it in order, and not the node directly.
        """
        command = [
            str(runtime.java.executable),
            *runtime.java.flags(),
            *SERVER_FLAGS,
            *([process.ATTACHED_FLAG] if guarded else []),
            f"-Xmx{heap}",
            f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
            f"-Dminutewheel.log={self.files.log.name}",
            "-cp",
            runtime.class_path,
            process.MAIN_CLASS,
            str(self.files.properties),
        ]
        if guarded:
            self._start_guard()
        try:
            with self.files.output.open("wb") as output:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self.files.home,
                    env=_environment(),
                )
            process.wait_recognised(self._child, self.files.properties)
            self.files.pid.write_text(f"{self._child.pid}\n", encoding="ascii")
        except OSError as error:
            raise StartFailedError(f"Node {self.number} could not be started: {error}.") from error

    def check_alive(self) -> None:
        """Raises StartFailedError, with the end of the log, if the started process has ended."""
        if self._child is None or (code := self._child.poll()) is None:
            return
        raise StartFailedError(
            f"Node {self.number} ended with code {code}. The end of {self.files.log}:\n"
            f"{self.files.log_tail()}"
        )

    def reap(self) -> None:
        """Cleans up after an ended process: its process table entry, its guard, its pid file."""
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=process.KILL_TIMEOUT_S)
            self._child = None
        if self._released_pid is not None:
            with suppress(ChildProcessError):
                os.waitpid(self._released_pid, os.WNOHANG)
            self._released_pid = None
        if self._guard is not None and self._guard.stdin is not None:
            # A guard that is gone already needs no telling.
            with suppress(BrokenPipeError), self._guard.stdin as standard_input:
                standard_input.write(process.RELEASE)
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(timeout=GUARD_EXIT_TIMEOUT_S)
            self._guard = None
        self.files.pid.unlink(missing_ok=True)

    def release(self) -> None:
        """Forgets a detached process without ending it, so that it may outlive this program."""
        if self._child is not None:
            # Popen warns in its destructor about a child that still runs; this one is meant to.
            self._released_pid = self._child.pid
            self._child.returncode = 0
            self._child = None

    def _start_guard(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", process.__file__, str(self.files.properties)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    # Without a UTF-8 locale Java cannot open a path with letters beyond ASCII.
    return {**os.environ, "LC_ALL": "C.UTF-8"}
