"""The one place where a test waits: for a condition, with a bound, never for a time."""

import threading
import time
from collections.abc import Callable

POLL_INTERVAL_S = 0.02


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Returns once `condition()` is true; fails the test, naming `what`, after `timeout_s`."""
    never = threading.Event()
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        never.wait(POLL_INTERVAL_S)
