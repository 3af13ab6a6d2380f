"""The checked-in list of the jars that make up Kafka, each with its digest.

A line of `jars.sha256` is `<sha256>  <group>:<artifact>:<version>`. The list is complete: it was
resolved once (`python -m deploy.broker.pin`), so a start resolves nothing and trusts nothing.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.4.0"
MANIFEST_PATH = Path(__file__).with_name("jars.sha256")

_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<coordinate>[^\s:]+:[^\s:]+:[^\s:]+)")


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: `coordinate` is group:artifact:version, `digest` its SHA-256 in hex."""

    coordinate: str
    digest: str

    @property
    def file_name(self) -> str:
        """Its name in the cache, which is also the one it is published under."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    def matches(self, path: Path) -> bool:
        """Whether the bytes at `path` are the pinned ones."""
        return digest_of(path) == self.digest


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def parse_manifest(text: str) -> tuple[Jar, ...]:
    """Reads a manifest. Raises ValueError with the line's number on anything but its own form."""
    jars: dict[str, Jar] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"jars.sha256 line {number}: not `<sha256>  group:artifact:version`")
        jar = Jar(found["coordinate"], found["digest"])
        if jar.file_name in jars:
            raise ValueError(f"jars.sha256 line {number}: {jar.file_name} is listed twice")
        jars[jar.file_name] = jar
    return tuple(jars.values())


def render_manifest(jars: tuple[Jar, ...]) -> str:
    """Writes a manifest, sorted by coordinate so that a change shows as a change."""
    ordered = sorted(jars, key=lambda jar: jar.coordinate)
    return "".join(f"{jar.digest}  {jar.coordinate}\n" for jar in ordered)


def pinned_jars() -> tuple[Jar, ...]:
    """The jars of this release."""
    return parse_manifest(MANIFEST_PATH.read_text(encoding="ascii"))
