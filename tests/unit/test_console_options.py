"""The global options, wherever they stand, and the start of the program."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from streams.console import cli, options
from streams.console.output import Form
from streams.console.session import Given, Session


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Session, dict[str, Any]]]:
    """What reached the command `topics probe`, which does nothing."""
    calls: list[tuple[Session, dict[str, Any]]] = []

    def probe(session: Session, number: int = 1) -> None:
        """Do nothing."""
        calls.append((session, {"number": number}))

    monkeypatch.setattr("streams.console.cluster.topics_check", probe)
    for name in list(os.environ):
        if name.startswith("MINUTEWHEEL_"):
            monkeypatch.delenv(name)
    return calls


@pytest.mark.parametrize(
    "words",
    [
        ["--prefix", "p.", "-o", "json", "topics", "check"],
        ["topics", "check", "--prefix", "p.", "-o", "json"],
        ["topics", "--prefix", "p.", "check", "--output", "json"],
        ["--prefix", "far.", "topics", "--prefix", "p.", "check", "-o", "json"],
    ],
)
def test_global_options_stand_anywhere_and_the_nearest_counts(
    seen: list[tuple[Session, dict[str, Any]]], words: list[str]
) -> None:
    assert cli.main(words) == 0
    given = seen[0][0].given
    assert (given.prefix, given.form) == ("p.", Form.JSON)


def test_properties_add_up_and_win_over_file_and_environment(
    seen: list[tuple[Session, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        'prefix = "file."\nbootstrap = "file:1"\n[kafka]\nretries = "1"\n"batch.size" = "1"\n'
    )
    monkeypatch.setenv("MINUTEWHEEL_PREFIX", "environment.")
    words = [
        "-X",
        "batch.size=9",
        "topics",
        "check",
        "-X",
        "linger.ms=3",
        "--config",
        str(file),
    ]
    assert cli.main(words) == 0
    settings = seen[0][0].settings()
    assert settings.kafka == {"retries": "1", "batch.size": "9", "linger.ms": "3"}
    assert (settings.prefix, settings.bootstrap) == ("environment.", "file:1")
    assert seen[0][0].names_a_cluster()


def test_nobody_named_a_cluster(seen: list[tuple[Session, dict[str, Any]]]) -> None:
    assert cli.main(["topics", "check"]) == 0
    assert not seen[0][0].names_a_cluster()
    assert cli.main(["topics", "check", "--bootstrap", "127.0.0.1:19092"]) == 0
    assert seen[1][0].names_a_cluster()


def test_what_was_given_can_be_given_on() -> None:
    given = Given("b:1", "p.", ("a=b", "c=d"), Path("f.toml"))
    words = ["--bootstrap", "b:1", "--prefix", "p.", "-X", "a=b", "-X", "c=d", "--config", "f.toml"]
    assert given.arguments() == words
    assert Given().arguments() == []


@pytest.mark.parametrize("word", ["acks", "=1", "sasl.password:hunter2"])
def test_a_property_without_name_or_value_is_a_usage_error(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["topics", "check", "-X", word]) == 2
    said = capsys.readouterr().err
    assert said == "minutewheel: -X takes property=value; the one at place 1 (not shown) is not\n"


@pytest.mark.parametrize("name", ["isolation.level", "transactional.id", "bootstrap.servers"])
def test_what_a_promise_rests_on_cannot_be_set_by_a_word_either(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["topics", "check", "-X", f"{name}=x"]) == 2
    assert f"kafka: {name}" in capsys.readouterr().err


def commands_of(app: typer.Typer) -> list[list[str]]:
    """The words of every command there is."""
    found: list[list[str]] = []
    for command in app.registered_commands:
        assert command.name is not None
        found.append([command.name])
    for group in app.registered_groups:
        assert group.typer_instance is not None
        assert group.name is not None
        found.append([group.name])
        found += [[group.name, *words] for words in commands_of(group.typer_instance)]
    return found


def test_every_help_has_a_sentence_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    commands = commands_of(cli.build())
    assert ["broker", "start"] in commands
    for words in commands:
        assert cli.main([*words, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"Example: minutewheel {words[0]}" in shown, words
        for option in options.GLOBALS:
            assert option == "properties" or f"--{option.replace('_', '-')}" in shown, words


def test_help_needs_none_of_the_heavy_parts() -> None:
    code = (
        "import sys\nfrom streams.console.cli import main\nmain(['--help'])\n"
        "heavy = {'confluent_kafka', 'faust', 'aiohttp', 'rocksdict', 'deploy'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"minutewheel {version('minutewheel')}\n"
