"""What can be wrong with a store."""

from __future__ import annotations


class BucketsError(Exception):
    """The base of everything this room raises."""


class StoreLocked(BucketsError):
    """Another process has the store open: stop it, or give this one its own `--data-dir`."""


class StoreDamaged(BucketsError):
    """The store's files cannot be read. It is wiped and rebuilt from the `state` topic."""


class StoreForeign(BucketsError):
    """The store belongs to another topic or cluster. It is wiped and rebuilt."""
