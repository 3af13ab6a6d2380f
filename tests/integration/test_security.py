"""A Kafka that asks for certificates and passwords: both kinds of clients, and whole processes."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import orjson
import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError
from confluent_kafka.admin import AdminClient
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from streams.console import cli
from streams.credentials import credentials
from tests.answering import PARTITIONS, read
from tests.deployment import Deployment, deployed
from tests.processes import Program
from tests.secured import KEY_PASSWORD, PASSWORD, SecuredKafka, secured
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

ANSWER_TIMEOUT_S = 30.0
MANY = 10
REFUSED_TIMEOUT_S = 40.0


@pytest.fixture(scope="module")
def kafka_that_asks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One node for all tests here."""
    with secured(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def deployment(kafka_that_asks: SecuredKafka, tmp_path: Path) -> Iterator[Deployment]:
    """Topics, made through the plain listener."""
    with deployed(kafka_that_asks.at("PLAINTEXT"), tmp_path, PARTITIONS) as deployment:
        yield deployment


# ---- both kinds of clients ----


def librdkafka_is_let_in(bootstrap: str, properties: dict[str, str]) -> bool:
    """Whether a client of the kind that carries the reminders is answered."""
    heard: list[confluent_kafka.KafkaError] = []
    refusals = {confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL}
    own = {"bootstrap.servers": bootstrap, "log_level": "0", "error_cb": heard.append}
    client = AdminClient(own | properties)
    asked = client.describe_cluster(request_timeout=ANSWER_TIMEOUT_S)

    def is_told() -> bool:
        # Anything else may be trouble that passes, if it does not come again and again.
        client.poll(0.05)
        refused = any(error.code() in refusals for error in heard) or len(heard) >= MANY
        return asked.done() or refused

    wait_until(is_told, 2 * ANSWER_TIMEOUT_S, "answered or refused")
    return asked.done() and asked.exception() is None


def faust_is_let_in(bootstrap: str, properties: dict[str, str]) -> bool:
    """Whether a client of Faust's kind is answered, given what the same properties say."""
    given = credentials_to_aiokafka_auth(credentials(properties), None)

    async def asked() -> bool:
        host, _, port = bootstrap.partition(":")
        connection = AIOKafkaConnection(host, int(port), **given)
        try:
            await connection.connect()
        except OSError:
            return False
        except KafkaError:
            let_in = False
        else:
            let_in = True
        # A connection that came about, if only to be refused, ends before its loop does.
        await connection.close()
        return let_in

    return asyncio.run(asked())


@pytest.mark.parametrize(
    ("listener", "mechanism", "changes", "let_in"),
    [
        ("ACCOUNTS", "PLAIN", {}, True),
        ("ACCOUNTS", "SCRAM-SHA-256", {}, True),
        ("ACCOUNTS", "SCRAM-SHA-512", {}, True),
        ("ACCOUNTS", "PLAIN", {"sasl.password": "guessed"}, False),
        ("ACCOUNTS", "SCRAM-SHA-512", {"sasl.password": "guessed"}, False),
        ("ACCOUNTS", "SCRAM-SHA-512", {"sasl.username": "nobody"}, False),
        # Signed by nobody that the system knows.
        ("ACCOUNTS", "PLAIN", {"ssl.ca.location": ""}, False),
        (
            "ACCOUNTS",
            "PLAIN",
            {"ssl.ca.location": "", "enable.ssl.certificate.verification": "false"},
            True,
        ),
        ("OPEN", "PLAIN", {"security.protocol": "sasl_plaintext"}, True),
        ("OPEN", "SCRAM-SHA-256", {"security.protocol": "sasl_plaintext"}, True),
        (
            "OPEN",
            "PLAIN",
            {"security.protocol": "sasl_plaintext", "sasl.password": "guessed"},
            False,
        ),
    ],
)
def test_both_kinds_of_clients_agree_about_an_account(
    kafka_that_asks: SecuredKafka,
    listener: str,
    mechanism: str,
    changes: dict[str, str],
    let_in: bool,
) -> None:
    properties = kafka_that_asks.papers.account(mechanism) | changes
    assert librdkafka_is_let_in(kafka_that_asks.at(listener), properties) is let_in
    assert faust_is_let_in(kafka_that_asks.at(listener), properties) is let_in


@pytest.mark.parametrize(
    ("listener", "shown", "changes", "let_in"),
    [
        ("CERTIFICATES", "client", {}, True),
        ("CERTIFICATES", "stranger", {}, False),
        ("CERTIFICATES", "client", {"ssl.certificate.location": "", "ssl.key.location": ""}, False),
        ("ELSEWHERE", "client", {}, False),
        ("ELSEWHERE", "client", {"ssl.endpoint.identification.algorithm": "none"}, True),
        # Any host will do, but any authority will not.
        (
            "ELSEWHERE",
            "client",
            {"ssl.endpoint.identification.algorithm": "none", "ssl.ca.location": ""},
            False,
        ),
        ("ELSEWHERE", "client", {"enable.ssl.certificate.verification": "false"}, True),
        ("PLAINTEXT", "client", {}, False),
    ],
)
def test_both_kinds_of_clients_agree_about_certificates(
    kafka_that_asks: SecuredKafka, listener: str, shown: str, changes: dict[str, str], let_in: bool
) -> None:
    properties = kafka_that_asks.papers.client(shown) | changes
    assert librdkafka_is_let_in(kafka_that_asks.at(listener), properties) is let_in
    assert faust_is_let_in(kafka_that_asks.at(listener), properties) is let_in


# ---- whole processes ----


def written(properties: dict[str, str]) -> str:
    """Properties as the environment holds them."""
    return ",".join(f"{name}={value}" for name, value in properties.items())


def pending(worker: Program) -> int:
    """How many reminders are owed, by what Faust has read."""
    with urllib.request.urlopen(f"http://{worker.http}/v1/due", timeout=10) as answer:
        return int(orjson.loads(answer.read())["pending"])


@pytest.mark.parametrize("listener", ["ACCOUNTS", "CERTIFICATES"])
def test_a_reminder_goes_all_the_way_on_connections_that_are_secured(
    kafka_that_asks: SecuredKafka,
    deployment: Deployment,
    capsys: pytest.CaptureFixture[str],
    listener: str,
) -> None:
    papers, bootstrap = kafka_that_asks.papers, kafka_that_asks.at(listener)
    properties = papers.account("SCRAM-SHA-512") if listener == "ACCOUNTS" else papers.client()
    # Both kinds of clients tell all that concerns accounts, so a password that is told is found.
    talkative = properties | {"debug": "security"}
    worker = deployment.worker(bootstrap=bootstrap, kafka=written(talkative))
    worker.arguments += ["--log-level", "debug"]
    worker.start()
    worker.wait_ready()
    given = ["--bootstrap", bootstrap, "--prefix", deployment.settings.prefix]
    for name, value in properties.items():
        given += ["-X", f"{name}={value}"]
    assert cli.main(["schedule", "soon", "--at", "+1s", *given]) == 0, capsys.readouterr().err
    assert cli.main(["schedule", "later", "--at", "+1h", *given]) == 0, capsys.readouterr().err
    settings = replace(deployment.settings, bootstrap=bootstrap, kafka=properties)
    assert read(settings, settings.topics.due, 1).keys() == {"soon"}
    # The event that left is owed until its outcome is there.
    wait_until(lambda: pending(worker) >= 1, ANSWER_TIMEOUT_S, "the figures are there")
    capsys.readouterr()
    assert cli.main(["get", "later", "-o", "json", *given]) == 0
    assert orjson.loads(capsys.readouterr().out)["id"] == "later"
    assert worker.stop() == 0, worker.tail()
    said = worker.log.read_text()
    assert PASSWORD not in said
    assert KEY_PASSWORD not in said


def ended(program: Program) -> tuple[int, str]:
    """How a process that is not let in ends, and the last that it says."""
    program.start()
    process = program.process
    assert process is not None
    wait_until(lambda: not program.running, REFUSED_TIMEOUT_S, "it has ended")
    return process.returncode, program.tail(1)


@pytest.mark.parametrize("kind", ["worker", "delivery"])
def test_a_wrong_password_ends_a_process_with_the_reason(
    kafka_that_asks: SecuredKafka, deployment: Deployment, kind: str
) -> None:
    bootstrap = kafka_that_asks.at("ACCOUNTS")
    wrong = kafka_that_asks.papers.account("SCRAM-SHA-512") | {"sasl.password": "guessed"}
    start = deployment.worker if kind == "worker" else deployment.delivery
    program = start(bootstrap=bootstrap, kafka=written(wrong))
    code, said = ended(program)
    assert code == 5
    assert said.startswith(f"minutewheel: not let in at {bootstrap}: ")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in said
    assert "guessed" not in program.log.read_text()


def test_a_broker_that_is_not_the_one_that_was_asked_for_is_not_spoken_to(
    kafka_that_asks: SecuredKafka, deployment: Deployment
) -> None:
    bootstrap = kafka_that_asks.at("ELSEWHERE")
    properties = kafka_that_asks.papers.client()
    code, said = ended(deployment.worker(bootstrap=bootstrap, kafka=written(properties)))
    assert code == 5
    assert said.startswith(f"minutewheel: not let in at {bootstrap}: ")
    assert "broker certificate could not be verified" in said
