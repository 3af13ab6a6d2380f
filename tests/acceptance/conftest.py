"""A deployment and a receiver for each acceptance test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment import Deployment, deployed
from tests.kafka import RunningKafka
from tests.receiver import Receiver, receiving


@pytest.fixture
def deployment(kafka: RunningKafka, tmp_path: Path) -> Iterator[Deployment]:
    """One deployment whose processes come back under their own names."""
    with deployed(kafka.bootstrap, tmp_path) as deployment:
        yield deployment


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """An HTTP receiver that remembers its calls."""
    with receiving() as receiver:
        yield receiver
