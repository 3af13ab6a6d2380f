"""What every command works with: its settings, the clock, and where it prints."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streams.clock import Clock, SystemClock
from streams.console.failures import Usage
from streams.console.output import Form, Output
from streams.settings import ENVIRONMENT_PREFIX, Settings, check, load


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line said about everything, and nothing about one command."""

    bootstrap: str | None = None
    prefix: str | None = None
    properties: tuple[str, ...] = ()
    """librdkafka properties as they were written, `name=value`."""

    config: Path | None = None
    form: Form = Form.TABLE
    log_level: str = "info"

    def arguments(self) -> list[str]:
        """The same again as words of a command line."""
        words: list[str] = []
        if self.bootstrap is not None:
            words += ["--bootstrap", self.bootstrap]
        if self.prefix is not None:
            words += ["--prefix", self.prefix]
        for property_ in self.properties:
            words += ["-X", property_]
        if self.config is not None:
            words += ["--config", str(self.config)]
        return words


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one command."""

    given: Given
    output: Output
    clock: Clock = field(default_factory=SystemClock)

    def settings(self, **more: Any) -> Settings:
        """All settings, with `more` from the command's own options; None means nothing said.

        Raises `BadSetting` or `Usage`.
        """
        given = {"bootstrap": self.given.bootstrap, "prefix": self.given.prefix} | more
        settings = load(given, file=self.given.config)
        properties = parsed(self.given.properties)
        told = {"log_level": "7"} if self.given.log_level == "debug" else {}
        settings = replace(settings, kafka={**told, **settings.kafka, **properties})
        check(settings)
        return settings

    def names_a_cluster(self) -> bool:
        """Whether anybody said which Kafka to use."""
        if self.given.bootstrap is not None or f"{ENVIRONMENT_PREFIX}BOOTSTRAP" in os.environ:
            return True
        return self.settings().bootstrap != Settings().bootstrap


def parsed(properties: tuple[str, ...]) -> dict[str, str]:
    """librdkafka properties by name, or `Usage`."""
    found: dict[str, str] = {}
    for number, written in enumerate(properties, start=1):
        name, equals, value = written.partition("=")
        if not name or not equals:
            # A password may be in it, with a colon or a space instead of the sign.
            raise Usage(f"-X takes property=value; the one at place {number} (not shown) is not")
        found[name.strip()] = value
    return found
