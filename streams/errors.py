"""What can stop a minutewheel process. Each docstring tells the operator what to do."""

from __future__ import annotations


class StreamsError(Exception):
    """The base of everything this room raises. `exit_code` is the process's own."""

    exit_code = 1


class BadSetting(StreamsError):
    """A setting cannot be used: the message names it. Correct it and start again."""

    exit_code = 2


class BrokerUnreachable(StreamsError):
    """No broker answered at the bootstrap address, or none let this client in.

    Check the address and that Kafka runs; where the message says that the client was not let in,
    the certificates, the user and the password.
    """

    exit_code = 5


class TopicsMissing(StreamsError):
    """Topics of this prefix do not exist or differ: run `minutewheel topics create`."""


class PartitionsChanged(StreamsError):
    """The topics' partition count is not the one the data was written with.

    Ids now hash to other partitions, so nothing may be written. Restore the old count by
    recreating the topics from a backup, or start afresh under another `--prefix`.
    """


class Fenced(StreamsError):
    """Another process took over this one's transactional id. Give each process its own `--name`."""


class EngineFailed(StreamsError):
    """The engine stopped on an error it cannot heal: read the log, then restart the process.

    Nothing uncommitted was shown to anyone; a restart reads the committed state and goes on.
    """


class NotFound(StreamsError):
    """There is no such reminder."""

    exit_code = 3


class TooLate(StreamsError):
    """The reminder's state or version does not allow this any more."""

    exit_code = 4


class NoNode(StreamsError):
    """No running processor could be asked. Start `minutewheel worker`, or wait until ready."""

    exit_code = 5
