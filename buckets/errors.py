"""What can be wrong with a store."""

from __future__ import annotations


class BucketsError(Exception):
    """The base of everything this room raises."""


class StoreLocked(BucketsError):
    """Another process has the store open: stop it, or give this one its own `--data-dir`."""


class StoreDamaged(BucketsError):
    """The store's files cannot be read. It is wiped and rebuilt from the `state` topic."""


class StoreUnavailable(BucketsError):
    """The file system refuses: no space, no permission, too many open files, read-only.

    Make room or give back the permission, and start again. Nothing is lost and nothing is to be
    wiped: what the store lacks is in the `state` topic.
    """
