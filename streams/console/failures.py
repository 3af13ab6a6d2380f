"""The one place where an exception becomes a line on standard error and an exit code."""

from __future__ import annotations

import sys
import traceback
from typing import Final

from schemas.errors import Refused
from streams.errors import BadSetting, StreamsError
from streams.settings import Settings

INTERRUPTED: Final = 130
"""What a shell calls a program that ended by Ctrl-C: 128 and the signal's number."""

MESSAGE_LINES_JOINED_MAX: Final = 4
_NO_BROKER: Final = {
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_TIMED_OUT",
    "_RESOLVE",
    "_TIMED_OUT_QUEUE",
}


class Usage(StreamsError):
    """The command line asks for something that makes no sense: read the command's --help."""

    exit_code = 2


class LinesRefused(StreamsError):
    """Lines of the file break the contract: mend them and send the file again.

    Sending a file twice is safe: a command that was handled before is answered as a duplicate.
    """


class Unanswered(StreamsError):
    """The command is in the log, but no processor answered in time. Start one: it will handle it.

    Asking again with `get` shows what became of it.
    """


class ChildDied(StreamsError):
    """A process that `up` started has ended on its own: read the tail of its log."""


class AlreadyUp(StreamsError):
    """`up` already runs on this data directory: use it, stop it, or choose another directory."""


def is_from_kafka(error: Exception) -> bool:
    """Whether a Kafka client raised it."""
    if "confluent_kafka" not in sys.modules:
        return False
    from confluent_kafka import KafkaException

    return isinstance(error, KafkaException)


def with_address(error: Exception, settings: Settings) -> StreamsError:
    """What a Kafka client raised, in this product's terms."""
    inner = error.args[0]
    name, said = inner.name(), inner.str()
    if name in _NO_BROKER:
        from streams.kafka import unreachable

        return unreachable(settings, said)
    if name in {"_INVALID_ARG", "_CONF", "_UNKNOWN_CONF"}:
        return BadSetting(f"a Kafka client refuses its settings: {said}")
    return StreamsError(f"Kafka at {settings.bootstrap} answered {name}: {said}")


def explain(error: Exception) -> tuple[str, int] | None:
    """The line and the exit code of an error that was foreseen; None for any other."""
    if isinstance(error, StreamsError):
        return str(error), error.exit_code
    if isinstance(error, Refused):
        return error.message, Usage.exit_code
    # What the option parser raises knows how to say itself. Its class has moved between releases
    # of the library, its method has not.
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        return _with_hint(error, str(format_message())), Usage.exit_code
    if isinstance(error, OSError):
        named = error.filename is not None
        return f"{error.filename}: {error.strerror}" if named else str(error), 1
    if type(error).__module__.startswith("deploy.broker"):
        return _joined(str(error)), 1
    return None


def report(error: Exception) -> int:
    """Say what went wrong on standard error; returns the exit code."""
    explained = explain(error)
    if explained is None:
        traceback.print_exception(error)
        explained = f"an error nobody foresaw, please report it: {error!r}", 1
    line, code = explained
    if not line:
        return code
    print(f"minutewheel: {line}", file=sys.stderr)  # noqa: T201 - the program's own voice
    return code


def _with_hint(error: Exception, message: str) -> str:
    context = getattr(error, "ctx", None)
    if context is None or not message.strip():
        # Nothing is said where the help itself has just been printed.
        return message
    return f"{message.rstrip('.')}. Try '{context.command_path} --help'."


def _joined(message: str) -> str:
    """A message of a few lines as one; one that quotes a log keeps its lines."""
    lines = message.splitlines()
    return " ".join(lines) if len(lines) <= MESSAGE_LINES_JOINED_MAX else message
