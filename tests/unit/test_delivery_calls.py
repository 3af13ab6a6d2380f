"""The thread that makes the calls: every call ends exactly once, whatever the channel does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from schemas.events import DueEvent, Status
from streams.clock import SystemClock
from streams.delivery import calls as calls_module
from streams.delivery.calls import Calls, Finished
from streams.delivery.channels import Call, Channels, LogChannel, Result

WAIT_S = 30.0


class _Channel:
    """Answers, raises or hangs, as the id of the reminder says."""

    name = "webhook"
    closed = False
    cancelled = 0

    async def send(self, call: Call) -> Result:
        if call.event.id == "raise":
            raise ZeroDivisionError("secret of a receiver")
        if call.event.id == "hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return Result(Status.ACCEPTED)

    async def close(self) -> None:
        self.closed = True


def _call(reminder_id: str) -> Call:
    now = "2026-01-01T00:00:00.000Z"
    event = DueEvent(
        fire_id="0" * 32,
        id=reminder_id,
        version=0,
        occurrence=0,
        attempt=1,
        tenant="default",
        kind="reminder",
        destination="channel:log",
        due_at=now,
        fired_at=now,
        payload=Raw(b'"the payload"'),
    )
    return Call(event)


@pytest.fixture
def channel() -> _Channel:
    return _Channel()


@pytest.fixture
def calls(channel: _Channel) -> Iterator[Calls]:
    made = Calls(Channels(channel), SystemClock(), timeout_s=WAIT_S, workers=2)
    made.open()
    yield made
    made.close()
    assert channel.closed


def test_a_result_is_queued_once(calls: Calls, channel: _Channel) -> None:
    calls.start(7, channel, _call("a"))
    assert calls.finished(WAIT_S) == [Finished(7, Result(Status.ACCEPTED))]
    assert calls.finished() == []


def test_what_a_channel_raises_is_a_failure_without_its_words(
    calls: Calls, channel: _Channel
) -> None:
    calls.start(7, channel, _call("raise"))
    assert calls.finished(WAIT_S) == [Finished(7, Result(Status.FAILED, "ZeroDivisionError"))]


def test_a_channel_that_hangs_is_ended(channel: _Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "CHANNEL_GRACE_S", 0.0)
    calls = Calls(Channels(channel), SystemClock(), timeout_s=0.05, workers=2)
    calls.open()
    calls.start(7, channel, _call("hang"))
    assert calls.finished(WAIT_S) == [Finished(7, Result(Status.FAILED, "TimeoutError"))]
    calls.close()


def test_a_cancelled_call_queues_nothing(calls: Calls, channel: _Channel) -> None:
    calls.start(1, channel, _call("hang"))
    calls.start(2, channel, _call("hang"))
    calls.cancel([1, 2, 3])
    calls.start(4, channel, _call("a"))
    assert [end.token for end in calls.finished(WAIT_S)] == [4]


def test_the_log_channel_writes_one_line_without_the_payload() -> None:
    with capture_logs() as lines:
        assert asyncio.run(LogChannel().send(_call("invoice"))).status is Status.DELIVERED
    (line,) = lines
    assert (line["id"], line["fire_id"]) == ("invoice", "0" * 32)
    assert "the payload" not in str(line)
