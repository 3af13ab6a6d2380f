"""A real Kafka that asks who is there: one listener for each way of asking.

The certificates are made anew for each run. The plain listener is for setting things up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from deploy.broker import LocalCluster
from deploy.broker.probe import is_free
from deploy.broker.settings import CONTROLLER_PORT_DISTANCE
from tests.kafka import PORT_RANGE

HOST: Final = "127.0.0.1"
LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "CERTIFICATES": "SSL",
    "ACCOUNTS": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
    "ELSEWHERE": "SSL",
}
"""CERTIFICATES asks clients for one; the certificate of ELSEWHERE is of another host."""

USER: Final = "keeper"
PASSWORD: Final = "wheel=and:minute"
KEY_PASSWORD: Final = "turn the key"
USERS_TIMEOUT_S: Final = 30.0
_LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Papers:
    """The certificates of one authority, and one of a stranger's, in files."""

    directory: Path

    @property
    def authority(self) -> Path:
        """What clients trust."""
        return self.directory / "authority.pem"

    def certificate(self, name: str) -> Path:
        """One side's certificate, with those that lead to the authority."""
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Its private key; the client's is locked with `KEY_PASSWORD`."""
        return self.directory / f"{name}.key"

    def both(self, name: str) -> Path:
        """Key and certificate in one file, as Kafka takes them."""
        return self.directory / f"{name}.pem"

    def client(self, name: str = "client") -> dict[str, str]:
        """The properties of a client that shows this certificate."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority),
            "ssl.certificate.location": str(self.certificate(name)),
            "ssl.key.location": str(self.key(name)),
            "ssl.key.password": KEY_PASSWORD,
        }

    def account(self, mechanism: str) -> dict[str, str]:
        """The properties of a client that says who it is on an encrypted connection."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }


def papers(directory: Path) -> Papers:
    """Make them all: `broker`, `elsewhere`, `client` and, of another authority, `stranger`."""
    made = Papers(directory)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made.authority))
    _issue(made, "broker", authority.issue_cert(HOST))
    _issue(made, "elsewhere", authority.issue_cert("elsewhere.example"))
    _issue(made, "client", authority.issue_cert("client.example"), KEY_PASSWORD)
    _issue(made, "stranger", trustme.CA().issue_cert("client.example"), KEY_PASSWORD)
    return made


def _issue(made: Papers, name: str, issued: trustme.LeafCert, password: str | None = None) -> None:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    lock = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    # Kafka reads no other form of a key than this one.
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
    chain = b"".join(certificate.bytes() for certificate in issued.cert_chain_pems)
    made.key(name).write_bytes(written)
    made.certificate(name).write_bytes(chain)
    made.both(name).write_bytes(written + chain)


@dataclass(frozen=True)
class SecuredKafka:
    """A running one: its listeners' addresses, and what its clients need."""

    papers: Papers
    port: int

    def at(self, listener: str) -> str:
        """The bootstrap address of one listener."""
        return _addresses(self.port)[listener]


@contextmanager
def secured(directory: Path) -> Iterator[SecuredKafka]:
    """One node with all listeners and one user, known to PLAIN and both kinds of SCRAM."""
    made = papers(directory)
    port = _free_ports()
    cluster = LocalCluster(directory, port=port, heap="512m", properties=_properties(made, port))
    with cluster:
        running = SecuredKafka(made, port)
        _add_user(running)
        yield running


def _free_ports() -> int:
    # Not from the seeded generator: two runs at once must not try the same ports.
    source = random.SystemRandom()
    while True:
        port = source.randrange(*PORT_RANGE)
        wanted = [*range(port, port + len(LISTENERS)), port + CONTROLLER_PORT_DISTANCE]
        if all(is_free(each) for each in wanted):
            return port


def _addresses(port: int) -> dict[str, str]:
    return {name: f"{HOST}:{port + place}" for place, name in enumerate(LISTENERS)}


def _properties(made: Papers, port: int) -> dict[str, str]:
    clients = ",".join(f"{name}://{address}" for name, address in _addresses(port).items())
    protocols = [f"{name}:{protocol}" for name, protocol in LISTENERS.items()]
    found = {
        "listeners": f"{clients},CONTROLLER://{HOST}:{port + CONTROLLER_PORT_DISTANCE}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *protocols]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(made.both("broker")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.authority),
        "listener.name.certificates.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": str(made.both("elsewhere")),
    }
    for listener in ("accounts", "open"):
        start = f"listener.name.{listener}"
        plain = f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        scram = f"{_LOGIN}.scram.ScramLoginModule required;"
        found |= {
            f"{start}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{start}.plain.sasl.jaas.config": plain,
            f"{start}.scram-sha-256.sasl.jaas.config": scram,
            f"{start}.scram-sha-512.sasl.jaas.config": scram,
        }
    return found


def _add_user(running: SecuredKafka) -> None:
    admin = AdminClient({"bootstrap.servers": running.at("PLAINTEXT")})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        how = ScramCredentialInfo(mechanism, 4_096)
        wanted = UserScramCredentialUpsertion(USER, how, PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])[USER].result(USERS_TIMEOUT_S)
    # The broker hears of a user a moment after it was made; a client tries until it is let in.
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        own = {"bootstrap.servers": running.at("ACCOUNTS"), "log_level": "0"}
        AdminClient(own | running.papers.account(name)).list_topics(timeout=USERS_TIMEOUT_S)
