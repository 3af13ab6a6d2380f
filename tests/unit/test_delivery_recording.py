"""When outcomes are recorded, and whether anything is sent meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams.clock import SystemClock
from streams.delivery import recording
from streams.delivery.recorder import NotRecorded
from streams.delivery.recording import Recording
from streams.settings import Settings


class DeafRecorder:
    """Nobody answers it."""

    broken = False

    def __init__(self, *_: Any) -> None:
        return

    def record(self, *_: Any) -> None:
        raise NotRecorded("nobody answered")


def test_sending_goes_on_after_what_was_not_recorded_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its partitions were lost meanwhile: nothing is left whose recording could show anything."""
    monkeypatch.setattr(recording, "Recorder", DeafRecorder)
    partition = SimpleNamespace(batch=lambda: object(), finished=True)
    open_partitions = [partition]
    owned: Any = SimpleNamespace(open=lambda: open_partitions)
    consumer: Any = SimpleNamespace(consumer_group_metadata=lambda: None)
    waiting = Recording(Settings(), SystemClock(), consumer, owned)
    waiting.record(1.0)
    assert not waiting.works, "nothing is sent whose outcome may not be recorded"
    open_partitions.clear()
    waiting.record_if_due()
    assert waiting.works
