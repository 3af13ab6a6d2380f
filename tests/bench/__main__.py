"""`make bench`: the figures of the README, in under five minutes."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import orjson

from deploy.broker import LocalCluster
from streams import logs
from streams.settings import Settings
from tests.bench import lateness, throughput, workload
from tests.kafka import free_port

COUNT = 300_000
RATE_PER_S = 500
STEADY_S = 20
PENDING = 1_000_000


def main() -> None:
    """Run everything once and print a table, and the figures as one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="records per measurement")
    parser.add_argument("--only", choices=["throughput", "lateness"], help="half of it")
    options = parser.parse_args()
    logs.configure("CRITICAL")
    # As a worker does before its first turn.
    gc.freeze()
    with tempfile.TemporaryDirectory(prefix="minutewheel-bench-") as directory:
        running = os.environ.get("MINUTEWHEEL_TEST_BOOTSTRAP")
        if running:
            figures = _measure(running, Path(directory), options.count, options.only)
        else:
            with LocalCluster(Path(directory) / "broker", port=free_port()) as cluster:
                figures = _measure(cluster.bootstrap, Path(directory), options.count, options.only)
    sys.stdout.write(orjson.dumps(figures, option=orjson.OPT_SERIALIZE_NUMPY).decode() + "\n")


def _say(name: str, figure: str, beside: str = "") -> None:
    sys.stdout.write(f"{name:<28}{figure:>16}  {beside}\n")
    sys.stdout.flush()


def _measure(bootstrap: str, directory: Path, count: int, only: str | None) -> dict[str, float]:
    stamp = int(time.time())
    figures: dict[str, float] = {}

    def settings(name: str) -> Settings:
        return workload.shifted_settings(bootstrap, f"bench{stamp}{name}.", directory / name)

    if only != "lateness":
        figures |= _throughput(settings("flow"), count)
    if only != "throughput":
        for pending in (0, PENDING):
            name = f"with{pending}"
            late_ms = sorted(lateness.steady(settings(name), RATE_PER_S, STEADY_S, pending))
            figures |= _lateness(late_ms, pending)
    return figures


def _lateness(late_ms: list[float], pending: int) -> dict[str, float]:
    """`late_ms` in ascending order."""
    found = {"min": late_ms[0], "max": late_ms[-1]}
    found |= {f"p{share}": late_ms[len(late_ms) * share // 100] for share in (50, 99)}
    _say(
        f"lateness, {pending:,} pending",
        f"{found['p50']:.1f}/{found['p99']:.1f} ms",
        f"p50/p99 at {RATE_PER_S}/s; min {found['min']:.1f}, max {found['max']:.1f}",
    )
    return {f"lateness_{name}_ms_with_{pending}": at_ms for name, at_ms in found.items()}


def _throughput(settings: Settings, count: int) -> dict[str, float]:
    size = workload.write(settings, count, time.time_ns() // 1_000_000)
    _say("records", f"{count:,}", f"{size} bytes each, {settings.partitions} partitions")
    bare = throughput.bare_loop(settings, count)
    _say("bare transaction loop", f"{bare:,.0f}/s", "1.00")
    intake, drain = throughput.intake_and_drain(settings, count)
    _say("intake", f"{intake:,.0f}/s", f"{intake / bare:.2f} of the bare loop")
    _say("drain", f"{drain:,.0f}/s", f"{drain / bare:.2f} of the bare loop")
    restored, records = throughput.restore(settings)
    _say("restore", f"{restored:,.0f}/s", f"{restored / bare:.2f} of the bare loop, {records:,}")
    return {
        "bare_per_s": bare,
        "intake_per_s": intake,
        "drain_per_s": drain,
        "restore_per_s": restored,
    }


if __name__ == "__main__":
    main()
