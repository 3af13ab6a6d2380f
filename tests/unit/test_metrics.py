"""The metrics' exposed names and labels, and the histogram that takes a whole turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streams import metrics
from streams.metrics import TurnHistogram

# Each as the contract writes it, with the type it is exposed as and its labels.
CONTRACT = {
    "commands_total": ("counter", {"type", "result"}),
    "pending": ("gauge", set()),
    "due": ("gauge", {"horizon"}),
    "fire_lag_seconds": ("histogram", set()),
    "delivery_lag_seconds": ("histogram", set()),
    "queue_wait_seconds": ("histogram", set()),
    "handler_seconds": ("histogram", {"channel"}),
    "outcomes_total": ("counter", {"channel", "status"}),
    "retries_total": ("counter", set()),
    "dead_total": ("counter", {"reason"}),
    "duplicates_suppressed_total": ("counter", {"where"}),
    "throttled_total": ("counter", {"by"}),
    "ack_failures_total": ("counter", set()),
    "claims": ("gauge", set()),
    "oldest_due_timestamp_seconds": ("gauge", set()),
    "turn_seconds": ("histogram", set()),
    "turn_records": ("histogram", set()),
    "transaction_seconds": ("histogram", set()),
    "restore_remaining_records": ("gauge", set()),
    "store_bytes": ("gauge", set()),
    "clock_step_seconds": ("gauge", set()),
    "heartbeat_timestamp_seconds": ("gauge", set()),
    "build_info": ("gauge", {"version"}),
}
NEVER_LABELS = {"id", "reminder", "fire_id", "recipient", "address", "destination", "url", "key"}
BY_NAME = {
    metric._name: metric
    for metric in vars(metrics).values()
    if hasattr(metric, "_labelnames") and hasattr(metric, "_name")
}
HISTOGRAM = "minutewheel_test_lag_seconds"


def exposed() -> dict[str, str]:
    """Every name that a scrape shows, and its type."""
    shown: dict[str, str] = {}
    for family in text_string_to_metric_families(generate_latest().decode()):
        # The text format names a counter's family without the suffix its samples carry.
        shown[family.name + ("_total" if family.type == "counter" else "")] = family.type
    return shown


@pytest.mark.parametrize("name", CONTRACT)
def test_each_metric_of_the_contract_is_exposed_under_its_name(name: str) -> None:
    assert exposed()[f"minutewheel_{name}"] == CONTRACT[name][0]


@pytest.mark.parametrize("name", CONTRACT)
def test_each_has_the_labels_of_the_contract(name: str) -> None:
    stem = f"minutewheel_{name}".removesuffix("_total").removesuffix("_info")
    declared = BY_NAME.get(stem)
    # The turn's histograms have none by construction; an information carries its labels itself.
    labels = set(declared._labelnames) if declared is not None else set()
    wanted = set() if name == "build_info" else CONTRACT[name][1]
    assert labels == wanted


def test_a_counter_s_samples_carry_the_suffix() -> None:
    metrics.RETRIES.inc(0)
    assert "\nminutewheel_retries_total " in generate_latest().decode()


def test_the_release_is_told() -> None:
    assert '\nminutewheel_build_info{version="' in generate_latest().decode()


def test_nobody_is_named_by_a_label() -> None:
    named = {name: set(metric._labelnames) & NEVER_LABELS for name, metric in BY_NAME.items()}
    assert {name: labels for name, labels in named.items() if labels} == {}


@pytest.fixture
def histogram() -> Iterator[TurnHistogram]:
    """A histogram of three bounds that leaves the registry with the test."""
    made = TurnHistogram(HISTOGRAM, "For a test.", (0.1, 1, 60))
    yield made
    REGISTRY.unregister(made)


def samples() -> dict[str, float]:
    """The histogram's samples by what tells them apart."""
    found = {}
    for family in text_string_to_metric_families(generate_latest().decode()):
        if family.name == HISTOGRAM:
            for sample in family.samples:
                suffix = sample.name.removeprefix(HISTOGRAM)
                found[sample.labels.get("le", suffix)] = sample.value
    return found


def test_an_empty_histogram_has_all_its_buckets(histogram: TurnHistogram) -> None:
    assert samples() == {"0.1": 0, "1.0": 0, "60.0": 0, "+Inf": 0, "_count": 0, "_sum": 0}


def test_buckets_are_cumulative_and_a_bound_belongs_to_its_own(histogram: TurnHistogram) -> None:
    histogram.observe_all([0.0, 0.1, 0.5, 1, 1.5, 60, 61])
    assert samples() == {
        "0.1": 2,
        "1.0": 4,
        "60.0": 6,
        "+Inf": 7,
        "_count": 7,
        "_sum": pytest.approx(124.1),
    }


def test_turns_add_up_and_an_empty_one_changes_nothing(histogram: TurnHistogram) -> None:
    histogram.observe_all([0.05])
    histogram.observe_all([])
    histogram.observe_all([2, 2])
    assert samples() == {
        "0.1": 1,
        "1.0": 1,
        "60.0": 3,
        "+Inf": 3,
        "_count": 3,
        "_sum": pytest.approx(4.05),
    }
