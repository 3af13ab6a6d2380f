"""`minutewheel up` as a new user meets it: it says what to try, and that works as printed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.deployment import free_http
from tests.kafka import free_port
from tests.processes import Program
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

FIRST_START_S = 180
LATER_START_S = 20


def _program(directory: Path) -> Program:
    port, http = free_port(), free_http()
    arguments = ["up", "--data-dir", str(directory), "--port", str(port), "--http", http]
    command = [str(Path(sys.executable).with_name("minutewheel"))]
    return Program(arguments, directory.parent / f"up-{port}.log", http, command=command)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Program]:
    """A running `up` on free ports."""
    program = _program(tmp_path / "data")
    program.start()
    try:
        yield program
    finally:
        if program.running:
            program.stop()


def _wait_until_up(program: Program, timeout_s: float) -> None:
    def said() -> bool:
        assert program.running, program.tail()
        return "Ctrl-C stops everything" in program.tail()

    wait_until(said, timeout_s, f"minutewheel up\n{program.tail()}")


def _printed_commands(program: Program) -> list[list[str]]:
    lines = program.tail(60).splitlines()
    commands = [shlex.split(line) for line in lines if re.match(r"\s+\S*minutewheel ", line)]
    assert len(commands) == 3, program.tail(60)
    return commands


def _run(command: list[str]) -> str:
    """Run a command just as it was printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={key: value for key, value in os.environ.items() if "MINUTEWHEEL" not in key},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_it_tells_to_try_works_as_printed(up: Program) -> None:
    _wait_until_up(up, FIRST_START_S)
    schedule, get, due = _printed_commands(up)
    assert "accepted" in _run(schedule)
    assert "pending" in _run(get)
    # The figures of what is owed travel once a second.
    wait_until(lambda: "1 pending" in _run(due), 20, "the reminder among what is owed")
    wait_until(
        lambda: orjson.loads(_run([*get, "-o", "json"]))["state"] == "delivered",
        40,
        "the reminder delivered",
    )
    assert up.process is not None
    os.killpg(up.process.pid, signal.SIGINT)
    assert up.process.wait(60) == 0, up.tail()


def test_it_starts_again_quickly_even_after_a_kill(up: Program) -> None:
    _wait_until_up(up, FIRST_START_S)
    schedule, get, _ = _printed_commands(up)
    _run([*schedule, "--at", "+1h"])
    up.kill()
    up.log.unlink()
    started = time.monotonic()

    def again() -> bool:
        if not up.running:
            up.start()
        return "Ctrl-C stops everything" in up.tail()

    # Its children end by themselves, which the first tries may still find under way.
    wait_until(again, LATER_START_S, f"up again\n{up.tail()}")
    print(f"up again after {time.monotonic() - started:.1f} s")  # noqa: T201
    assert "pending" in _run(get)
