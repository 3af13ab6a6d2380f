"""What is printed: stable JSON for programs, nothing that steers a terminal for people."""

import orjson
import pytest

from streams.console import views
from streams.console.output import Form, Output, printable

NOW_MS = 1_796_043_600_000  # 2026-11-30T13:00:00Z
REPLY = {
    "id": "a",
    "version": 3,
    "status": "conflict",
    "command": {"topic": "reminders.commands", "partition": 1, "offset": 7},
    "due_at": "2026-11-30T13:00:10.000Z",
    "at": "2026-11-30T13:00:00.000Z",
}
REMINDER = {
    "id": "a[bold]\x1b[2J",
    "state": "pending",
    "due_at": "2026-12-02T16:00:00.000Z",
    "group": None,
    "cancel_requested": False,
    "headers": {},
    "payload": {"x": 1},
    "attempts": [
        {"attempt": 1, "at": "2026-11-30T12:00:00.000Z", "status": "failed", "detail": "http_500"}
    ],
}
DUE = {
    "by": "hour",
    "from": None,
    "to": None,
    "pending": 1_004,
    "claims": 0,
    "buckets": [
        {
            "at": "2026-11-30T14:00:00.000Z",
            "count": 1_000,
            "tenants": {f"t{number}": number for number in range(7)},
        },
        {"at": "2026-11-30T15:00:00.000Z", "count": 4, "tenants": {"default": 4}},
    ],
}


def test_json_keeps_numbers_as_they_were_written(capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"id":"a","payload":{"money":12345678901234567890123,"rate":1.10}}'
    Output(Form.JSON).show(body, lambda _: "never")
    shown = capsys.readouterr().out
    assert '"money": 12345678901234567890123' in shown
    assert '"rate": 1.10' in shown
    Output(Form.JSONL).show(body, lambda _: "never")
    assert capsys.readouterr().out.encode() == body + b"\n"


def test_many_records_are_one_array_or_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"n": 1}, {"n": 2}]
    Output(Form.JSON).show_all(records, lambda _: "never")
    assert orjson.loads(capsys.readouterr().out) == records
    Output(Form.JSONL).show_all(records, lambda _: "never")
    assert capsys.readouterr().out == '{"n":1}\n{"n":2}\n'
    Output(Form.TABLE).show_all(records, lambda listed: f"{len(listed)} records")
    assert capsys.readouterr().out == "2 records\n"
    Output(Form.JSONL).show_all([], lambda _: "never")
    assert capsys.readouterr().out == ""


def test_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2J\nb") == "a\\x1b[2J\\nb"
    assert printable("Größe ✓") == "Größe ✓"


def test_a_reply_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.TABLE).show(REPLY, lambda shown: views.reply(shown, NOW_MS))
    assert capsys.readouterr().out == (
        "a: conflict, version 3, due 2026-11-30T13:00:10.000Z  in 10 s "
        "(another content stands under the same version; nothing changed)\n"
    )


def test_a_reply_that_knows_no_time_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    reply = REPLY | {"status": "not_found", "due_at": "1970-01-01T00:00:00.000Z"}
    Output(Form.TABLE).show(reply, lambda shown: views.reply(shown, NOW_MS))
    assert "1970" not in capsys.readouterr().out


def test_a_reminder_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.TABLE).show(REMINDER, lambda shown: views.reminder(shown, NOW_MS))
    shown = capsys.readouterr().out
    assert "a[bold]\\x1b[2J" in shown
    assert "\x1b" not in shown
    assert "2026-12-02T16:00:00.000Z  in 2 d 3 h" in shown
    assert '{"x": 1}' in shown
    assert "http_500" in shown
    assert "1 h ago" in shown
    for absent in ("group", "headers", "cancel requested"):
        assert absent not in shown


def test_what_is_due_is_drawn_as_bars(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.TABLE).show(DUE, views.due)
    shown = capsys.readouterr().out
    assert "1,004 pending" in shown
    assert "2026-11-30 14:00Z" in shown
    assert "█" * views.BAR_CELLS in shown
    assert "▏" in shown
    assert "t6 6, t5 5" in " ".join(shown.split())
    assert "and 2 more" in " ".join(shown.split())


def test_nothing_due_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Form.TABLE).show(DUE | {"buckets": [], "pending": 0}, views.due)
    assert "nothing is due" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "most", "cells"), [(0, 10, 0), (1, 1_000_000, 1), (5, 10, 15), (10, 10, 30)]
)
def test_a_bar_is_never_empty_and_never_too_long(count: int, most: int, cells: int) -> None:
    assert len(views.bar(count, most)) == cells
