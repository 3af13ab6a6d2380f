"""Logs: one event a line, key=value for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

Log = structlog.typing.FilteringBoundLogger


def configure(level: str = "INFO") -> None:
    """Set up this process's log on standard error."""
    people = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if people
        else structlog.processors.JSONRenderer(serializer=_json)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


def _json(event: Any, **_: Any) -> str:
    import orjson

    return orjson.dumps(event, default=str).decode()


def get(name: str) -> Log:
    """The log of one part of the product."""
    log: Log = structlog.get_logger(part=name)
    return log
