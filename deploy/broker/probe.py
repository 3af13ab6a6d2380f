"""Looks at ports and brokers from the outside: is it free, is it a Kafka, does it answer?"""

import logging
import socket
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.broker.settings import HOST

CONNECT_TIMEOUT_S = 1.0
STRANGER_TIMEOUT_S = 3.0

_log = logging.getLogger(__name__)
# The client tells of every refused connection, which is what waiting for a start consists of.
_log.addHandler(logging.NullHandler())
_log.propagate = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a Kafka says about itself."""

    cluster_id: str
    brokers: frozenset[int]


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address."""
    with socket.socket() as listener:
        # As Java does: a port whose last connections are still winding down counts as free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
        return True


def is_listening(port: int) -> bool:
    """Whether something takes connections on this port."""
    try:
        with socket.create_connection((HOST, port), timeout=CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def ask(bootstrap: str, timeout_s: float) -> Answer | None:
    """Asks for metadata; None if nothing that speaks Kafka answers within `timeout_s`."""
    client = AdminClient({"bootstrap.servers": bootstrap}, logger=_log)
    try:
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return None
    return Answer(str(metadata.cluster_id), frozenset(metadata.brokers))


def describe_owner(port: int) -> str:
    """Says what holds a taken port, for an error message."""
    answer = ask(f"{HOST}:{port}", STRANGER_TIMEOUT_S) if is_listening(port) else None
    if answer is None:
        return "something that is not a Kafka"
    return f"a Kafka (cluster {answer.cluster_id}), which --bootstrap {HOST}:{port} would use"
