"""Small bounds for the wheel, so that short histories meet every edge."""

from __future__ import annotations

from functools import partial

import pytest

from buckets.wheel import Wheel


def make_wheels_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four rows in the heap and three a scan."""
    monkeypatch.setattr("buckets.partition.Wheel", partial(Wheel, rows_max=4))
    monkeypatch.setattr("buckets.wheel.SCAN_ROWS", 3)
