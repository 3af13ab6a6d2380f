"""The worker around the engine: how it takes signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams import app
from streams.settings import Settings


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[app.Worker]:
    """A worker that has installed its handlers; whatever was there before comes back."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    loop = asyncio.new_event_loop()
    worker = app.Worker(app.build(Settings(data_dir=tmp_path)), loop=loop, redirect_stdouts=False)
    worker.install_signal_handlers()
    yield worker
    for number, handler in before.items():
        signal.signal(number, handler)
    loop.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_worker(worker: app.Worker, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)

    async def stopped() -> None:
        await asyncio.wait_for(worker.wait_until_stopped(), 10)

    worker.loop.run_until_complete(stopped())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_more_signal_at_the_very_end_does_not_kill_it(
    worker: app.Worker, number: signal.Signals
) -> None:
    worker.loop.close()
    # Nothing is raised, and the process is still there to say so.
    os.kill(os.getpid(), number)
