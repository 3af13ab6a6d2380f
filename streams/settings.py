"""Settings: the command line over MINUTEWHEEL_… variables over a TOML file over the defaults."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from streams.errors import BadSetting

ENVIRONMENT_PREFIX: Final = "MINUTEWHEEL_"
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set. Durations carry their unit in the name."""

    bootstrap: str = "127.0.0.1:19092"
    prefix: str = "reminders."
    partitions: int = 4
    replication: int = 1
    name: str = field(default_factory=socket.gethostname)
    """Which process of the group this is: part of its transactional id, so one at a time."""

    static_membership: bool = False
    """Keep this process's partitions for it while it restarts, instead of handing them over."""

    data_dir: Path = Path(".minutewheel")
    http: str = "127.0.0.1:6066"
    http_advertised: str = ""
    """The address other nodes reach this one's `http` at, if it is not the same."""

    group_protocol: str = "classic"
    session_timeout_ms: int = 10_000
    transaction_timeout_ms: int = 10_000
    poll_interval_ms_max: int = 60_000

    turn_records_max: int = 5_000
    turn_wait_ms_max: int = 20
    fires_per_turn_max: int = 5_000
    claims_max: int = 50_000
    """Due events of one partition that may be unanswered at a time."""

    lease_s: int = 3_600
    dedupe_retention_s: int = 7 * 86_400
    cancel_memory_s: int = 86_400
    retry_delays_s: tuple[int, ...] = (30, 300, 1_800)
    retry_attempts_max: int = 4

    deliver_http: str = ""
    """Where a delivery worker serves its metrics and health, HOST:PORT; nowhere if empty."""

    deliver_concurrency: int = 64
    deliver_timeout_s: float = 30.0
    deliver_commit_ms: int = 20
    """How long finished deliveries may wait for others to share their transaction."""

    deliver_grace_s: float = 20.0
    """How long a worker that was told to stop waits for the calls under way."""

    webhook_secret: str = field(default="", repr=False)
    egress_allow: tuple[str, ...] = ()

    store_flush_s: int = 30
    """The store's memory goes to disk at least this often, which bounds replay after a crash."""

    store_cache_mib: int = 256
    kafka: Mapping[str, str] = field(default_factory=dict)
    """librdkafka properties passed through as they are."""

    @property
    def topics(self) -> Topics:
        """The names of the topics under this prefix."""
        return Topics(self.prefix)

    @property
    def processor_group(self) -> str:
        """The consumer group of the processors."""
        return f"{self.prefix}processor"

    @property
    def delivery_group(self) -> str:
        """The consumer group of the delivery workers."""
        return f"{self.prefix}delivery"


class Topics:
    """The names of the contract's topics under a prefix."""

    def __init__(self, prefix: str) -> None:
        self.commands = prefix + "commands"
        self.state = prefix + "state"
        self.due = prefix + "due"
        self.outcomes = prefix + "outcomes"
        self.replies = prefix + "replies"
        self.rejected = prefix + "rejected"
        self.dead = prefix + "dead"
        self.suppressions = prefix + "suppressions"
        self.pressure = prefix + "pressure"

    def all(self) -> list[str]:
        """Every topic, in the contract's order."""
        return list(vars(self).values())


def load(
    given: Mapping[str, Any],
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a process. `given` holds what the command line said; None means nothing.

    Raises `BadSetting` naming the setting and where it came from.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    values |= _from_environment(os.environ if environment is None else environment)
    values |= {name: value for name, value in given.items() if value is not None}
    hints = get_type_hints(Settings)
    known = {setting.name for setting in fields(Settings)}
    for name in values:
        if name not in known:
            raise BadSetting(f"{name}: there is no such setting")
    settings = Settings(
        **{name: _convert(name, value, hints[name]) for name, value in values.items()}
    )
    _check(settings)
    return settings


def _from_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise BadSetting(f"--config {file}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"--config {file}: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {setting.name for setting in fields(Settings)}
    found = {}
    for variable, text in environment.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if variable.startswith(ENVIRONMENT_PREFIX) and name in names:
            found[name] = text
    return found


def _convert(name: str, value: Any, hint: Any) -> Any:
    """A text or TOML value as the setting's own type."""
    try:
        if hint is bool:
            return value if isinstance(value, bool) else _BOOLEANS[value.lower()]
        if hint is int or hint is float:
            return hint(value)
        if hint is Path:
            return Path(value).expanduser()
        if hint == tuple[int, ...]:
            return tuple(int(part) for part in _parts(value))
        if hint == tuple[str, ...]:
            return tuple(str(part) for part in _parts(value))
        if name == "kafka":
            if isinstance(value, str):
                value = dict(part.split("=", 1) for part in _parts(value))
            return {str(key): str(content) for key, content in value.items()}
        return str(value)
    except (TypeError, ValueError, AttributeError, KeyError):
        raise BadSetting(f"{name}: {value!r} is not {_said(hint)}") from None


def _parts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value)


def _said(hint: Any) -> str:
    plain = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    return plain.get(hint, "a list separated by commas")


def _check(settings: Settings) -> None:
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise BadSetting(f"{setting.name}: must be above 0, not {value}")
    if settings.group_protocol not in {"classic", "consumer"}:
        raise BadSetting(
            f"group_protocol: 'classic' or 'consumer' (KIP-848), not {settings.group_protocol!r}"
        )
    host, colon, port = settings.http.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise BadSetting(f"http: HOST:PORT, not {settings.http!r}")
