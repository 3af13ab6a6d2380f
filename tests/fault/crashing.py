"""A `minutewheel` process that kills itself with SIGKILL at a named gap.

    python -m tests.fault.crashing GAP COUNT worker …

At the COUNT-th time it comes to the gap, the process is gone as if its power had been cut; at
`disk-full` its store refuses a write instead, once. Only the place is chosen here; everything
else is the product's own code.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from buckets.errors import StoreUnavailable
from buckets.partition import Partition
from buckets.rocks_store import RocksStore
from streams.console import cli
from streams.processor.outputs import Outputs
from streams.processor.ownership import Ownership
from streams.processor.transaction import Transaction
from streams.processor.turn import Turn

Patch = Callable[[Callable[[], None]], None]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _refuse() -> None:
    raise StoreUnavailable("IO error: No space left on device: While appending to file")


def _before(owner: type, name: str) -> Patch:
    def patch(arrive: Callable[[], None]) -> None:
        original = getattr(owner, name)

        def replaced(*arguments: Any, **named: Any) -> Any:
            arrive()
            return original(*arguments, **named)

        setattr(owner, name, replaced)

    return patch


def _after(owner: type, name: str, *, if_any: bool = False) -> Patch:
    def patch(arrive: Callable[[], None]) -> None:
        original = getattr(owner, name)

        def replaced(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            if result or not if_any:
                arrive()
            return result

        setattr(owner, name, replaced)

    return patch


GAPS: dict[str, Patch] = {
    "commands-polled-nothing-decided": _before(Turn, "take_commands"),
    "half-of-a-turn-produced": _after(Transaction, "state"),
    "everything-produced-nothing-committed": _before(Transaction, "commit"),
    "committed-not-settled": _before(Partition, "settle"),
    "settled-in-part": _after(Partition, "settle"),
    "bucket-read-nothing-produced": _after(Partition, "take_due", if_any=True),
    "some-fired-nothing-committed": _after(Outputs, "fire"),
    "restoring": _after(Partition, "restore"),
    "restored-not-resumed": _before(Ownership, "_activate"),
    "inside-a-flush": _before(RocksStore, "flush"),
    "disk-full": _before(RocksStore, "write"),
}


FAULTS: dict[str, Callable[[], None]] = {"disk-full": _refuse}


def main() -> None:
    """Patch the gap and run the command line."""
    gap, count, *arguments = sys.argv[1:]
    left = int(count)

    def arrive() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            FAULTS.get(gap, _die)()

    GAPS[gap](arrive)
    sys.exit(cli.main(arguments))


if __name__ == "__main__":
    main()
