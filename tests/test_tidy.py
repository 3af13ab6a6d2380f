"""The house rules that a program can check, so that no person has to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final
from unicodedata import normalize

import pytest

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("schemas", "buckets", "streams", "deploy")
FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 500
LINE_COLUMNS_MAX: Final = 100

EXCEPTIONS: Final = {
    # A body as it travels, on one line.
    ("lines", "tests/unit/test_console_nodes.py"),
    # A receiver that answers byte by byte takes its time between them.
    ("seeds", "tests/unit/test_delivery_webhook.py"),
}
"""What a rule does not hold for: rule and file. This list may only shrink."""

CLOCKS_AND_CHANCE: Final = re.compile(
    r"\btime\.(time|time_ns|monotonic|perf_counter)\("
    r"|\bdatetime\.(now|today|utcnow)\(|\bdate\.today\(|\brandom\.|\buuid[14]\(|\bsleep\("
)
OWNERS: Final = (
    "streams/clock.py",
    # Starts and stops a broker, which is another process and cannot be handed a clock.
    "deploy/broker/",
)
UNSEEDED: Final = re.compile(
    r"\brandom\.(?!Random\(|SystemRandom\(|Random\b)|\btime\.time\(|\bdatetime\.now\(|\bsleep\("
)
MEASURING: Final = "tests/bench/"
EMPTY_NAMES: Final = {"util", "utils", "common", "misc", "helper", "helpers", "models", "base"}
UNDONE: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
SOMEBODYS_MACHINE: Final = re.compile(r"(?<![\w.$}])/(home|Users|root|work)/\w|[A-Z]:\\Users")
TEXTS: Final = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".html", ".css", ".js", ".sh"}
AT_THE_TOP: Final = {
    *ROOMS,
    "tests",
    ".ci",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "NOTICE",
    "Makefile",
    "pyproject.toml",
    "requirements.lock",
    ".git",
    ".gitignore",
    ".gitattributes",
    ".dockerignore",
    ".editorconfig",
}


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@cache
def files() -> list[Path]:
    """Every file of the rooms, the tests and the top."""
    found = [file for file in ROOT.iterdir() if file.is_file() and file.name in AT_THE_TOP]
    for room in (*ROOMS, "tests", ".ci"):
        found += [
            file
            for file in (ROOT / room).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        ]
    return sorted(found)


def python_files(*rooms: str) -> list[Path]:
    return [
        file
        for file in files()
        if file.suffix == ".py" and (not rooms or name_of(file).split("/")[0] in rooms)
    ]


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def code_lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a module without comments and without docstrings and other texts."""
    texts = {
        number
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if node.end_lineno != node.lineno
    }
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if number not in texts:
            yield number, re.sub(r'"[^"]*"', '""', line).split("#")[0]


def assert_none(rule: str, found: dict[str, str]) -> None:
    """No file breaks a rule, but those the exceptions name, and each of these still does."""
    excepted = {name for excepted_rule, name in EXCEPTIONS if excepted_rule == rule}
    broken = {name: what for name, what in found.items() if name.split(":")[0] not in excepted}
    assert not broken, f"{rule}: {broken}"
    needless = excepted - {name.split(":")[0] for name in found}
    assert not needless, f"{rule} holds for {needless} now: take them off the list"


def test_functions_are_short() -> None:
    found = {}
    for file in python_files():
        for function in functions(file):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found[f"{name_of(file)}:{function.name}"] = f"{lines} lines"
    assert_none("functions", found)


def test_modules_are_short() -> None:
    lengths = {name_of(file): len(file.read_text().splitlines()) for file in python_files()}
    assert_none(
        "modules",
        {name: f"{lines} lines" for name, lines in lengths.items() if lines > MODULE_LINES_MAX},
    )


def test_lines_are_short() -> None:
    found = {}
    for file in python_files():
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            columns = len(normalize("NFC", line))
            if columns > LINE_COLUMNS_MAX:
                found[f"{name_of(file)}:{number}"] = f"{columns} columns"
    assert_none("lines", found)


def test_clocks_and_chance_come_from_outside() -> None:
    found = {}
    for file in python_files(*ROOMS):
        if name_of(file).startswith(OWNERS):
            continue
        for number, line in code_lines(file):
            if CLOCKS_AND_CHANCE.search(line):
                found[f"{name_of(file)}:{number}"] = line.strip()
    assert_none("clocks", found)


def test_tests_are_seeded_and_do_not_sleep() -> None:
    found = {}
    for file in python_files("tests"):
        if name_of(file).startswith(MEASURING):
            continue
        # Without the module, `random` is a source of chance that hypothesis or a seed has made.
        module = re.search(r"^import random$", file.read_text(), re.MULTILINE)
        for number, line in code_lines(file):
            given = line if module else line.replace("random.", "")
            if UNSEEDED.search(given):
                found[f"{name_of(file)}:{number}"] = line.strip()
    assert_none("seeds", found)


def test_every_module_says_what_it_is() -> None:
    silent = {
        name_of(file): "no docstring"
        for file in python_files()
        if file.read_text().strip() and not ast.get_docstring(tree(file))
    }
    assert_none("module docstrings", silent)


def public_definitions(
    scope: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in scope.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_"):
                continue
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node, f"{node.name}.")


def test_whatever_is_public_says_what_it_is() -> None:
    found = {}
    for file in python_files(*ROOMS):
        for name, definition in public_definitions(tree(file)):
            if not ast.get_docstring(definition):
                found[f"{name_of(file)}:{name}"] = "no docstring"
    assert_none("docstrings", found)


def test_names_say_something() -> None:
    assert_none(
        "names",
        {
            name_of(file): "an empty name"
            for file in python_files()
            if EMPTY_NAMES & {file.stem, file.parent.name}
        },
    )


@pytest.mark.parametrize(
    ("rule", "pattern"),
    [("undone", UNDONE), ("machines", SOMEBODYS_MACHINE)],
)
def test_nothing_is_left_lying_about(rule: str, pattern: re.Pattern[str]) -> None:
    found = {}
    for file in files():
        if file == Path(__file__) or (file.suffix not in TEXTS and file.name != "Makefile"):
            continue
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            if match := pattern.search(line):
                found[f"{name_of(file)}:{number}"] = match[0]
    assert_none(rule, found)


def test_the_top_holds_only_the_rooms_and_the_usual_files() -> None:
    ignored = {
        line.strip("/ ") for line in (ROOT / ".gitignore").read_text().splitlines() if line.strip()
    }
    found = {entry.name for entry in ROOT.iterdir()} - AT_THE_TOP - ignored
    assert not {name for name in found if not name.endswith((".egg-info", ".pyc"))}


def test_the_rules_still_find_what_they_look_for() -> None:
    """A rule whose pattern no longer matches would hold for ever."""
    for text in ("time.time()", "datetime.now(UTC)", "random.choice(x)", "uuid4()", "sleep(1)"):
        assert CLOCKS_AND_CHANCE.search(text), text
    for text in ("random.shuffle(x)", "asyncio.sleep(1)"):
        assert UNSEEDED.search(text), text
    assert not UNSEEDED.search("chance = random.Random(seed)")
    assert UNDONE.search("# TO" + "DO: later")
    assert SOMEBODYS_MACHINE.search("in /ho" + "me/me/project")
    assert not SOMEBODYS_MACHINE.search("https://example.org/home/page")
