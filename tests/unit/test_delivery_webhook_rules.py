"""The webhook channel's rules that need no server: Retry-After, secrets, headers passed on."""

from __future__ import annotations

import pytest

from streams.clock import SystemClock
from streams.delivery.webhook import RETRY_AFTER_S_MAX, WebhookChannel, passed_on, retry_after_s
from streams.errors import BadSetting
from streams.settings import Settings

NOW_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z, a Wednesday


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


def test_a_secret_that_is_none_is_named() -> None:
    for secret in ("whsec_", "whsec_ä"):
        with pytest.raises(BadSetting, match="webhook_secret"):
            WebhookChannel(Settings(webhook_secret=secret), SystemClock())


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
