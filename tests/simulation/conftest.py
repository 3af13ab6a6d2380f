"""A wheel that opens its minutes in small pieces, so that short histories meet every edge."""

from __future__ import annotations

import pytest

from tests.simulation.small import make_wheels_small


@pytest.fixture(autouse=True)
def small_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheels_small(monkeypatch)
