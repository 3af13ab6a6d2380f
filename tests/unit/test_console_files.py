"""Files of commands: what is taken, what is refused, and by which line and field."""

import io
from pathlib import Path

import pytest

from schemas.commands import Cancel, Reschedule, Schedule
from schemas.limits import COMMAND_BYTES_MAX
from streams.console import files
from streams.console.failures import Usage
from streams.console.files import Format, Line

AT = "2027-01-01T00:00:00Z"
GOOD = b'{"id":"a","due_at":"2027-01-01T00:00:00Z"}'


def read(body: bytes, form: Format) -> list[Line]:
    return list(files.read(io.BytesIO(body), form))


def bad(lines: list[Line]) -> list[tuple[int, str, str]]:
    return [(line.number, line.error.code, line.error.field) for line in lines if line.error]


def test_a_line_without_a_type_is_a_schedule() -> None:
    body = GOOD + b'\n{"type":"cancel","id":"b"}\n{"type":"reschedule","id":"c","due_at":0}'
    commands = [line.command for line in read(body, Format.JSONL)]
    assert [type(command) for command in commands] == [Schedule, Cancel, Reschedule]


def test_blank_lines_count_but_are_no_commands() -> None:
    lines = read(b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n  \n" + GOOD, Format.JSONL)
    assert [line.number for line in lines] == [1, 4]
    assert bad(lines) == []
    assert lines[-1].end == len(b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n  \n" + GOOD)


def test_bad_lines_are_named_by_number_and_field() -> None:
    body = b"\n".join(
        [
            GOOD,
            b"no json",
            b'{"id":"x","due_at":"2027-01-01T00:00:00Z","not_aftre":1}',
            b'{"id":"x","due_at":12}',
            b'{"id":"x","due_local":"2027-01-01T00:00","time_zone":"Mars/Olympus"}',
            b'{"id":"x","due_at":"2027-01-01T00:00:00Z","not_after":5}',
            b'{"due_at":"2027-01-01T00:00:00Z"}',
            b'{"type":"cancle","id":"x"}',
        ]
    )
    assert bad(read(body, Format.JSONL)) == [
        (2, "malformed", ""),
        (3, "unknown_field", "not_aftre"),
        (4, "seconds_for_milliseconds", "due_at"),
        (5, "unknown_zone", "time_zone"),
        (6, "seconds_for_milliseconds", "not_after"),
        (7, "missing_field", "id"),
        (8, "unknown_type", "type"),
    ]


def test_a_line_without_end_is_one_bad_line_and_not_taken_into_memory() -> None:
    body = b'{"id":"' + b"x" * (3 * COMMAND_BYTES_MAX) + b'"}\n' + GOOD
    lines = read(body, Format.JSONL)
    assert bad(lines) == [(1, "too_large", "")]
    assert [line.number for line in lines] == [1, 2]
    assert lines[-1].end == len(body)


def test_csv_columns_are_fields() -> None:
    body = (
        "\ufefftype,id,due_at,payload,version,headers,reply,retry\r\n"
        f'schedule,a,{AT},"{{""n"":\n [1]}}",7,"{{""h"":""v""}}",TRUE,"{{""delays_s"":[5]}}"\r\n'
        ",b,1798761600000,,,,,\r\n"
        "\r\n"
        "cancel,c,,,3,,,\r\n"
    ).encode()
    lines = read(body, Format.CSV)
    assert bad(lines) == []
    assert [line.number for line in lines] == [2, 4, 6]
    first, second, third = (line.command for line in lines)
    assert isinstance(first, Schedule)
    assert first.version == 7
    assert bytes(first.payload) == b'{"n":\n [1]}'
    assert first.headers == {"h": "v"}
    assert first.reply
    assert first.retry is not None
    assert isinstance(second, Schedule)
    assert second.due_at == 1_798_761_600_000
    assert third == Cancel(id="c", version=3)
    assert lines[-1].end == len(body)


def test_bad_csv_rows_are_named_by_the_line_they_begin_on() -> None:
    body = (
        f'id,due_at,payload\na,{AT},"{{\n}}"\nb,tomorrow,\nc,{AT},{{bad\nd,12,\ne,{AT}\n'.encode()
        + b"\xff,2027-01-01T00:00:00Z,\n"
    )
    assert bad(read(body, Format.CSV)) == [
        (4, "invalid", "due_at"),
        (5, "malformed", "payload"),
        (6, "seconds_for_milliseconds", "due_at"),
        (7, "invalid", ""),
        (8, "malformed", "id"),
    ]


@pytest.mark.parametrize(
    ("header", "field"), [("id;due_at", "id;due_at"), ("due_at", "id"), ("id,id", ""), ("", "id")]
)
def test_a_header_that_is_none_ends_the_file(header: str, field: str) -> None:
    lines = read(f"{header}\nx,y\n".encode(), Format.CSV)
    assert [(line.number, line.error and line.error.field) for line in lines] == [(1, field)]


def test_an_open_quote_does_not_swallow_a_whole_file() -> None:
    body = b'id,due_at\n"a,b\n' + b"x" * (2 * COMMAND_BYTES_MAX)
    lines = read(body, Format.CSV)
    assert lines[0].number == 2
    assert all(line.error is not None for line in lines)


def test_the_format_is_said_by_the_name_or_by_the_option() -> None:
    assert files.format_of(Path("x.JSONL"), None) is Format.JSONL
    assert files.format_of(Path("x.ndjson"), None) is Format.JSONL
    assert files.format_of(Path("x.csv"), None) is Format.CSV
    assert files.format_of(Path("-"), None) is Format.JSONL
    assert files.format_of(Path("-"), "csv") is Format.CSV
    for path, said in (("x.txt", None), ("x.csv", "xml")):
        with pytest.raises(Usage):
            files.format_of(Path(path), said)
