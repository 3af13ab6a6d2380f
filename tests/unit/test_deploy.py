"""What an operator reads and runs says what the code does."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streams import app, metrics
from streams.delivery.worker import REVOKE_SHARE
from streams.settings import Settings, load

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OF_PROMETHEUS = {"up"}
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}
PREFIX = "MINUTEWHEEL_"


def text(path: str) -> str:
    """A file under deploy/."""
    return (DEPLOY / path).read_text(encoding="utf-8")


def values(key: str) -> list[str]:
    """What stands under a key in the alerts, one line each."""
    return re.findall(rf"^ +(?:- )?{key}: (.+)$", text("prometheus/alerts.yml"), re.MULTILINE)


# ---- alerts ----


def samples() -> set[str]:
    """The names that may be asked for: those a scrape shows."""
    assert metrics.BUILD
    families = text_string_to_metric_families(generate_latest().decode())
    return {f"{family.name}{suffix}" for family in families for suffix in SUFFIXES[family.type]}


def test_every_metric_of_the_alerts_exists() -> None:
    known = samples() | OF_PROMETHEUS
    expressions = values("expr")
    assert len(expressions) == len(values("alert")) > 0
    for expression in expressions:
        bare = re.sub(r'"[^"]*"', "", expression)
        asked = set(re.findall(r"minutewheel_\w+|\bup\b", bare))
        assert asked, expression
        assert asked <= known, asked - known


def test_every_label_of_the_alerts_is_one_of_the_metric_s() -> None:
    declared = {
        metric._name: set(metric._labelnames)
        for metric in vars(metrics).values()
        if hasattr(metric, "_labelnames")
    }
    for name, label in re.findall(r'(minutewheel_\w+?)_total\{(\w+)="', "".join(values("expr"))):
        assert label in declared[name]


def test_every_alert_has_its_section_in_the_runbook() -> None:
    sections = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", text("RUNBOOK.md"), re.MULTILINE)
    }
    names = values("alert")
    assert {name.lower() for name in names} <= sections
    runbooks = [link.strip('"').partition("#") for link in values("runbook")]
    assert {file for file, _, _ in runbooks} == {"RUNBOOK.md"}
    assert [section for _, _, section in runbooks] == [name.lower() for name in names]
    links = re.findall(r"\]\(#([a-z0-9-]+)\)", text("RUNBOOK.md"))
    assert set(links) <= sections


# ---- the runbook and the failure table ----


@cache
def written() -> str:
    """All of the product's code, with texts that go over several lines put together."""
    rooms = (TOP / room for room in ("schemas", "buckets", "streams"))
    code = "\n".join(file.read_text() for room in rooms for file in sorted(room.rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", code)


def quoted() -> Iterator[str]:
    """The log lines and messages that the runbook's tables are about."""
    for table in re.findall(r"(?:^\|.*\n)+", text("RUNBOOK.md"), re.MULTILINE):
        heads, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
        column = next(i for i, head in enumerate(heads) if head in {"log line", "message"})
        yield from (row[column].strip("`") for row in rows if row[column].startswith("`"))


@pytest.mark.parametrize("line", sorted(set(quoted())))
def test_every_line_quoted_in_the_runbook_is_one_the_code_writes(line: str) -> None:
    parts = [part.strip() for part in line.split("…") if part.strip(" ,:")]
    assert parts
    for part in parts:
        assert part in written()


def test_every_test_of_the_failure_table_exists() -> None:
    table = (TOP / "streams" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", table))
    files = list((TOP / "tests").rglob("test_*.py"))
    there = {file.stem for file in files}
    for file in files:
        there |= set(re.findall(r"def (test_\w+)", file.read_text()))
    assert named
    assert named - there == set()


def test_every_row_of_the_failure_table_says_what_shows_it() -> None:
    table = (TOP / "streams" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| ") and line.count("|") == 6]
    shown = [row.strip("| ").rsplit(" | ", 1)[1] for row in rows if not row.startswith("| gap |")]
    assert len(shown) > 30
    assert [row for row in shown if not re.search(r"`test_|^none yet|: the same", row)] == []


# ---- units ----


def assignments(file: str) -> dict[str, str]:
    """The settings an environment file names, also those that are commented out."""
    lines = re.findall(rf"^#?({PREFIX}\w+)=(.*)$", text(file), re.MULTILINE)
    assert len(lines) == len(dict(lines)), "named twice"
    return dict(lines)


def test_the_environment_file_names_every_setting_with_its_default() -> None:
    named = assignments("systemd/minutewheel.env")
    wanted = {PREFIX + setting.name.upper() for setting in fields(Settings)}
    assert named.keys() == wanted
    # The two that differ: a name is the host's, and delivery's metrics are meant to be scraped.
    apart = {f"{PREFIX}NAME", f"{PREFIX}DELIVER_HTTP"}
    said = {name: value for name, value in named.items() if name not in apart}
    assert load({}, environment=said) == Settings()
    assert load({}, environment={name: named[name] for name in apart}).deliver_http


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_time_to_drain(unit: Path) -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    assert found is not None
    settings = Settings()
    give_back_s = REVOKE_SHARE * settings.poll_interval_ms_max / 1_000
    assert int(found[1]) > app.STOP_TIMEOUT_S
    assert int(found[1]) > settings.deliver_grace_s + give_back_s + settings.deliver_commit_ms / 1e3


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_unit(unit: Path, tmp_path: Path) -> None:
    # The program is not installed where the unit expects it, and systemd looks.
    program = "/opt/minutewheel/bin/minutewheel"
    body = unit.read_text()
    assert f"ExecStart={program} " in body
    instance = tmp_path / unit.name.replace("@", "@one")
    instance.write_text(body.replace(program, shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(instance)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]
    assert (done.returncode, said) == (0, [])


# ---- the image ----


def test_the_image_installs_what_is_locked_and_runs_as_nobody_special() -> None:
    lines = text("Containerfile")
    assert re.findall(r"^FROM (\S+)", lines, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert "--require-hashes --requirement requirements.lock" in lines
    assert "--no-deps ." in lines
    assert re.search(r"^USER 10001:10001$", lines, re.MULTILINE)
    assert 'ENTRYPOINT ["minutewheel"]' in lines
    assert "/health/live" in lines
    assert 'VOLUME ["/var/lib/minutewheel"]' in lines
    for name in re.findall(rf"\b{PREFIX}(\w+)=", lines):
        assert name.lower() in {setting.name for setting in fields(Settings)}


def test_what_the_image_is_built_from_is_not_ignored() -> None:
    ignored = (TOP / ".dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text("Containerfile"), re.MULTILINE)
    for source in " ".join(copied).split():
        assert f"!{source}" in ignored
        assert (TOP / source).exists()


def test_what_the_image_takes_out_again_is_locked() -> None:
    removed = text("Containerfile").partition("pip uninstall --yes")[2].partition("&&")[0]
    names = set(removed.replace("\\", "").split())
    pins = (TOP / "requirements.lock").read_text()
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    for needed in project["dependency-groups"]["dev"]:
        assert needed.partition(">")[0] in names, "only needed to work on it"
    assert names <= set(re.findall(r"^([a-z0-9-]+)==", pins, re.MULTILINE))
