"""What a scrape of a running processor says while due events are not answered."""

from __future__ import annotations

import pytest

from tests.acceptance import upstream
from tests.deployment import Deployment
from tests.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

CLAIMS_MAX = 5
COUNT = 60


def test_what_is_held_back_is_counted_and_a_restore_comes_to_its_end(
    deployment: Deployment,
) -> None:
    worker = deployment.worker(claims_max=str(CLAIMS_MAX), static_membership="false")
    worker.start()
    worker.wait_ready()
    now_ms = upstream.now_ms()
    upstream.send(deployment, *(upstream.schedule(f"m-{n}", now_ms, "due") for n in range(COUNT)))
    held_back = 'minutewheel_throttled_total{by="claims"}'
    wait_until(lambda: upstream.metric(worker, held_back) > 0, 30, "something held back")
    partitions = deployment.settings.partitions
    full = CLAIMS_MAX * partitions
    wait_until(
        lambda: upstream.metric(worker, "minutewheel_claims") == full, 10, "all claims taken"
    )
    assert upstream.metric(worker, "minutewheel_pending") == COUNT - full
    oldest_s = upstream.metric(worker, "minutewheel_oldest_due_timestamp_seconds")
    assert now_ms / 1_000 <= oldest_s <= upstream.now_ms() / 1_000
    assert upstream.metric(worker, "minutewheel_transaction_seconds_count") > 0
    assert upstream.metric(worker, "minutewheel_fire_lag_seconds_count") == full
    # Killed, so that its successor has a changelog to read; markers follow the last record of it.
    worker.kill()
    worker.start()
    worker.wait_ready()
    wait_until(lambda: upstream.metric(worker, "minutewheel_claims") == full, 10, "gauges set")
    assert upstream.metric(worker, "minutewheel_restore_remaining_records") == 0
    assert worker.stop() == 0
