"""Asking a node over HTTP, on a real server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest

from streams.clock import SystemClock
from streams.console import cli, nodes
from streams.console.failures import Usage
from streams.console.nodes import Nodes, Unavailable
from streams.errors import NoNode, NotFound, StreamsError
from streams.settings import Settings

REMINDER = b'{"id":"a/b c%","state":"pending","payload":{"n":12345678901234567890123}}'
DUE = b'{"by":"day","from":null,"to":null,"pending":3,"claims":0,"buckets":[{"at":"2026-12-01T00:00:00.000Z","count":3,"tenants":{"default":3}}]}'  # noqa: E501


class Node(BaseHTTPRequestHandler):
    """Answers as a processor would."""

    asked: list[str]
    refusals_left = 0

    def do_GET(self) -> None:
        """Answer by path."""
        type(self).asked.append(self.path)
        status, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> tuple[int, bytes]:
        if type(self).refusals_left:
            type(self).refusals_left -= 1
            return 503, b'{"error":{"code":"unavailable","message":"partition 1 is restoring"}}'
        if self.path.startswith("/v1/due?by=minute"):
            return 422, b'{"error":{"code":"invalid","message":"from: lies after to"}}'
        if self.path.startswith("/v1/due?"):
            return 200, DUE
        if self.path == "/v1/reminders/a%2Fb%20c%25":
            return 200, REMINDER
        if self.path == "/v1/reminders/boom":
            return 500, b"a \x1b[2J mess"
        return 404, b"{}"

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    Node.asked, Node.refusals_left = [], 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Node)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def asked(address: str) -> Nodes:
    return Nodes(Settings(), SystemClock(), address)


def test_an_id_of_any_letters_is_asked_for(asked: Nodes) -> None:
    assert asked.reminder("a/b c%", 0) == REMINDER


def test_no_such_reminder(asked: Nodes) -> None:
    with pytest.raises(NotFound, match="there is no reminder 'nope'"):
        asked.reminder("nope", 0)


def test_a_node_that_is_restoring_is_asked_again_until_the_time_is_over(
    asked: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "RETRY_INTERVAL_S", 0.01)
    Node.refusals_left = 3
    assert asked.reminder("a/b c%", 10) == REMINDER
    assert len(Node.asked) == 4
    Node.refusals_left = 1
    with pytest.raises(Unavailable, match="partition 1 is restoring"):
        asked.reminder("a/b c%", 0)


def test_any_other_answer_is_said_and_cannot_steer_the_terminal(asked: Nodes) -> None:
    with pytest.raises(StreamsError, match=r"answered 500: a \\x1b\[2J mess"):
        asked.reminder("boom", 0)


def test_a_query_the_node_refuses_is_a_usage_error(asked: Nodes) -> None:
    with pytest.raises(Usage, match="from: lies after to"):
        asked.due({"by": "minute"}, 0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "host:port"])
def test_no_node_there(address: str) -> None:
    with pytest.raises(NoNode):
        Nodes(Settings(), SystemClock(), address).reminder("a", 0)


def test_the_commands_print_what_the_node_says(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["get", "a/b c%", "--http", address, "-o", "jsonl"]) == 0
    assert capsys.readouterr().out.encode() == REMINDER + b"\n"
    assert cli.main(["get", "nope", "--http", address]) == 3
    assert cli.main(["due", "--by", "day", "--http", address]) == 0
    assert "2026-12-01" in capsys.readouterr().out
    assert cli.main(["due", "--by", "day", "--http", address, "-o", "json"]) == 0
    assert orjson.loads(capsys.readouterr().out) == orjson.loads(DUE)
    words = ["due", "--by", "day", "--from", "+1d", "--http", address, "-o", "jsonl"]
    assert cli.main(words) == 0
    assert orjson.loads(capsys.readouterr().out)["count"] == 3
    assert "from=20" in Node.asked[-1]
