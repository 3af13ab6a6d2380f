"""The HTTP interface of a node. Any node answers for any id: it asks the owner.

Handlers return (status, body, headers); the web server around them is Faust's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import orjson

from buckets.decisions import NEVER_SEEN
from buckets.partition import Partition
from schemas import events
from schemas.errors import Refused
from schemas.reminder import Reminder
from schemas.routing import partition_of
from streams.console import pressure_view
from streams.processor.processor import Processor

ANSWER_TIMEOUT_S: Final = 5.0
RETRY_AFTER_S: Final = 1
HOP_HEADER: Final = "minutewheel-hop"

PLACES: Final = {
    "/v1/reminders/{id}": "a reminder: what was asked, when it fires, what became of it",
    "/v1/due?by=minute|hour|day&from=&to=": "what is owed, and when",
    "/health/live": "whether the process runs",
    "/health/ready": "whether all its partitions are restored, and how far each has come",
    "/metrics": "figures for Prometheus",
}

Answer = tuple[int, dict[str, Any]]
Figures = Callable[[], Mapping[str, Mapping[str, Any]]]


class Node:
    """What one node can be asked."""

    def __init__(
        self, processor: Callable[[], Processor | None], figures: Figures, token: str
    ) -> None:
        """`figures`: the replicated view, partition number (as text) → its latest figures.

        `token`: what callers must show, and what is shown to other nodes; "" for none.
        """
        self._processor = processor
        self._figures = figures
        self._authorization = f"Bearer {token}" if token else ""

    def refusal(self, headers: Mapping[str, str]) -> Answer | None:
        """The answer to a caller of /v1 who does not show the token; None to all others."""
        shown = headers.get("Authorization", "")
        if compare_digest(shown.encode(), self._authorization.encode()) or not self._authorization:
            return None
        return 401, _problem("unauthorized", "send 'Authorization: Bearer TOKEN'", "")

    async def reminder(self, reminder_id: str, *, hopped: bool) -> Answer:
        """GET /v1/reminders/{id}: from this node if it owns the id, else from the one that does."""
        processor = self._processor()
        if processor is None:
            return _unavailable("this node is starting")
        number = partition_of(reminder_id, processor.partitions)
        question = _look_up(reminder_id)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                found = await asyncio.wrap_future(processor.ask(number, question))
        except TimeoutError:
            return _unavailable(f"partition {number} is busy")
        if found is not None:
            reminder = found[0]
            if reminder is None or reminder.asked.version == NEVER_SEEN:
                return 404, _problem("not_found", f"there is no reminder {reminder_id!r}", "id")
            return 200, events.description(reminder)
        owner = self._figures().get(str(number), {}).get("owner")
        if owner is None or hopped:
            return _unavailable(f"partition {number} has no owner that is ready")
        return await self._ask_owner(owner, reminder_id)

    async def _ask_owner(self, owner: str, reminder_id: str) -> Answer:
        address = f"http://{owner}/v1/reminders/{quote(reminder_id, safe='')}"
        headers = {HOP_HEADER: "1"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(address, headers=headers) as response,
            ):
                return response.status, orjson.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError):
            return _unavailable(f"{owner} owns it and does not answer")

    @staticmethod
    def index() -> Answer:
        """GET /: what there is to ask."""
        return 200, {"minutewheel": "durable reminders for Kafka", "ask": PLACES}

    def due(self, query: Mapping[str, str]) -> Answer:
        """GET /v1/due?by&from&to."""
        try:
            from_ms = pressure_view.instant(query.get("from"), "from")
            to_ms = pressure_view.instant(query.get("to"), "to")
            by = query.get("by", "minute")
            return 200, pressure_view.owed(self._figures().values(), by, from_ms, to_ms)
        except Refused as refused:
            return 422, _problem(refused.code, refused.message, refused.field)

    def ready(self) -> Answer:
        """GET /health/ready: not while anything assigned to this node is being restored."""
        processor = self._processor()
        if processor is None:
            return 503, {"ready": False, "partitions": {}}
        ready = processor.ready
        phases = {str(number): phase for number, phase in sorted(processor.phases().items())}
        return (200 if ready else 503), {"ready": ready, "partitions": phases}


def _look_up(reminder_id: str) -> Callable[[Partition], tuple[Reminder | None]]:
    # A tuple, so that "not here" (None) and "there is none" ((None,)) stay apart.
    return lambda partition: (partition.look_up(reminder_id.encode()),)


def _unavailable(why: str) -> Answer:
    return 503, _problem("unavailable", why, "") | {"retry_after_s": RETRY_AFTER_S}


def _problem(code: str, message: str, field: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "field": field}}
