"""An HTTP receiver that remembers every call it got."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson


@dataclass(frozen=True)
class Call:
    """One request: when it came, its webhook-id, its attempt and its JSON body."""

    at_ms: int
    webhook_id: str
    attempt: int
    body: dict[str, Any]


@dataclass
class Receiver:
    """The calls so far, and where to send more."""

    url: str
    calls: list[Call] = field(default_factory=list)

    def ids(self) -> Counter[str]:
        """How often each reminder was called for."""
        return Counter(call.body["id"] for call in list(self.calls))


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free loopback port that answers everything with 204."""
    receiver = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            at_ms = time.time_ns() // 1_000_000
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.calls.append(
                Call(
                    at_ms,
                    self.headers["webhook-id"],
                    int(self.headers["webhook-attempt"]),
                    orjson.loads(body),
                )
            )
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 512

        def handle_error(self, request: Any, client_address: Any) -> None:
            # A killed delivery worker cuts its connections: nothing to report.
            pass

    server = Server(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/remind"
    thread = threading.Thread(target=server.serve_forever, name="receiver", daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
