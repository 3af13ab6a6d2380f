"""Processes that `up` starts: this same command, in sessions of their own, logging to files."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streams.console.output import printable

TAIL_LINES: Final = 15
TAIL_BYTES_MAX: Final = 16_384
MODULE: Final = "streams.console.cli"


def this_command() -> list[str]:
    """The words that start this same program again, whatever it was started as."""
    program = Path(sys.argv[0])
    found = shutil.which(sys.argv[0])
    if found is not None and program.suffix != ".py":
        return [str(Path(found).absolute())]
    return [sys.executable, "-m", MODULE]


def as_typed() -> str:
    """How a person calls this program from here: by its name if that is on PATH."""
    words = this_command()
    program = Path(words[0])
    by_name = shutil.which(program.name)
    if by_name is not None and Path(by_name).absolute() == program:
        return " ".join([program.name, *words[1:]])
    if program.is_relative_to(Path.cwd()):
        words[0] = str(program.relative_to(Path.cwd()))
    return " ".join(words)


class Child:
    """One process of `up`. It ends when we do: its standard input closes with us."""

    def __init__(
        self, name: str, words: list[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as written:
            self.log_begin = written.tell()
            # A session of its own, so that Ctrl-C reaches only us, and we end things in order.
            self._process = subprocess.Popen(
                words,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it lives; negative for a signal."""
        return self._process.poll()

    def end(self, timeout_s: float) -> bool:
        """SIGTERM, a bounded wait, then SIGKILL; whether it ended by itself, with 0."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._close()
        return code == 0

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()


def tail(log: Path, begin: int) -> list[str]:
    """The last lines of a log, and nothing of it that lies before the byte `begin`."""
    with log.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(begin, end - TAIL_BYTES_MAX))
        return [printable(line) for line in file.read().decode(errors="replace").splitlines()][
            -TAIL_LINES:
        ]


def said_of(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
