"""Opening a partition's store, and making sure it is the right one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from buckets.errors import StoreDamaged
from buckets.partition import Partition
from buckets.rocks_store import RocksMemory, RocksStore, wipe
from schemas.errors import UnknownFormat
from streams.errors import EngineFailed, PartitionsChanged
from streams.logs import Log


@dataclass(frozen=True, slots=True)
class Identity:
    """What a store belongs to. A topic deleted and made anew has another id."""

    cluster: str
    state_topic: str
    partitions: int
    partition: int


class Stores:
    """The stores of a process, one directory a partition."""

    def __init__(self, directory: Path, memory: RocksMemory, log: Log) -> None:
        self._directory = directory
        self._memory = memory
        self._log = log

    def open(self, identity: Identity) -> Partition:
        """The partition over its store, wiped first where it cannot be used.

        Raises `StoreLocked` and `StoreUnavailable`; `PartitionsChanged` where ids would now hash
        elsewhere, `EngineFailed` where a newer release wrote it.
        """
        try:
            found = self._open_as_found(identity)
            if found is not None:
                return found
        except StoreDamaged as error:
            self._log.error("store wiped", partition=identity.partition, why=str(error))
        wipe(self._path(identity))
        store = RocksStore(self._path(identity), self._memory)
        store.identify(orjson.dumps(asdict(identity)))
        return Partition(store)

    def _path(self, identity: Identity) -> Path:
        return self._directory / str(identity.partition)

    def _open_as_found(self, identity: Identity) -> Partition | None:
        """The store as it is on disk, None where there is none or it is another's."""
        path = self._path(identity)
        store = RocksStore(path, self._memory)
        try:
            found = store.identity()
            if found == orjson.dumps(asdict(identity)):
                return Partition(store)
            if found is not None:
                why = _difference(found, identity)
                self._log.error("store wiped", partition=identity.partition, why=why)
        except UnknownFormat as error:
            store.close()
            raise EngineFailed(f"{path}: {error}") from None
        except BaseException:
            store.close()
            raise
        store.close()
        return None

    def reopen_empty(self, identity: Identity, old: Partition) -> Partition:
        """Throw a partition's store away and begin a new one."""
        old.store.close()
        wipe(self._path(identity))
        return self.open(identity)


def _difference(found: bytes, wanted: Identity) -> str:
    stored = orjson.loads(found)
    same_topic = stored.get("state_topic") == wanted.state_topic
    if same_topic and stored.get("partitions") != wanted.partitions:
        raise PartitionsChanged(
            f"the store was written with {stored.get('partitions')} partitions, "
            f"the topics now have {wanted.partitions}: ids hash to other partitions"
        )
    return f"it belongs to {stored}, not to {asdict(wanted)}"
