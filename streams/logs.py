"""Logs: one event a line, key=value for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import MutableMapping
from typing import Any, Final

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter

from streams.clock import Clock, SystemClock

Log = structlog.typing.FilteringBoundLogger
REPEAT_S: Final = 30.0
COMPLAINTS_MAX: Final = 1_000


Complaint = tuple[object, ...]


class Seldom(logging.Filter):
    """Lets a library's complaint through once in REPEAT_S; the next one tells how many were not.

    While a broker is away its clients try again many times a second, and each says so each time.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._until_s: dict[Complaint, float] = {}
        self._left_out: Counter[Complaint] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is to be written."""
        if record.levelno >= logging.CRITICAL:
            return True
        complaint = _complaint(record)
        now_s = self._clock.monotonic_s()
        if now_s < self._until_s.get(complaint, now_s):
            self._left_out[complaint] += 1
            return False
        if len(self._until_s) >= COMPLAINTS_MAX:
            self._until_s.clear()
            self._left_out.clear()
        self._until_s[complaint] = now_s + REPEAT_S
        if left_out := self._left_out.pop(complaint, 0):
            record.left_out = left_out
        return True


def _complaint(record: logging.LogRecord) -> Complaint:
    """What two lines have in common that say the same: who, what, of what, and the exception."""
    first = record.args[0] if isinstance(record.args, tuple) and record.args else None
    about = first if isinstance(first, str | int) else type(first)
    raised = record.exc_info[0] if record.exc_info else None
    return record.name, str(record.msg), about, raised


def configure(level: str = "INFO") -> None:
    """Set up this process's log on standard error, for its own parts and for libraries."""
    people = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if people
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Seldom(SystemClock()))
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[_part, ExtraAdder(["left_out"]), *shared],
            processors=[ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _part(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """A library's lines have a part too: its logger's name."""
    return {"part": event["_record"].name, **event}


def _json(event: Any, **_: Any) -> str:
    import orjson

    return orjson.dumps(event, default=str).decode()


def get(name: str) -> Log:
    """The log of one part of the product."""
    log: Log = structlog.get_logger(part=name)
    return log
