"""The webhook channel makes no connection inwards, however the address is written."""

from __future__ import annotations

import pytest
from aiohttp import web

from schemas.events import Status
from streams.delivery.channels import Result
from tests.webhook_receiver import (
    answer,
    one,
)


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

    assert one(handle, url, egress_allow=()) == Result(Status.REJECTED, "egress_refused")
    assert asked == []


def test_user_information_is_refused_even_where_the_host_is_allowed() -> None:
    assert one(answer(200), "http://user@127.0.0.1:PORT/").detail == "egress_refused"


@pytest.mark.parametrize("url", ["http://", "https:", "http:///x", "http://a:b:c/", "http://[::1"])
def test_what_is_no_url_is_rejected(url: str) -> None:
    assert one(answer(200), url) == Result(Status.REJECTED, "invalid_url")
