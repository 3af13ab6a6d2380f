"""What a command prints: a table for people, JSON or JSON Lines for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Form(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


View = Callable[[Any], "RenderableType"]
"""Draws decoded data for people."""


def terminal(stream: TextIO | None = None) -> Console:
    """A console that prints text as it is: ids may hold anything that looks like markup."""
    from rich.console import Console

    return Console(file=stream or sys.stdout, markup=False, highlight=False, emoji=False)


def printable(text: object) -> str:
    """The text without what could steer a terminal: such characters are shown escaped."""
    said = str(text)
    if said.isprintable():
        return said
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in said
    )


class Output:
    """Standard output. In the two JSON forms nothing else is ever written there."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def show(self, record: bytes | Mapping[str, Any], view: View) -> None:
        """Print one record. Bytes are JSON already, and numbers in them stay as they are written.

        `view` gets the decoded record.
        """
        body = record if isinstance(record, bytes) else msgspec.json.encode(record)
        if self.form is Form.TABLE:
            _draw(view(msgspec.json.decode(body)))
            return
        indent = 2 if self.form is Form.JSON else -1
        self._write(msgspec.json.format(body, indent=indent))

    def show_all(self, records: Iterable[Mapping[str, Any]], view: View) -> None:
        """Print records: one JSON array, or a line each. `view` gets the list."""
        listed = list(records)
        if self.form is Form.TABLE:
            _draw(view(listed))
        elif self.form is Form.JSON:
            self._write(msgspec.json.format(msgspec.json.encode(listed), indent=2))
        else:
            for record in listed:
                self._write(msgspec.json.encode(record))

    def say(self, line: str) -> None:
        """A line for people only; programs do not get it."""
        if self.form is Form.TABLE:
            terminal().print(printable(line), soft_wrap=True)

    def _write(self, body: bytes) -> None:
        sys.stdout.write(body.decode() + "\n")
        sys.stdout.flush()


def _draw(drawn: RenderableType) -> None:
    """Print what a view made. Text keeps its lines: only tables are fitted to the width."""
    from rich.text import Text

    terminal().print(drawn, soft_wrap=isinstance(drawn, str | Text))


def note(line: str) -> None:
    """Say something on standard error that is neither data nor an error."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the program's own voice
