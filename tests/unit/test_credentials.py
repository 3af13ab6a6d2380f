"""What librdkafka's properties become in Faust's terms, one by one, and what is refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from faust import SASLCredentials, SSLCredentials

from streams import app
from streams.console import cli
from streams.credentials import credentials
from streams.errors import BadSetting
from streams.settings import Settings
from tests.secured import KEY_PASSWORD, PASSWORD, USER, Papers, papers

ACCOUNT = {"sasl.username": USER, "sasl.password": PASSWORD}
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **ACCOUNT}
SSL = {"security.protocol": "SSL"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates in files."""
    return papers(tmp_path_factory.mktemp("papers"))


def context_of(properties: dict[str, str]) -> ssl.SSLContext:
    """How connections are encrypted."""
    found = credentials(SSL | properties)
    assert isinstance(found, SSLCredentials)
    assert isinstance(found.context, ssl.SSLContext)
    return found.context


def refusal(properties: dict[str, str]) -> str:
    """What is said about properties that cannot be."""
    with pytest.raises(BadSetting) as refused:
        credentials(properties)
    said = str(refused.value)
    assert said.startswith("kafka: ")
    for secret in (PASSWORD, KEY_PASSWORD, "guessed"):
        assert secret not in said
    return said


# ---- accounts ----


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext", "ssl.keystore.location": "/no/such", **ACCOUNT},
    ],
)
def test_nothing_is_said_to_brokers_that_ask_for_nothing(properties: dict[str, str]) -> None:
    assert credentials(properties) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_ssl", "SASL_PLAINTEXT", " sasl_plaintext"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_an_account(name: str, protocol: str, mechanism: str) -> None:
    found = credentials({"security.protocol": protocol, name: mechanism, **ACCOUNT})
    assert isinstance(found, SASLCredentials)
    assert found.protocol.value == protocol.strip().upper()
    assert found.mechanism.value == mechanism
    assert (found.username, found.password) == (USER, PASSWORD)
    assert (found.ssl_context is not None) is (found.protocol.value == "SASL_SSL")
    assert PASSWORD not in repr(found)


def test_of_two_names_of_the_mechanism_the_later_counts() -> None:
    both = {"sasl.mechanism": "PLAIN", "sasl.mechanisms": "SCRAM-SHA-256"}
    assert credentials(PLAIN | both).mechanism.value == "SCRAM-SHA-256"


def test_what_concerns_other_mechanisms_has_no_effect_as_in_librdkafka() -> None:
    assert credentials(PLAIN | {"sasl.kerberos.service.name": "kafka"}).username == USER


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": ""}, "security.protocol"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism"),
        ({"sasl.mechanisms": "SCRAM-SHA-1"}, "sasl.mechanisms"),
        # As librdkafka, which knows the names in this form only.
        ({"sasl.mechanism": "plain"}, "sasl.mechanism"),
        ({"sasl.username": ""}, "sasl.username"),
        ({"sasl.password": ""}, "sasl.password"),
    ],
)
def test_an_account_that_cannot_be_is_refused_by_name(changes: dict[str, str], named: str) -> None:
    assert refusal(PLAIN | changes).startswith(f"kafka: {named}: ")


def test_a_refusal_says_what_is_possible() -> None:
    said = refusal(PLAIN | {"sasl.mechanism": "OAUTHBEARER"})
    assert "'OAUTHBEARER'" in said
    assert said.endswith("PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    unset = {name: value for name, value in PLAIN.items() if name != "sasl.mechanism"}
    assert "not set, which means GSSAPI" in refusal(unset)


# ---- encryption ----


def test_certificates_and_hosts_are_checked_unless_it_is_said_otherwise() -> None:
    context = context_of({})
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("properties", "host", "mode"),
    [
        ({"ssl.endpoint.identification.algorithm": "https"}, True, ssl.CERT_REQUIRED),
        ({"ssl.endpoint.identification.algorithm": "NONE"}, False, ssl.CERT_REQUIRED),
        ({"enable.ssl.certificate.verification": "True"}, True, ssl.CERT_REQUIRED),
        ({"enable.ssl.certificate.verification": "0"}, False, ssl.CERT_NONE),
        (
            {
                "enable.ssl.certificate.verification": "false",
                "ssl.endpoint.identification.algorithm": "https",
            },
            False,
            ssl.CERT_NONE,
        ),
    ],
)
def test_what_is_checked(properties: dict[str, str], host: bool, mode: ssl.VerifyMode) -> None:
    context = context_of(properties)
    assert (context.check_hostname, context.verify_mode) == (host, mode)


def test_who_is_trusted(made: Papers) -> None:
    own = {"ssl.ca.location": str(made.authority)}
    assert len(context_of(own).get_ca_certs()) == 1
    assert len(context_of({"ssl.ca.pem": made.authority.read_text()}).get_ca_certs()) == 1
    # What lies in a directory is read when it is needed.
    assert context_of({"ssl.ca.location": str(made.directory)}).get_ca_certs() == []
    by_system = [len(context_of(each).get_ca_certs()) for each in ({}, {"ssl.ca.location": ""})]
    by_system.append(len(context_of({"ssl.ca.location": "probe"}).get_ca_certs()))
    assert len(set(by_system)) == 1


def test_a_certificate_is_shown(made: Papers) -> None:
    context_of(made.client())
    open_key = {
        "ssl.certificate.location": str(made.certificate("broker")),
        "ssl.key.location": str(made.key("broker")),
    }
    context_of(open_key)
    # A key without a certificate says nothing to anybody, but nobody writes that on purpose.
    for name in open_key:
        other = next(each for each in open_key if each != name)
        assert refusal(SSL | {name: open_key[name]}).startswith(f"kafka: {other}: ")


@pytest.mark.parametrize("password", [None, "", "guessed"])
def test_a_key_that_stays_locked_is_refused_and_nobody_is_asked(
    made: Papers, password: str | None
) -> None:
    properties = made.client() | {"ssl.key.password": password or ""}
    if password is None:
        del properties["ssl.key.password"]
    assert "does ssl.key.password belong to it?" in refusal(properties)


def test_a_key_of_another_certificate_is_refused(made: Papers) -> None:
    mixed = made.client() | {"ssl.certificate.location": str(made.certificate("stranger"))}
    assert "key values mismatch" in refusal(mixed)


@pytest.mark.parametrize(
    "name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"]
)
def test_a_file_that_is_not_there_is_named(made: Papers, tmp_path: Path, name: str) -> None:
    gone = tmp_path / "gone.pem"
    said = refusal(made.client() | {name: str(gone)})
    assert said == f"kafka: {name}: {gone}: No such file or directory"


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.ca.pem"])
def test_what_is_no_certificate_is_named(tmp_path: Path, name: str) -> None:
    text = "no certificate"
    file = tmp_path / "ca.pem"
    file.write_text(text)
    assert refusal(SSL | {name: str(file) if name == "ssl.ca.location" else text}).startswith(
        f"kafka: {name}: "
    )


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.location",
        "ssl.certificate.pem",
        "ssl.key.pem",
        "ssl.crl.location",
        "ssl.cipher.suites",
        "ssl.nonsense",
    ],
)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_what_faust_cannot_be_told_is_refused_by_name(protocol: str, name: str) -> None:
    said = refusal(PLAIN | {"security.protocol": protocol, name: "guessed"})
    assert said.startswith(f"kafka: {name}: is not possible for a worker")
    assert "ssl.ca.location" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.ssl.certificate.verification", "no"),
        ("enable.ssl.certificate.verification", ""),
        ("ssl.endpoint.identification.algorithm", ""),
        ("ssl.endpoint.identification.algorithm", "hostname"),
    ],
)
def test_a_check_is_not_switched_off_by_a_slip(name: str, value: str) -> None:
    assert refusal(SSL | {name: value}).startswith(f"kafka: {name}: ")


# ---- the worker ----


def test_faust_is_given_them(tmp_path: Path) -> None:
    built = app.build(Settings(kafka=PLAIN, data_dir=tmp_path))
    assert built.conf.broker_credentials.username == USER
    assert built.producer.credentials is built.conf.broker_credentials


def test_a_worker_is_refused_before_any_broker_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["worker", "--bootstrap", "127.0.0.1:1", "--data-dir", str(tmp_path)]
    for name, value in (PLAIN | {"sasl.mechanism": "OAUTHBEARER"}).items():
        words += ["-X", f"{name}={value}"]
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("minutewheel: kafka: sasl.mechanism: 'OAUTHBEARER' ")
    assert PASSWORD not in said
