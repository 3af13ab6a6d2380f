"""A real HTTP server on loopback, and the webhook channel asked to call it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from schemas import events
from schemas.events import DueEvent
from streams.clock import SystemClock
from streams.delivery.channels import Call, Result
from streams.delivery.webhook import (
    WebhookChannel,
)
from streams.settings import Settings

FIRE_ID = "0123456789abcdef0123456789abcdef"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ROTATED = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def event(destination: str, **more: Any) -> DueEvent:
    """A due event for a destination."""
    said = {
        "fire_id": FIRE_ID,
        "id": "invoice-1",
        "version": 0,
        "occurrence": 0,
        "attempt": 1,
        "tenant": "default",
        "kind": "reminder",
        "destination": destination,
        "due_at": "2026-01-01T00:00:00.000Z",
        "fired_at": "2026-01-01T00:00:00.001Z",
        "payload": {"amount": 12345678901234567890},
        **more,
    }
    decoded = events.decode_due(orjson.dumps(said))
    assert isinstance(decoded, DueEvent)
    return decoded


def settings(**more: Any) -> Settings:
    """Settings that let loopback be called."""
    said: dict[str, Any] = {"egress_allow": ("127.0.0.0/8",), "deliver_timeout_s": 5.0}
    return Settings(**said | more)


async def send(handler: Handler, calls: list[Call], said: Settings) -> list[Result]:
    """Run a receiver, make the calls, and return what they came to."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    channel = WebhookChannel(said, SystemClock())
    results = []
    try:
        for call in calls:
            place = call.event.destination.replace("PORT", str(port))
            placed = event(place, attempt=call.event.attempt, headers=call.event.headers)
            results.append(await channel.send(Call(placed, call.trace_parent)))
    finally:
        await channel.close()
        await runner.cleanup()
    return results


def one(handler: Handler, url: str = "http://127.0.0.1:PORT/hook", **more: Any) -> Result:
    """Call once; `PORT` in the address is the receiver's."""
    return asyncio.run(send(handler, [Call(event(url))], settings(**more)))[0]


def answer(status: int, **headers: str) -> Handler:
    """A receiver that always answers the same."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(
            status=status, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    return handle
