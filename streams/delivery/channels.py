"""What a channel is, and which one answers for a destination."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from schemas.events import DueEvent, Status
from streams import logs

NO_CHANNEL: Final = "none"
"""The metric label of destinations that no channel answers for."""

_log: Final = logs.get("delivery")


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt, as a channel is asked to make it."""

    event: DueEvent
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What an attempt came to. `detail` holds class and code, never bodies, addresses or secrets.

    `failed` means: try again, not before `retry_after_s` if that is given.
    """

    status: Status
    detail: str | None = None
    provider_ref: str | None = None
    retry_after_s: float | None = None


class Channel(Protocol):
    """A way to the outside. Used from one event loop; many calls at a time."""

    @property
    def name(self) -> str:
        """What metrics call it; `channel:<name>` reaches it. Letters, digits and `-`."""

    async def send(self, call: Call) -> Result:
        """Make the attempt. What it raises is recorded as `failed` with the class of the error."""

    async def close(self) -> None:
        """Give back what the channel holds."""


class LogChannel:
    """`channel:log`: one line per reminder, without the payload."""

    name = "log"

    async def send(self, call: Call) -> Result:
        """Write the line."""
        _log.info("reminder", fire_id=call.event.fire_id, id=call.event.id)
        return Result(Status.DELIVERED)

    async def close(self) -> None:
        """Nothing is held."""


class Channels:
    """The channels of this process by the destinations they answer for."""

    def __init__(self, webhook: Channel, named: Iterable[Channel] = ()) -> None:
        self._webhook = webhook
        self._named = {channel.name: channel for channel in named}

    def of(self, destination: str) -> Channel | Result:
        """The channel of a destination, or the refusal to record for it."""
        scheme, _, rest = destination.partition(":")
        if scheme in {"http", "https"}:
            return self._webhook
        if scheme == "mailto":
            return Result(
                Status.REJECTED, "mailto_not_configured: this delivery worker sends no mail"
            )
        return self._named.get(rest) or Result(
            Status.REJECTED, "unknown_channel: no channel of this name is configured"
        )

    async def close(self) -> None:
        """Close all of them."""
        for channel in (self._webhook, *self._named.values()):
            await channel.close()


def is_ours(destination: str) -> bool:
    """Whether delivery workers answer for a destination, and not other consumers of `due`."""
    return destination.partition(":")[0] in {"http", "https", "mailto", "channel"}
