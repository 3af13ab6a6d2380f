"""A delivery worker's own pages: /metrics, /health/live and /health/ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from streams.errors import BadSetting

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

STOP_TIMEOUT_S: Final = 5.0


class _Quiet(WSGIRequestHandler):
    """A scrape every few seconds is nothing to log."""

    timeout = 10

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(address: str, ready: Callable[[], bool]) -> Iterator[None]:
    """Serve the pages at HOST:PORT while the block runs; nothing where `address` is empty.

    Raises `BadSetting` where the address cannot be used.
    """
    if not address:
        yield
        return
    host, _, port = address.rpartition(":")
    try:
        server = make_server(
            host, int(port), _pages(ready), server_class=WSGIServer, handler_class=_Quiet
        )
    except (OSError, OverflowError, ValueError) as error:
        raise BadSetting(f"--http {address}: {error}; choose another address") from None
    thread = threading.Thread(target=server.serve_forever, name="delivery-pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(STOP_TIMEOUT_S)


def _pages(ready: Callable[[], bool]) -> Any:
    metrics = make_wsgi_app()

    def pages(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start)
            return found
        if path == "/health/live":
            return _say(start, "200 OK", b'{"live":true}\n')
        if path == "/health/ready":
            if ready():
                return _say(start, "200 OK", b'{"ready":true}\n')
            return _say(start, "503 Service Unavailable", b'{"ready":false}\n')
        return _say(start, "404 Not Found", b'{"error":{"code":"not_found"}}\n')

    return pages


def _say(start: StartResponse, status: str, body: bytes) -> list[bytes]:
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
