"""Files of commands: JSON Lines and CSV, read line by line in bounded memory."""

from __future__ import annotations

import csv
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO, Final, NamedTuple, cast

import msgspec

from schemas import commands
from schemas.commands import COMMAND_TYPES, Command
from schemas.errors import Refused
from schemas.limits import COMMAND_BYTES_MAX
from streams.console import fields
from streams.console.failures import Usage

SPOOL_BYTES_IN_MEMORY_MAX: Final = 8 * 1_048_576
_SCHEDULE: Final = [("ce_type", b"reminder.schedule.v1")]
"""Names the type of a line that does not: the decoder takes it from the record's headers."""


class Format(StrEnum):
    """How a file of commands is written."""

    JSONL = "jsonl"
    CSV = "csv"


class Line(NamedTuple):
    """One command of a file, or why it is none. `number` counts from 1, `end` in bytes."""

    number: int
    end: int
    command: Command | None
    error: Refused | None


def format_of(path: Path, said: str | None) -> Format:
    """The format that was asked for, else the one the name says. Raises `Usage`."""
    word = said or path.suffix.removeprefix(".").lower()
    if said is None and str(path) == "-":
        return Format.JSONL
    try:
        return {"ndjson": Format.JSONL}.get(word) or Format(word)
    except ValueError:
        raise Usage(f"{path}: say --format jsonl or --format csv") from None


def open_rereadable(path: Path) -> BinaryIO:
    """The file, readable twice: what comes through a pipe is kept on disk beyond 8 MiB."""
    file = sys.stdin.buffer if str(path) == "-" else path.open("rb")
    if stat.S_ISREG(_mode(file)) and file is not sys.stdin.buffer:
        return cast(BinaryIO, file)
    spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES_IN_MEMORY_MAX)  # noqa: SIM115
    copyfileobj(file, spool)
    spool.seek(0)
    return cast(BinaryIO, spool)


def _mode(file: BinaryIO) -> int:
    try:
        return os.fstat(file.fileno()).st_mode
    except OSError:
        return 0


def size_bytes(file: BinaryIO) -> int:
    """How long the file is; leaves it at its beginning."""
    end = file.seek(0, 2)
    file.seek(0)
    return end


def read(file: BinaryIO, form: Format) -> Iterator[Line]:
    """Every command of the file from its beginning, checked."""
    file.seek(0)
    return _read_csv(file) if form is Format.CSV else _read_jsonl(file)


def _read_jsonl(file: BinaryIO) -> Iterator[Line]:
    number = end = 0
    while text := file.readline(COMMAND_BYTES_MAX + 2):
        number += 1
        end += len(text)
        if len(text) > COMMAND_BYTES_MAX and not text.endswith(b"\n"):
            end += _skip_line(file)
        if number == 1:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if text.isspace() or not text:
            continue
        yield _line(number, end, partial(_decode, text.rstrip(b"\r\n")))


def _skip_line(file: BinaryIO) -> int:
    """Read on to the line's end; returns how many bytes that was."""
    skipped = 0
    while text := file.readline(COMMAND_BYTES_MAX):
        skipped += len(text)
        if text.endswith(b"\n"):
            break
    return skipped


def _line(number: int, end: int, make: Callable[[], Command]) -> Line:
    try:
        command = make()
        fields.check(command)
    except Refused as error:
        return Line(number, end, None, error)
    return Line(number, end, command, None)


def _decode(text: bytes) -> Command:
    try:
        return commands.decode(text)
    except Refused as error:
        if (error.code, error.field) != ("missing_field", "type"):
            raise
    return commands.decode(text, list(_SCHEDULE))


# ---- CSV ----

_JSON_COLUMNS: Final = {"payload", "headers", "retry"}
_WHOLE_COLUMNS: Final = {"version"}
_INSTANT_COLUMNS: Final = {"due_at", "not_after"}
COLUMNS: Final = {"type"}.union(
    *(set(form.__struct_fields__) for form in COMMAND_TYPES.values()),
)


class _Counted:
    """Lines as text, and how many bytes they were. Bytes that are not UTF-8 become surrogates."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes = 0

    def __iter__(self) -> Iterator[str]:
        # Bounded, so that a file without line ends is not taken into memory as a whole.
        while text := self._file.readline(COMMAND_BYTES_MAX):
            if self.bytes == 0:
                self.bytes = len(text)
                text = text.removeprefix(b"\xef\xbb\xbf")
            else:
                self.bytes += len(text)
            yield text.decode("utf-8", "surrogateescape")


def _read_csv(file: BinaryIO) -> Iterator[Line]:
    csv.field_size_limit(COMMAND_BYTES_MAX)
    lines = _Counted(file)
    rows = csv.reader(lines, strict=True)
    header: list[str] | None = None
    while True:
        # A quoted cell may hold line ends: a row is named by the line it begins on.
        number = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(number, lines.bytes, None, Refused("malformed", f"not CSV: {error}"))
            continue
        if header is None:
            header = [cell.strip() for cell in row]
            if refused := _header_refusal(header):
                yield Line(number, lines.bytes, None, refused)
                return
        elif any(row):
            yield _line(number, lines.bytes, partial(_row, header, row))


def _header_refusal(header: list[str]) -> Refused | None:
    unknown = next((name for name in header if name not in COLUMNS), None)
    if unknown is not None:
        return Refused("unknown_field", f"the header names {unknown!r}, which is no field", unknown)
    if "id" not in header:
        return Refused("missing_field", "the header has no column id", "id")
    if len(set(header)) != len(header):
        return Refused("invalid", "the header names a column twice")
    return None


def _row(header: list[str], row: list[str]) -> Command:
    """The command of one row. Empty cells are absent. Raises `Refused`."""
    if len(row) != len(header):
        raise Refused("invalid", f"{len(row)} cells where the header has {len(header)}")
    given = {
        name: _cell(name, text) for name, text in zip(header, row, strict=True) if text.strip()
    }
    given.setdefault("type", "schedule")
    return commands.from_mapping(given)


def _cell(name: str, text: str) -> object:
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise Refused("malformed", f"{name}: not valid UTF-8", name) from None
    text = text.strip()
    if name in _JSON_COLUMNS:
        try:
            msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise Refused("malformed", f"{name}: not JSON ({error})", name) from None
        return msgspec.Raw(body)
    if name in _INSTANT_COLUMNS | _WHOLE_COLUMNS:
        return _number(text)
    if name == "reply":
        return {"true": True, "false": False}.get(text.lower(), text)
    return text


def _number(text: str) -> int | str:
    """Digits as a number; other text as it is, for the command's own check to judge."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(text) < 20 else text
