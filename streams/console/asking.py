"""One command on its way: into the log, and the answer to the person who waits."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import typer

from schemas.commands import Cancel, Command
from schemas.events import ReplyStatus, Source
from streams.console import views
from streams.console.failures import Unanswered
from streams.console.sender import Sender
from streams.console.session import Session
from streams.errors import NotFound, TooLate

DONE: Final = {
    ReplyStatus.ACCEPTED,
    ReplyStatus.DUPLICATE,
    ReplyStatus.REPLACED,
    ReplyStatus.RESCHEDULED,
    ReplyStatus.CANCEL_REQUESTED,
}


def send(session: Session, command: Command, timeout_s: float | None) -> None:
    """Send a command; with `timeout_s`, wait that long for its reply.

    Prints the reply, or where the command lies. Ends the program with the code of the reply.
    Raises `Unanswered`.
    """
    sender = Sender(session.settings(), session.clock)
    if timeout_s is None:
        session.output.show(_sent(command, sender.send(command), "sent"), views.sent)
        return
    source, reply = sender.ask(command, timeout_s)
    if reply is None:
        if session.output.form != "table":
            session.output.show(_sent(command, source, "unanswered"), views.sent)
        raise Unanswered(
            f"no processor answered within {timeout_s:g} s. The command IS in the log "
            f"({source.topic}, partition {source.partition}, offset {source.offset}) and will be "
            "handled as soon as a processor runs: start `minutewheel worker`"
        )
    session.output.show(reply, lambda shown: views.reply(shown, session.clock.now_ms()))
    code = exit_code(command, msgspec.json.decode(reply)["status"])
    if code:
        raise typer.Exit(code)


def exit_code(command: Command, status: str) -> int:
    """What a reply means to a script."""
    if status in DONE or (status == ReplyStatus.CANCELLED and isinstance(command, Cancel)):
        return 0
    if status == ReplyStatus.NOT_FOUND:
        return NotFound.exit_code
    # A schedule that is answered `cancelled` came after its own cancel: too late as well.
    return 1 if status == ReplyStatus.REJECTED else TooLate.exit_code


def _sent(command: Command, source: Source, status: str) -> dict[str, Any]:
    place = {"topic": source.topic, "partition": source.partition, "offset": source.offset}
    return {"id": command.id, "status": status, "command": place}
