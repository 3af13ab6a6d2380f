"""The webhook channel: one POST per attempt, signed as Standard Webhooks has it."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Final

import aiohttp
from standardwebhooks import Webhook
from yarl import URL

from schemas import events, instants
from schemas.events import Status
from streams.clock import Clock
from streams.delivery.channels import Call, Result
from streams.delivery.egress import CheckedResolver, Egress, EgressRefused
from streams.errors import BadSetting
from streams.settings import Settings

RETRY_AFTER_S_MAX: Final = 86_400.0
RESPONSE_BYTES_MAX: Final = 65_536
RESPONSE_WAIT_S_MAX: Final = 1.0
"""How long the rest of an answer may take. Its first line has decided already; reading on only
saves the connection for the next call."""

_REFUSED: Final = Result(Status.REJECTED, "egress_refused")
_AGENT: Final = f"minutewheel/{version('minutewheel')}"
_AGAIN: Final = frozenset({408, 425, 429})
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_TRACE_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SECONDS: Final = re.compile(r"[0-9]+")

_HEADERS_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "te",
        "trailer",
        "traceparent",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_PREFIXES_OURS: Final = ("webhook-", "proxy-")


class WebhookChannel:
    """`http://…` and `https://…`: no redirects, no proxies, no cookies, bounded in all."""

    name = "webhook"

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """`BadSetting` if a secret or an allowed network cannot be used."""
        self._clock = clock
        self._timeout_s = settings.deliver_timeout_s
        self._connections_max = settings.deliver_concurrency
        self._egress = Egress(settings.egress_allow)
        self._signers = [_signer(secret) for secret in settings.webhook_secret.split()]
        self._session: aiohttp.ClientSession | None = None

    async def send(self, call: Call) -> Result:
        """POST the due event and say what the answer means."""
        try:
            url = URL(call.event.destination)
        except ValueError:
            return Result(Status.REJECTED, "invalid_url")
        if not url.host:
            return Result(Status.REJECTED, "invalid_url")
        if url.user is not None or url.password is not None:
            # What looks like the host is not it, and credentials do not belong into a topic.
            return _REFUSED
        try:
            return await self._post(url, call)
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, EgressRefused):
                return _REFUSED
            return Result(Status.FAILED, type(error).__name__)
        except aiohttp.InvalidURL:
            # Hosts such as 2130706433 or 0177.0.0.1, which sockets would take for an address.
            return _REFUSED
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Result(Status.FAILED, type(error).__name__)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, url: URL, call: Call) -> Result:
        body = events.delivery_body(call.event)
        async with self._opened().post(
            url, data=body, headers=self._headers(call, body), allow_redirects=False
        ) as response:
            result = _result(response, self._clock.now_ms())
            await _drain(response)
            return result

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made inside the loop that uses it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=CheckedResolver(self._egress),
                    socket_factory=self._egress.open_socket,
                    limit=self._connections_max,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    def _headers(self, call: Call, body: bytes) -> dict[str, str]:
        event = call.event
        timestamp_s = self._clock.now_ms() // 1_000
        headers = passed_on(event.headers or {})
        headers |= {
            "content-type": "application/json",
            "user-agent": _AGENT,
            "webhook-id": event.fire_id,
            "idempotency-key": event.fire_id,
            "webhook-timestamp": str(timestamp_s),
            "webhook-attempt": str(event.attempt),
        }
        if self._signers:
            at = datetime.fromtimestamp(timestamp_s, UTC)
            headers["webhook-signature"] = " ".join(
                signer.sign(event.fire_id, at, body.decode()) for signer in self._signers
            )
        if call.trace_parent is not None and _TRACE_PARENT.fullmatch(call.trace_parent):
            headers["traceparent"] = call.trace_parent
        return headers


def passed_on(asked: dict[str, str]) -> dict[str, str]:
    """Those of a reminder's own headers that are sent on: none of ours, none that break a line."""
    kept = {}
    for name, value in asked.items():
        lower = name.lower()
        ours = lower in _HEADERS_OURS or lower.startswith(_PREFIXES_OURS)
        if not ours and _TOKEN.fullmatch(name) and not _UNPRINTABLE.search(value):
            kept[lower] = value
    return kept


def retry_after_s(value: str | None, now_ms: int) -> float | None:
    """Seconds to wait by a Retry-After header: a number or an HTTP date, at most a day.

    None if there is none or it is neither (RFC 9110, section 10.2.3).
    """
    if value is None:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        # Longer than any number of seconds that matters, and int() refuses thousands of digits.
        return RETRY_AFTER_S_MAX if len(text) > 9 else min(float(text), RETRY_AFTER_S_MAX)
    try:
        instant = parsedate_to_datetime(text)
        at_ms = instants.milliseconds(instant.replace(tzinfo=instant.tzinfo or UTC))
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(0.0, (at_ms - now_ms) / 1_000), RETRY_AFTER_S_MAX)


def _signer(secret: str) -> Webhook:
    try:
        return Webhook(secret)
    except Exception:
        raise BadSetting(
            "webhook_secret: must be whsec_ and base64, several of them separated by blanks"
        ) from None


def _result(response: aiohttp.ClientResponse, now_ms: int) -> Result:
    code = response.status
    detail = f"http_{code}"
    if 200 <= code < 300:
        return Result(Status.DELIVERED, detail)
    if code in _AGAIN or code >= 500:
        wait_s = retry_after_s(response.headers.get("retry-after"), now_ms)
        return Result(Status.FAILED, detail, retry_after_s=wait_s)
    if code < 400:
        return Result(Status.FAILED, detail)
    return Result(Status.REJECTED, detail)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read what is left of a short answer, so that its connection can be used again."""
    try:
        async with asyncio.timeout(RESPONSE_WAIT_S_MAX):
            left = RESPONSE_BYTES_MAX
            while left > 0 and (chunk := await response.content.read(left)):
                left -= len(chunk)
    except (TimeoutError, aiohttp.ClientError, OSError):
        left = 0
    if left <= 0:
        response.close()
