"""Sending a file: all or nothing, and a bar only where somebody watches."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from schemas.commands import Command
from streams.console import cli

GOOD = b'{"id":"%d","due_at":"2027-01-01T00:00:00Z"}\n'
BAD = b'{"id":"x","due_at":12}\n'


class FakeSender:
    """Counts what it is given."""

    sent: list[str]

    def __init__(self, *_: object) -> None:
        FakeSender.sent = []

    @property
    def confirmed(self) -> int:
        return len(self.sent)

    def submit(self, command: Command) -> None:
        if command.id == "interrupt":
            raise KeyboardInterrupt
        self.sent.append(command.id)

    def finish(self, on_progress: object) -> None:
        assert callable(on_progress)
        on_progress(len(self.sent))

    def abandon(self, timeout_s: float) -> None:
        assert timeout_s > 0


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> type[FakeSender]:
    monkeypatch.setattr("streams.console.sender.Sender", FakeSender)
    FakeSender.sent = []
    return FakeSender


def write(path: Path, *lines: bytes) -> str:
    path.write_bytes(b"".join(lines))
    return str(path)


def test_good_lines_are_sent_and_counted(
    sender: type[FakeSender], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.jsonl", GOOD % 1, b'{"type":"cancel","id":"2"}\n')
    assert cli.main(["schedule", "--file", file, "-o", "json"]) == 0
    said = capsys.readouterr()
    summary = orjson.loads(said.out)
    assert list(summary) == ["file", "commands", "sent", "bad", "types", "seconds", "per_second"]
    assert summary["sent"] == 2
    assert summary["types"] == {"schedule": 1, "cancel": 1}
    assert said.err == ""
    assert sender.sent == ["1", "2"]


def test_one_bad_line_and_nothing_is_sent(
    sender: type[FakeSender], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.jsonl", GOOD % 1, BAD, GOOD % 3)
    assert cli.main(["schedule", "--file", file, "-o", "jsonl"]) == 1
    said = capsys.readouterr()
    assert orjson.loads(said.out)["sent"] == 0
    assert "line 2: due_at: 12 lies before" in said.err
    assert "nothing was sent" in said.err
    assert sender.sent == []


def test_skip_bad_sends_the_others_and_still_fails(
    sender: type[FakeSender], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.jsonl", GOOD % 1, BAD, GOOD % 3)
    assert cli.main(["schedule", "--file", file, "--skip-bad"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("2 of 3 commands sent")
    assert "1 bad line left out" in said.err
    assert sender.sent == ["1", "3"]


def test_many_bad_lines_are_not_all_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "x.jsonl", BAD * 30)
    assert cli.main(["schedule", "--file", file]) == 1
    said = capsys.readouterr().err
    assert said.count("line ") == 20
    assert "and 10 more" in said


def test_ctrl_c_says_how_far_it_came(
    sender: type[FakeSender], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = b'{"id":"interrupt","due_at":"2027-01-01T00:00:00Z"}\n'
    file = write(tmp_path / "x.jsonl", GOOD % 1, stop, GOOD % 3)
    assert cli.main(["schedule", "--file", file]) == 130
    assert "at least 1 of 3 commands are in the log" in capsys.readouterr().err
    assert sender.sent == ["1"]


COMMAND = [sys.executable, "-m", "streams.console.cli", "schedule", "--file"]


def test_standard_input_is_read_twice() -> None:
    done = subprocess.run(
        [*COMMAND, "-", "--format", "csv"],
        input=b"id,due_at\na,12\n",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert b"line 2: due_at" in done.stderr


def test_no_bar_where_nobody_watches(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", BAD)
    done = subprocess.run([*COMMAND, file], capture_output=True, check=False)
    assert b"checking" not in done.stderr
    assert b"\x1b" not in done.stderr + done.stdout


def test_a_bar_on_a_terminal_and_only_on_standard_error(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", BAD)
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, file, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=follower,
        env=os.environ | {"TERM": "xterm"},
    ) as process:
        os.close(follower)
        shown = _read_all(leader)
        assert process.stdout is not None
        data = process.stdout.read()
    os.close(leader)
    assert b"checking" in shown
    assert b"line 1: due_at" in shown
    assert orjson.loads(data)["bad"] == 1


def _read_all(leader: int) -> bytes:
    shown = b""
    while True:
        try:
            part = os.read(leader, 65_536)
        except OSError:
            # Linux says so when the last process has closed its side.
            return shown
        if not part:
            return shown
        shown += part
