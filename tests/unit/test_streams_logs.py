"""One form for all lines, and no flood while a broker is away."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import structlog

from streams import logs
from streams.clock import SystemClock

STRUCTURE = structlog.get_config()


class Clock(SystemClock):
    """Seconds that pass when the test says so."""

    now_s = 1_000.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a process writes that has set its log up."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(logging.root, "handlers", [])
    logs.configure()
    yield written
    structlog.configure(**STRUCTURE)


def _lines(stderr: io.StringIO) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in stderr.getvalue().splitlines()]


def test_a_librarys_line_looks_like_our_own(stderr: io.StringIO) -> None:
    logs.get("processor").warning("turn failed", error="why")
    logging.getLogger("aiokafka.conn").error("Unable connect to node with id %s: %s", 1, "refused")
    own, foreign = _lines(stderr)
    assert (own["part"], own["event"]) == ("processor", "turn failed")
    assert foreign["part"] == "aiokafka.conn"
    assert foreign["event"] == "Unable connect to node with id 1: refused"
    assert foreign["level"] == "error"
    assert own.keys() - {"error"} == foreign.keys()


def test_an_exception_of_a_library_is_in_its_line(stderr: io.StringIO) -> None:
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("faust").exception("crashed")
    (line,) = _lines(stderr)
    assert "ValueError: inner" in line["exception"]


def test_what_a_library_repeats_is_written_once_and_counted(stderr: io.StringIO) -> None:
    complaint = logging.getLogger("aiokafka")
    for _ in range(100):
        complaint.error("no node %s: %s", 1, "refused")
        complaint.error("no node %s: %s", 2, "refused")
    assert [line["event"] for line in _lines(stderr)] == [
        "no node 1: refused",
        "no node 2: refused",
    ]


def test_other_exceptions_and_last_words_are_no_repetitions() -> None:
    seldom = logs.Seldom(Clock())
    for raised in (ValueError(), KeyError()):
        record = _record("error handling request")
        record.exc_info = (type(raised), raised, None)
        assert seldom.filter(record)
        assert not seldom.filter(record)
    last = _record("crashed")
    last.levelno = logging.CRITICAL
    assert all(seldom.filter(last) for _ in range(3))


def test_an_argument_that_has_no_text_is_no_trouble() -> None:
    class Mute:
        def __str__(self) -> str:
            raise ValueError

    assert logs.Seldom(Clock()).filter(_record("of %s", Mute()))


def _record(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("kafka", logging.ERROR, __file__, 1, text, arguments, None)


def test_the_next_one_tells_how_many_were_left_out() -> None:
    clock = Clock()
    seldom = logs.Seldom(clock)
    passed = [seldom.filter(_record("no %s", "broker")) for _ in range(10)]
    assert passed == [True] + [False] * 9
    clock.now_s += logs.REPEAT_S
    again = _record("no %s", "broker")
    assert seldom.filter(again)
    assert vars(again)["left_out"] == 9
    clock.now_s += logs.REPEAT_S
    last = _record("no %s", "broker")
    assert seldom.filter(last)
    assert "left_out" not in vars(last)


def test_complaints_of_ever_other_kinds_do_not_pile_up() -> None:
    seldom = logs.Seldom(Clock())
    assert all(seldom.filter(_record(f"kind {n}")) for n in range(10 * logs.COMPLAINTS_MAX))
    assert len(seldom._until_s) <= logs.COMPLAINTS_MAX
