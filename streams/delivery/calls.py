"""The event loop that makes the calls, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from schemas.events import Status
from streams import logs
from streams.clock import Clock
from streams.delivery.channels import Call, Channel, Channels, Result
from streams.metrics import HANDLER

CHANNEL_GRACE_S: Final = 5.0
"""How much longer than the channel's own time-out any call may take."""
STOP_WAIT_S: Final = 10.0

_log: Final = logs.get("delivery")


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of the call that was started under `token`."""

    token: int
    result: Result


class Calls:
    """Runs calls and queues their results. How many at a time is the caller's business."""

    def __init__(self, channels: Channels, clock: Clock, timeout_s: float, workers: int) -> None:
        """`timeout_s` is a call's longest; `workers` how many names are resolved at a time."""
        self._channels = channels
        self._clock = clock
        self._timeout_s = timeout_s + CHANNEL_GRACE_S
        self._workers = workers
        self._finished: SimpleQueue[Finished] = SimpleQueue()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="delivery-calls", daemon=True)
        self._thread.start()

    def start(self, token: int, channel: Channel, call: Call) -> None:
        """Begin a call. Its end is queued exactly once, unless it is cancelled before."""
        self._loop.call_soon_threadsafe(self._begin, token, channel, call)

    def cancel(self, tokens: Iterable[int]) -> None:
        """Give up calls; what they would have come to is not queued any more."""
        for token in tokens:
            self._loop.call_soon_threadsafe(self._cancel, token)

    def finished(self, wait_s: float = 0.0) -> list[Finished]:
        """What ended since the last look. Waits up to `wait_s` for the first."""
        found = []
        try:
            found.append(self._finished.get(timeout=wait_s) if wait_s > 0 else self._next())
            while True:
                found.append(self._next())
        except Empty:
            return found

    def close(self) -> None:
        """Cancel what runs, close the channels, end the thread."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_WAIT_S)
            self._thread = None

    def _next(self) -> Finished:
        return self._finished.get_nowait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        # Names are resolved in threads; one slow name server must not hold up the others.
        self._loop.set_default_executor(ThreadPoolExecutor(self._workers, "delivery-names"))
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._wind_up())
            self._loop.close()

    async def _wind_up(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channels.close()
        await self._loop.shutdown_asyncgens()

    def _begin(self, token: int, channel: Channel, call: Call) -> None:
        task = self._loop.create_task(self._call(token, channel, call))
        self._tasks[token] = task
        # Not at the end of the coroutine: one that is cancelled before it began has no end.
        task.add_done_callback(lambda _: self._tasks.pop(token))

    def _cancel(self, token: int) -> None:
        task = self._tasks.get(token)
        if task is not None:
            task.cancel()

    async def _call(self, token: int, channel: Channel, call: Call) -> None:
        started_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await channel.send(call)
        except Exception as error:
            # A channel may be anybody's code: whatever it raises, the attempt has an outcome.
            _log.warning("channel failed", channel=channel.name, error=type(error).__name__)
            result = Result(Status.FAILED, type(error).__name__)
        HANDLER.labels(channel.name).observe(self._clock.monotonic_s() - started_s)
        self._finished.put(Finished(token, result))
