"""The process's transactional producers, which take turns."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from streams import kafka
from streams.errors import EngineFailed
from streams.settings import Settings

COUNT: Final = 2
INIT_TIMEOUT_S: Final = 5.0


class Producers:
    """A commit is answered before its markers are written. Until they are, the coordinator tells
    the same producer's next transaction to wait, and the client waits 20 ms, more than a small
    turn takes. Another producer's transaction begins at once, and by its end they are written.

    All of them are there, or none: what one left open at a crash, only its successor ends.
    """

    def __init__(self, settings: Settings, log: Any) -> None:
        self._settings = settings
        self._log = log
        self._producers: list[Producer] = []
        self._committed = 0

    @property
    def ready(self) -> bool:
        """Whether turns can be committed."""
        return bool(self._producers)

    def open(self) -> None:
        """End what processes of this name have left open, and get ready if the brokers answer.

        Raises `EngineFailed` where they answer that it is not allowed.
        """
        if self._producers:
            return
        opened: list[Producer] = []
        for number in range(COUNT):
            name = f"{self._settings.processor_group}-{self._settings.name}-{number}"
            producer = kafka.transactional_producer(self._settings, name, "processor")
            try:
                producer.init_transactions(INIT_TIMEOUT_S)
            except KafkaException as raised:
                error = raised.args[0]
                if error.fatal() or not error.retriable():
                    raise EngineFailed(f"no transactions as {name}: {error.str()}") from None
                self._log.warning("waiting for the transaction coordinator", error=error.str())
                return
            opened.append(producer)
        self._producers = opened

    @property
    def current(self) -> Producer:
        """The one whose turn it is. Only while `ready`."""
        return self._producers[self._committed % COUNT]

    def committed(self) -> None:
        """The current one has committed a transaction: the next is the other's."""
        self._committed += 1

    def drop(self) -> None:
        """None of them is used again.

        What is purged leaves a gap in the sequence numbers, and a producer has been seen to wait on
        that for ever. What is not purged has no answer yet, and keeps the producer's threads alive.
        """
        for producer in self._producers:
            producer.purge()
            with suppress(KafkaException):
                producer.poll(0)
        self._producers = []
