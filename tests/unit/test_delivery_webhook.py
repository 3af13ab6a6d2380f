"""The webhook channel against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from schemas.events import Status
from streams.clock import SystemClock
from streams.delivery.channels import Call, Result
from streams.delivery.webhook import (
    WebhookChannel,
)
from tests.webhook_receiver import (
    FIRE_ID,
    ROTATED,
    SECRET,
    TRACE,
    Handler,
    answer,
    event,
    one,
    send,
    settings,
)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (200, Status.DELIVERED),
        (201, Status.DELIVERED),
        (204, Status.DELIVERED),
        (302, Status.FAILED),
        (304, Status.FAILED),
        (400, Status.REJECTED),
        (401, Status.REJECTED),
        (404, Status.REJECTED),
        (408, Status.FAILED),
        (410, Status.REJECTED),
        (425, Status.FAILED),
        (429, Status.FAILED),
        (500, Status.FAILED),
        (503, Status.FAILED),
    ],
)
def test_what_each_answer_means(code: int, status: Status) -> None:
    assert one(answer(code)) == Result(status, f"http_{code}")


def test_a_redirect_is_not_followed() -> None:
    paths = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=307, headers={"location": "/elsewhere"})

    assert one(handle).status is Status.FAILED
    assert paths == ["/hook"]


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_passed_on(code: int) -> None:
    assert one(answer(code, retry_after="120")).retry_after_s == 120
    assert one(answer(code, retry_after="soon")).retry_after_s is None


def test_the_call_is_as_the_contract_says() -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    async def handle(request: web.Request) -> web.Response:
        assert request.method == "POST"
        seen.append(({k.lower(): v for k, v in request.headers.items()}, await request.read()))
        return web.Response(status=204)

    url = "http://127.0.0.1:PORT/hook?x=1"
    calls = [Call(event(url, attempt=number), TRACE) for number in (1, 2)]
    results = asyncio.run(send(handle, calls, settings(webhook_secret=f"{SECRET} {ROTATED}")))
    assert [result.status for result in results] == [Status.DELIVERED] * 2
    (first, body), (second, body_again) = seen
    assert body == body_again
    said = orjson.loads(body)
    assert "attempt" not in said
    assert "fired_at" not in said
    assert b'"payload":{"amount":12345678901234567890}' in body
    assert first["webhook-id"] == first["idempotency-key"] == FIRE_ID
    assert second["webhook-id"] == second["idempotency-key"] == FIRE_ID
    assert (first["webhook-attempt"], second["webhook-attempt"]) == ("1", "2")
    assert first["traceparent"] == TRACE
    assert first["user-agent"].startswith("minutewheel/")
    assert first["content-type"] == "application/json"
    for secret in (SECRET, ROTATED):
        Webhook(secret).verify(body, first)
        Webhook(secret).verify(body, second)
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(SECRET).verify(body + b" ", first)


def test_without_a_secret_nothing_is_signed() -> None:
    seen: dict[str, str] = {}

    async def handle(request: web.Request) -> web.Response:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        return web.Response()

    one(handle)
    assert "webhook-signature" not in seen
    assert "webhook-timestamp" in seen
    assert "traceparent" not in seen
    assert "cookie" not in seen


def test_headers_reach_the_receiver_and_do_not_override() -> None:
    seen: dict[str, str] = {}

    async def handle(request: web.Request) -> web.Response:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        return web.Response()

    call = Call(
        event("http://127.0.0.1:PORT/", headers={"X-Tenant": "grün", "webhook-id": "forged"})
    )
    asyncio.run(send(handle, [call], settings()))
    assert seen["webhook-id"] == FIRE_ID
    assert "x-tenant" in seen


def test_a_slow_receiver_times_out() -> None:
    async def handle(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    result = one(handle, deliver_timeout_s=0.2)
    assert (result.status, result.detail) == (Status.FAILED, "TimeoutError")


def test_a_reset_connection_is_a_failure() -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    assert one(handle).status is Status.FAILED


def test_nobody_listening_is_a_failure() -> None:
    channel = WebhookChannel(settings(), SystemClock())

    async def send() -> Result:
        try:
            return await channel.send(Call(event("http://127.0.0.1:1/")))
        finally:
            await channel.close()

    assert asyncio.run(send()) == Result(Status.FAILED, "ClientConnectorError")


def _streaming(chunk: bytes, end: Callable[[web.Request], None] | None = None) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(chunk)
                if end is not None:
                    end(request)
                await asyncio.sleep(0 if len(chunk) > 1 else 0.05)
        except (ConnectionError, asyncio.CancelledError):
            return response

    return handle


@pytest.mark.parametrize("chunk", [b"x" * 65_536, b"x"], ids=["endless", "one byte at a time"])
def test_a_body_that_does_not_end_is_let_go(chunk: bytes) -> None:
    assert one(_streaming(chunk)) == Result(Status.DELIVERED, "http_200")


def test_a_reset_after_the_first_line_changes_nothing() -> None:
    def reset(request: web.Request) -> None:
        assert request.transport is not None
        request.transport.abort()

    assert one(_streaming(b"xx", reset)).status is Status.DELIVERED
