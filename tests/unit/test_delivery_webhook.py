"""The webhook channel against a real HTTP server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from schemas import events
from schemas.events import DueEvent, Status
from streams.clock import SystemClock
from streams.delivery.channels import Call, Result
from streams.delivery.webhook import (
    RETRY_AFTER_S_MAX,
    WebhookChannel,
    passed_on,
    retry_after_s,
)
from streams.errors import BadSetting
from streams.settings import Settings

FIRE_ID = "0123456789abcdef0123456789abcdef"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ROTATED = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOW_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z, a Wednesday
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _event(destination: str, **more: Any) -> DueEvent:
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


def _settings(**more: Any) -> Settings:
    return Settings(**{"egress_allow": ("127.0.0.0/8",), "deliver_timeout_s": 5.0} | more)


async def _send(handler: Handler, calls: list[Call], settings: Settings) -> list[Result]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    channel = WebhookChannel(settings, SystemClock())
    results = []
    try:
        for call in calls:
            place = call.event.destination.replace("PORT", str(port))
            event = _event(place, attempt=call.event.attempt, headers=call.event.headers)
            results.append(await channel.send(Call(event, call.trace_parent)))
    finally:
        await channel.close()
        await runner.cleanup()
    return results


def _one(handler: Handler, url: str = "http://127.0.0.1:PORT/hook", **more: Any) -> Result:
    return asyncio.run(_send(handler, [Call(_event(url))], _settings(**more)))[0]


def _answer(status: int, **headers: str) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(
            status=status, headers={name.replace("_", "-"): text for name, text in headers.items()}
        )

    return handle


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
    assert _one(_answer(code)) == Result(status, f"http_{code}")


def test_a_redirect_is_not_followed() -> None:
    paths = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=307, headers={"location": "/elsewhere"})

    assert _one(handle).status is Status.FAILED
    assert paths == ["/hook"]


@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_passed_on(code: int) -> None:
    assert _one(_answer(code, retry_after="120")).retry_after_s == 120
    assert _one(_answer(code, retry_after="soon")).retry_after_s is None


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("120", 120),
        (" 120 ", 120),
        ("86400", 86_400),
        ("86401", RETRY_AFTER_S_MAX),
        ("315360000", RETRY_AFTER_S_MAX),
        ("9" * 5_000, RETRY_AFTER_S_MAX),
        ("-5", None),
        ("1.5", None),
        ("1e9", None),
        ("Wed, 01 Jan 2025 00:01:30 GMT", 90),
        ("Wed, 01 Jan 2025 00:01:30", 90),
        ("Tue, 31 Dec 2024 23:00:00 GMT", 0),
        ("Mon, 01 Jan 2035 00:00:00 GMT", RETRY_AFTER_S_MAX),
        ("Wed, 99 Jan 2025 00:01:30 GMT", None),
        ("tomorrow", None),
        ("\x00", None),
    ],
)
def test_retry_after(value: str | None, expected_s: float | None) -> None:
    assert retry_after_s(value, NOW_MS) == expected_s


def test_the_call_is_as_the_contract_says() -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    async def handle(request: web.Request) -> web.Response:
        assert request.method == "POST"
        seen.append(({k.lower(): v for k, v in request.headers.items()}, await request.read()))
        return web.Response(status=204)

    url = "http://127.0.0.1:PORT/hook?x=1"
    calls = [Call(_event(url, attempt=number), TRACE) for number in (1, 2)]
    results = asyncio.run(_send(handle, calls, _settings(webhook_secret=f"{SECRET} {ROTATED}")))
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

    _one(handle)
    assert "webhook-signature" not in seen
    assert "webhook-timestamp" in seen
    assert "traceparent" not in seen
    assert "cookie" not in seen


def test_a_secret_that_is_none_is_named() -> None:
    for secret in ("whsec_", "whsec_ä"):
        with pytest.raises(BadSetting, match="webhook_secret"):
            WebhookChannel(_settings(webhook_secret=secret), SystemClock())


def test_only_harmless_headers_are_passed_on() -> None:
    asked = {
        "X-Tenant": "blue",
        "Authorization": "Bearer t",
        "Webhook-Id": "forged",
        "webhook-signature": "v1,forged",
        "Idempotency-Key": "forged",
        "Host": "elsewhere",
        "Content-Length": "0",
        "Transfer-Encoding": "chunked",
        "Proxy-Authorization": "x",
        "traceparent": "forged",
        "x-split": "a\r\nwebhook-id: forged",
        "x-nul": "a\x00b",
        "bad name": "x",
        "x\r\ny": "x",
        "": "x",
    }
    assert passed_on(asked) == {"x-tenant": "blue", "authorization": "Bearer t"}


def test_headers_reach_the_receiver_and_do_not_override() -> None:
    seen: dict[str, str] = {}

    async def handle(request: web.Request) -> web.Response:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        return web.Response()

    call = Call(
        _event("http://127.0.0.1:PORT/", headers={"X-Tenant": "grün", "webhook-id": "forged"})
    )
    asyncio.run(_send(handle, [call], _settings()))
    assert seen["webhook-id"] == FIRE_ID
    assert "x-tenant" in seen


def test_a_slow_receiver_times_out() -> None:
    async def handle(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    result = _one(handle, deliver_timeout_s=0.2)
    assert (result.status, result.detail) == (Status.FAILED, "TimeoutError")


def test_a_reset_connection_is_a_failure() -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    assert _one(handle).status is Status.FAILED


def test_nobody_listening_is_a_failure() -> None:
    channel = WebhookChannel(_settings(), SystemClock())

    async def send() -> Result:
        try:
            return await channel.send(Call(_event("http://127.0.0.1:1/")))
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
    assert _one(_streaming(chunk)) == Result(Status.DELIVERED, "http_200")


def test_a_reset_after_the_first_line_changes_nothing() -> None:
    def reset(request: web.Request) -> None:
        assert request.transport is not None
        request.transport.abort()

    assert _one(_streaming(b"xx", reset)).status is Status.DELIVERED


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:PORT/",
        "http://localhost:PORT/",
        "http://2130706433:PORT/",
        "http://0x7f000001:PORT/",
        "http://0177.0.0.1:PORT/",
        "http://127.1:PORT/",
        "http://[::1]:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "http://1.1.1.1@127.0.0.1:PORT/",
        "http://127.0.0.1:80@127.0.0.1:PORT/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0.0.0.0:PORT/",
    ],
)
def test_no_connection_inwards(url: str) -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    assert _one(handle, url, egress_allow=()) == Result(Status.REJECTED, "egress_refused")
    assert asked == []


def test_user_information_is_refused_even_where_the_host_is_allowed() -> None:
    assert _one(_answer(200), "http://user@127.0.0.1:PORT/").detail == "egress_refused"


@pytest.mark.parametrize("url", ["http://", "https:", "http:///x", "http://a:b:c/", "http://[::1"])
def test_what_is_no_url_is_rejected(url: str) -> None:
    assert _one(_answer(200), url) == Result(Status.REJECTED, "invalid_url")
