"""What `up` makes sure of before it starts: that it is alone here, and can be stopped."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streams.console.failures import INTERRUPTED, AlreadyUp
from streams.console.output import note
from streams.errors import StreamsError
from streams.settings import Settings


@contextmanager
def only_one(settings: Settings) -> Iterator[None]:
    """Held while `up` runs on a data directory. Raises `AlreadyUp` naming who holds it."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    path = settings.data_dir / "up.lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyUp(_already(settings.data_dir, lock.read())) from None
        lock.seek(0)
        lock.truncate()
        holder = {"pid": os.getpid(), "bootstrap": settings.bootstrap, "http": settings.http}
        lock.write(json.dumps(holder))
        lock.flush()
        yield


def _already(data_dir: Path, written: str) -> str:
    said = f"`up` runs on {data_dir} already"
    try:
        holder = json.loads(written)
        said += f" (process {holder['pid']}): Kafka at {holder['bootstrap']}, http at "
        said += f"http://{holder['http']}"
    except (ValueError, KeyError, TypeError):
        # It has only just begun, and has not written who it is yet.
        pass
    return f"{said}. Use it, stop it, or choose another --data-dir"


@contextmanager
def signals() -> Iterator[threading.Event]:
    """The first signal asks to stop; the second ends at once."""
    stopping = threading.Event()

    def stop(number: int, _: Any) -> None:
        if stopping.is_set():
            note("minutewheel: ended at once; the parts end by themselves")
            os._exit(INTERRUPTED if number == signal.SIGINT else 128 + number)
        note("\nminutewheel: stopping; once more ends at once")
        stopping.set()

    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def refuse_taken(address: str) -> None:
    """Raise `StreamsError` if something listens at `address` (HOST:PORT) already."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the server does it: a port whose last connections are still fading out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError as error:
            raise StreamsError(
                f"HTTP cannot be served at {address}: {error.strerror}; choose another --http"
            ) from None
