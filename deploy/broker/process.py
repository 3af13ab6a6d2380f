"""The operating system's view of a node: which process it is, and how to end it.

A node is recognised by the path of its server.properties, the last word of its command line. A
number from a pid file alone proves nothing: the system gives numbers out again.

Run as a program this file is the guard of an attached node: it waits until its standard input
closes, which happens when the program that started Kafka ends in whatever way, and then ends the
node. (The kernel's own parent-death signal would follow the THREAD that started the child.) The
guard runs on its own, so this file imports the standard library only.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MAIN_CLASS = "kafka.Kafka"
ATTACHED_FLAG = "-Dminutewheel.attached"
GUARD_STOP_TIMEOUT_S = 30.0
GUARD_SEARCH_TIMEOUT_S = 2.0
KILL_TIMEOUT_S = 10.0
RECOGNISE_INTERVAL_S = 0.002
# What a guard is told when its node has been stopped in order.
RELEASE = b"."
_PROCESSES = Path("/proc")


def is_node(pid: int, properties: Path) -> bool:
    """Whether this living process is the node with these properties."""
    return _words(pid)[-3:-1] == [MAIN_CLASS.encode(), os.fsencode(properties)]


def is_attached(pid: int) -> bool:
    """Whether this node ends when the program that started it does."""
    return ATTACHED_FLAG.encode() in _words(pid)


def _words(pid: int) -> list[bytes]:
    try:
        return (_PROCESSES / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def find_node(properties: Path, pid_file: Path | None = None) -> int | None:
    """The process id of the node with these properties, or None if it does not run.

    The pid file is looked at first; a stale, broken or missing one costs a look at all processes.
    """
    if pid_file is not None:
        with suppress(OSError, ValueError):
            pid = int(pid_file.read_text(encoding="ascii"))
            if is_node(pid, properties):
                return pid
    for entry in _PROCESSES.iterdir():
        if entry.name.isdigit() and is_node(int(entry.name), properties):
            return int(entry.name)
    return None


def send(pid: int, properties: Path, number: signal.Signals) -> bool:
    """Sends a signal to the node; False if the process is gone or is not the node.

    The handle is taken before the check, so the signal cannot reach a later owner of the number.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_node(pid, properties):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def wait_gone(pid: int, properties: Path, timeout_s: float) -> bool:
    """Waits until the node's process has ended; False if it still lives after `timeout_s`."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if not is_node(pid, properties):
            return True
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))
    finally:
        os.close(handle)


def terminate(pid: int, properties: Path, timeout_s: float) -> bool:
    """SIGTERM, a bounded wait, then SIGKILL. False if even that did not end the process."""
    if not send(pid, properties, signal.SIGTERM) or wait_gone(pid, properties, timeout_s):
        return True
    send(pid, properties, signal.SIGKILL)
    return wait_gone(pid, properties, KILL_TIMEOUT_S)


def wait_recognised(child: subprocess.Popen[bytes], properties: Path) -> None:
    """Waits until a new child shows its command line, or has ended.

    For a moment during exec the line is empty, and whoever looked then would miss a living node.
    """
    while child.poll() is None and not is_node(child.pid, properties):
        time.sleep(RECOGNISE_INTERVAL_S)


def guard(properties: Path) -> None:
    """Ends the node once standard input closes; ends itself once it is told RELEASE there."""
    # Ctrl-C and a closed terminal are the starter's business; the guard acts when it has ended.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if os.read(sys.stdin.fileno(), 1):
        return
    deadline = time.monotonic() + GUARD_SEARCH_TIMEOUT_S
    # The starter may have died so early that its node is only just coming up.
    while (pid := find_node(properties)) is None and time.monotonic() < deadline:
        time.sleep(RECOGNISE_INTERVAL_S)
    if pid is not None:
        terminate(pid, properties, GUARD_STOP_TIMEOUT_S)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
