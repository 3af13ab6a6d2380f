"""`schedule --file`: check every line, then send, with a progress bar for people."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from streams.console import files
from streams.console.failures import LinesRefused
from streams.console.files import Format, Line
from streams.console.output import note, printable, terminal
from streams.console.session import Session

if TYPE_CHECKING:
    from rich.progress import Progress

BAD_SHOWN_MAX: Final = 20
LINES_PER_UPDATE: Final = 500
ABANDON_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class Check:
    """What the first look at a file found."""

    good: int = 0
    bad: int = 0
    types: Counter[str] = field(default_factory=Counter)


def send_file(session: Session, path: Path, said: str | None, *, skip_bad: bool) -> None:
    """Send the commands of a file. Nothing is sent if a line is bad, unless `skip_bad`.

    Raises `LinesRefused` if any line is bad, `Usage`, OSError, KafkaException.
    """
    form = files.format_of(path, said)
    with files.open_rereadable(path) as file, _progress() as progress:
        check = _check(file, form, progress)
        started_s = session.clock.monotonic_s()
        sent = 0
        if not check.bad or skip_bad:
            sent = _send(session, file, form, check.good, progress)
        seconds = session.clock.monotonic_s() - started_s
    summary = {
        "file": str(path),
        "commands": check.good + check.bad,
        "sent": sent,
        "bad": check.bad,
        "types": dict(check.types),
        "seconds": round(seconds, 3),
        "per_second": round(sent / seconds) if seconds > 0 and sent else 0,
    }
    session.output.show(summary, _said)
    if check.bad:
        raise LinesRefused(_complaint(path, check.bad, sent))


def _said(summary: dict[str, Any]) -> str:
    types = ", ".join(f"{name} {count:,}" for name, count in sorted(summary["types"].items()))
    return (
        f"{summary['sent']:,} of {summary['commands']:,} commands sent in "
        f"{summary['seconds']:.1f} s, {summary['per_second']:,} a second"
        + (f" ({types})" if types else "")
    )


def _complaint(path: Path, bad: int, sent: int) -> str:
    lines = f"{bad} bad line{'s' if bad > 1 else ''}"
    if sent:
        return f"{path}: {lines} left out"
    return f"{path}: {lines}, so nothing was sent; --skip-bad sends the others"


def _check(file: BinaryIO, form: Format, progress: Progress) -> Check:
    check = Check()
    task = progress.add_task("checking", total=files.size_bytes(file))
    for count, line in enumerate(files.read(file, form), 1):
        if count % LINES_PER_UPDATE == 0:
            progress.update(task, completed=line.end)
        if line.command is None:
            check.bad += 1
            _show_bad(line, check.bad, progress)
        else:
            check.good += 1
            check.types[type(line.command).__name__.lower()] += 1
    progress.remove_task(task)
    if check.bad > BAD_SHOWN_MAX:
        note(f"… and {check.bad - BAD_SHOWN_MAX} more")
    return check


def _show_bad(line: Line, count: int, progress: Progress) -> None:
    """Name a bad line and its field. Above the bar, so that the bar does not draw over it."""
    if count > BAD_SHOWN_MAX:
        return
    assert line.error is not None, "a line without a command has an error"
    said = printable(f"line {line.number}: {line.error.message}")
    if progress.disable:
        note(said)
    else:
        progress.console.print(said)


def _send(session: Session, file: BinaryIO, form: Format, total: int, progress: Progress) -> int:
    from streams.console.sender import Sender

    sender = Sender(session.settings(), session.clock)
    task = progress.add_task("sending", total=total)
    try:
        for count, line in enumerate(files.read(file, form), 1):
            if line.command is not None:
                sender.submit(line.command)
            if count % LINES_PER_UPDATE == 0:
                progress.update(task, completed=sender.confirmed)
        sender.finish(lambda confirmed: progress.update(task, completed=confirmed))
    except BaseException:
        sender.abandon(ABANDON_TIMEOUT_S)
        note(
            f"stopped: at least {sender.confirmed:,} of {total:,} commands are in the log; "
            "sending the file again is safe"
        )
        raise
    return sender.confirmed


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, and nothing at all where that is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    shown = sys.stderr.isatty()
    with Progress(
        *columns, console=terminal(sys.stderr), transient=True, disable=not shown
    ) as progress:
        yield progress
