"""What `up`, `worker` and `deliver` are made of: children, guards, signals."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streams.clock import SystemClock
from streams.console import children, cli, guards, up
from streams.console.children import Child
from streams.console.failures import AlreadyUp
from streams.errors import StreamsError
from streams.settings import Settings
from tests.waiting import wait_until

PROGRAM = (
    "import signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('ready', flush=True)\n"
    "signal.pause()\n"
)


def start(code: str, log: Path) -> Child:
    return Child("part", [sys.executable, "-c", code], dict(os.environ), log)


def test_a_child_ends_on_sigterm_and_logs_to_its_file(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "part.log"
    child = start(PROGRAM, log)
    wait_until(lambda: "ready" in log.read_text(), 20, "the child is ready")
    assert child.exit_code() is None
    assert os.getsid(child.pid) == child.pid
    assert child.end(20)
    assert child.exit_code() == 0


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    deaf = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PROGRAM.split("\n", 2)[2]
    )
    child = start(deaf, log)
    wait_until(lambda: "ready" in log.read_text(), 20, "the child is ready")
    assert not child.end(0.05)
    assert child.exit_code() == -signal.SIGKILL


def test_the_tail_of_a_log_is_this_run_s(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("of an earlier run\n")
    child = start("import sys\nfor n in range(40): print('line', n)\nsys.exit(7)", log)
    wait_until(lambda: child.exit_code() is not None, 20, "the child has ended")
    assert child.exit_code() == 7
    lines = children.tail(log, child.log_begin)
    assert lines == [f"line {number}" for number in range(25, 40)]
    child.kill()


@pytest.mark.parametrize(
    ("code", "said"), [(7, "with code 7"), (-9, "by SIGKILL"), (-250, "by signal 250")]
)
def test_how_a_child_ended(code: int, said: str) -> None:
    assert children.said_of(code) == said


def test_the_command_is_called_again_as_it_was_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "bin" / "minutewheel"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.chdir(tmp_path)
    assert children.this_command() == [str(script)]
    assert children.as_typed() == "bin/minutewheel"
    monkeypatch.setenv("PATH", str(script.parent))
    assert children.as_typed() == "minutewheel"
    monkeypatch.setattr(sys, "argv", [str(Path(cli.__file__))])
    assert children.this_command() == [sys.executable, "-m", "streams.console.cli"]


def test_a_second_up_says_who_runs(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, bootstrap="kafka:1", http="127.0.0.1:2")
    with guards.only_one(settings):
        with pytest.raises(AlreadyUp) as refused, guards.only_one(settings):
            raise AssertionError("two at once")
        assert f"process {os.getpid()}" in str(refused.value)
        assert "kafka:1" in str(refused.value)
        assert json.loads((tmp_path / "up.lock").read_text())["http"] == "127.0.0.1:2"
    with guards.only_one(settings):
        """The end of the first one frees the directory."""


def test_a_taken_http_port_is_refused_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(StreamsError, match="choose another --http"):
            guards.refuse_taken(address)
    guards.refuse_taken(address)


def test_the_first_signal_asks_and_the_second_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    before = signal.getsignal(signal.SIGINT)
    with guards.signals() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.is_set()
        assert codes == []
        signal.raise_signal(signal.SIGINT)
    assert codes == [130]
    assert "ended at once" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_children_see_what_makes_sense_here_unless_something_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("STATIC_MEMBERSHIP", "EGRESS_ALLOW"):
        monkeypatch.delenv(f"MINUTEWHEEL_{name}", raising=False)
    seen = up.environment(Settings())
    assert seen["MINUTEWHEEL_STATIC_MEMBERSHIP"] == "true"
    assert seen["MINUTEWHEEL_EGRESS_ALLOW"] == "127.0.0.0/8,::1/128"
    assert "MINUTEWHEEL_EGRESS_ALLOW" not in up.environment(Settings(egress_allow=("10.0.0.0/8",)))
    monkeypatch.setenv("MINUTEWHEEL_STATIC_MEMBERSHIP", "false")
    assert up.environment(Settings())["MINUTEWHEEL_STATIC_MEMBERSHIP"] == "false"


def test_the_delivery_worker_listens_beside_the_processor() -> None:
    assert up.next_address("127.0.0.1:6066") == "127.0.0.1:6067"
    assert up.next_address("[::1]:6066") == "[::1]:6067"


class FakeDelivery:
    """A worker that is sent signals while it runs."""

    ready = True
    numbers: tuple[signal.Signals, ...] = ()
    stops = 0

    def __init__(self, settings: Settings, clock: SystemClock) -> None:
        assert settings.name == "d1"
        assert isinstance(clock, SystemClock)

    def run(self) -> None:
        for number in self.numbers:
            signal.raise_signal(number)

    def stop(self) -> None:
        type(self).stops += 1


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ((signal.SIGTERM,), None),
        ((signal.SIGINT,), None),
        ((signal.SIGINT, signal.SIGINT), 130),
        ((signal.SIGTERM, signal.SIGTERM), 143),
    ],
)
def test_deliver_drains_on_the_first_signal_and_ends_on_the_second(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    numbers: tuple[signal.Signals, ...],
    code: int | None,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr("streams.delivery.worker.DeliveryWorker", FakeDelivery)
    monkeypatch.setattr("streams.console.processes._begin", lambda *_: None)
    monkeypatch.setattr(FakeDelivery, "numbers", numbers)
    monkeypatch.setattr(FakeDelivery, "stops", 0)
    old: dict[Any, Any] = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert cli.main(["deliver", "--name", "d1"]) == 0
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    assert ended == ([] if code is None else [code])
    assert FakeDelivery.stops >= 1
    assert ("ended at once" in capsys.readouterr().err) == (code is not None)


def test_a_child_follows_its_parent_into_the_end(tmp_path: Path) -> None:
    """Nothing that `up` started outlives it, whatever ended it."""
    code = (
        "import signal, sys, threading\n"
        "from streams.console import processes\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "threading.Thread(target=processes._end_with_parent, daemon=True).start()\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 5


@pytest.mark.parametrize("nodes", [1, 3])
def test_topics_of_a_local_kafka_have_a_copy_on_each_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    asked: list[Settings] = []

    class Asked(up.Household):
        def start(self) -> None:
            asked.append(self._settings)
            self._stopping.set()

    for name in list(os.environ):
        if name.startswith("MINUTEWHEEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(up, "Household", Asked)
    monkeypatch.setattr(guards, "refuse_taken", lambda _: None)
    words = ["up", "--nodes", str(nodes), "--data-dir", str(tmp_path)]
    assert cli.main(words) == 0
    (settings,) = asked
    assert settings.replication == nodes
    assert len(settings.bootstrap.split(",")) == nodes
