"""Writes one record with a header whose name is not UTF-8, as a client in another language may.

    AIOKAFKA_NO_EXTENSIONS=1 python -m tests.acceptance.raw_header BOOTSTRAP TOPIC KEY VALUE

A process of its own: only the client's pure Python encoder lets such a name pass, and which
encoder it uses is decided when it is imported.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaProducer


class RawName(str):
    """A header's name that encodes to bytes no text has."""

    def encode(self, *_: Any, **__: Any) -> bytes:
        """Not UTF-8."""
        return b"\xff\xfe"


async def write(bootstrap: str, topic: str, key: str, value: str) -> None:
    """Write the record and wait until it is there."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        headers = [(RawName("name"), b"value")]
        await producer.send_and_wait(topic, value.encode(), key=key.encode(), headers=headers)
    finally:
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(write(*sys.argv[1:5]))
