"""Settings: the command line over MINUTEWHEEL_… variables over a TOML file over the defaults."""

from __future__ import annotations

import math
import os
import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, get_type_hints

from streams.errors import BadSetting

ENVIRONMENT_PREFIX: Final = "MINUTEWHEEL_"
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_SECRET: Final = frozenset({"webhook_secret", "http_token", "kafka"})
"""Settings whose values are never shown, also where they are refused."""

_PREFIX: Final = re.compile(r"[a-zA-Z0-9._-]{0,200}")
"""What topics may be called, with room left for their own names."""

PORT_MAX: Final = 65_535
PROMISED: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "isolation.level",
        "partition.assignment.strategy",
        "partitioner",
        "transactional.id",
    }
)
"""librdkafka's properties that the guarantees rest on; the rest is the operator's to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set. Durations carry their unit in the name."""

    bootstrap: str = "127.0.0.1:19092"
    prefix: str = "reminders."
    partitions: int = 4
    replication: int = 1
    name: str = field(default_factory=socket.gethostname)
    """Which process of the group this is: part of its transactional ids, so one at a time."""

    static_membership: bool = False
    """Keep this process's partitions for it while it restarts, instead of handing them over."""

    data_dir: Path = Path(".minutewheel")
    http: str = "127.0.0.1:6066"
    http_advertised: str = ""
    """The address other nodes reach this one's `http` at, if it is not the same."""

    http_token: str = field(default="", repr=False)
    """What callers of /v1 must send as `Authorization: Bearer …`; anyone may call if empty."""

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
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    """librdkafka properties passed through as they are; a password may be among them."""

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
    check(settings)
    return settings


def _from_file(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"--config {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSetting(f"--config {file}: {error}") from None
    for name in found.keys() - {setting.name for setting in fields(Settings)}:
        raise BadSetting(f"--config {file}: {name}: there is no such setting")
    return found


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
        if hint is int:
            return _whole(value)
        if hint is float:
            return _number(value)
        if hint is Path:
            return Path(value).expanduser()
        if hint == tuple[int, ...]:
            return tuple(_whole(part) for part in _parts(value))
        if hint == tuple[str, ...]:
            return tuple(_text(part) for part in _parts(value))
        if name == "kafka":
            return _properties(value)
        return _text(value)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
        shown = "the value (not shown)" if name in _SECRET else repr(value)
        raise BadSetting(f"{name}: {shown} is not {_said(hint)}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    """Not `int` alone, which makes 4 of 4.7 and 1 of true without a word."""
    if isinstance(value, bool | float):
        raise TypeError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _properties(value: Any) -> dict[str, str]:
    """librdkafka properties: a text `name=value,name=value`, or a table of a file."""
    if isinstance(value, str):
        return dict(part.split("=", 1) for part in _parts(value))
    found: dict[str, str] = {}
    for name, content in value.items():
        if isinstance(content, Mapping):
            # TOML reads `sasl.mechanism = …` without quotation marks as a table in a table.
            nested = _properties(content)
            found |= {f"{name}.{inner}": text for inner, text in nested.items()}
        elif isinstance(content, bool):
            found[name] = str(content).lower()
        elif isinstance(content, str | int | float):
            found[name] = str(content)
        else:
            raise TypeError
    return found


def _parts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise TypeError
    return list(value)


def _said(hint: Any) -> str:
    plain = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        Path: "a path",
        str: "a text",
        tuple[int, ...]: "a list of whole numbers separated by commas",
        tuple[str, ...]: "a list separated by commas",
    }
    return plain.get(hint, "name=value pairs separated by commas, or a table")


def check(settings: Settings) -> None:
    """What the types alone cannot say. Raises `BadSetting`."""
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise BadSetting(f"{setting.name}: must be above 0, not {value}")
    if not settings.retry_delays_s or min(settings.retry_delays_s) < 0:
        said = ",".join(map(str, settings.retry_delays_s))
        raise BadSetting(f"retry_delays_s: at least one, and none below 0, not {said!r}")
    if not _PREFIX.fullmatch(settings.prefix):
        raise BadSetting(
            f"prefix: letters, digits, '.', '_' and '-', at most 200, not {settings.prefix!r}"
        )
    if settings.group_protocol not in {"classic", "consumer"}:
        raise BadSetting(
            f"group_protocol: 'classic' or 'consumer' (KIP-848), not {settings.group_protocol!r}"
        )
    for name in ("http", "http_advertised", "deliver_http"):
        address = getattr(settings, name)
        # Only `http` has to be somewhere: the others are empty where they are not wanted.
        if (address or name == "http") and not _is_address(address):
            raise BadSetting(f"{name}: HOST:PORT, not {address!r}")

    if not settings.http_token and not _is_loopback(settings.http):
        raise BadSetting(
            f"http: {settings.http} can be reached from elsewhere: set http_token, which callers "
            "then send as 'Authorization: Bearer …', or listen on loopback"
        )
    for name in sorted({"bootstrap.servers", "metadata.broker.list"} & settings.kafka.keys()):
        raise BadSetting(f"kafka: {name}: give it as bootstrap, for all clients alike")
    for name in sorted(PROMISED & settings.kafka.keys()):
        raise BadSetting(f"kafka: {name} cannot be set: what is promised rests on its value")


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and int(port) <= PORT_MAX
