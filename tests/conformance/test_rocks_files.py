"""The files of the store on RocksDB: crashes, locks, damage, and a file system that refuses."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from buckets.errors import StoreDamaged, StoreLocked, StoreUnavailable
from buckets.rocks_store import RocksMemory, RocksStore, wipe
from buckets.store import Batch, Store
from tests.waiting import wait_until

END = b"\xff" * 16
ROOT = Path(__file__).parents[2]

OpenRocks = Callable[[Path], RocksStore]


def rows_of(store: Store) -> list[tuple[bytes, bytes]]:
    return store.scan(b"", END, 1_000_000)


def numbered(number: int) -> Batch:
    """A batch after which every part of the store names the same number."""
    text = str(number).encode()
    return Batch(
        text,
        index_puts=[(b"id", text), (b"id%d" % number, text)],
        row_puts=[(b"row", text), (b"row%d" % number, os.urandom(64))],
        count_puts=[(b"count", text)],
        row_deletes=[b"row%d" % (number - 3)],
    )


def assert_whole(store: Store, *, at_least: int) -> None:
    """The store is what some batch of `numbered` left, not earlier than the one given."""
    position = store.position()
    number = 0 if position is None else int(position)
    assert number >= at_least
    expected = None if number == 0 else str(number).encode()
    assert store.headers([b"id"]) == [expected]
    assert store.rows([b"row"]) == [expected]
    assert [value for _, value in store.counts()] == ([] if expected is None else [expected])
    known = [b"id%d" % n for n in range(1, 60)]
    assert [header is not None for header in store.headers(known)] == [
        n <= number for n in range(1, 60)
    ]
    live = {b"row%d" % n for n in range(max(1, number - 2), number + 1)}
    assert {key for key, _ in rows_of(store)} == (live | {b"row"} if number else set())


def test_what_was_closed_is_there_again(tmp_path: Path, open_rocks: OpenRocks) -> None:
    store = open_rocks(tmp_path)
    store.identify(b"mine")
    for number in range(1, 11):
        store.write(numbered(number))
    store.close()
    again = open_rocks(tmp_path)
    assert again.identity() == b"mine"
    assert_whole(again, at_least=10)


def test_close_gives_the_lock_back_at_once(tmp_path: Path, open_rocks: OpenRocks) -> None:
    for number in range(1, 6):
        store = open_rocks(tmp_path)
        store.write(numbered(number))
        list(store.counts())
        store.scan(b"", END, 1)
        store.close()
    assert_whole(open_rocks(tmp_path), at_least=5)


@pytest.mark.parametrize("flushed", [0, 1, 7, 20])
def test_a_copy_of_the_files_is_a_whole_batch(
    tmp_path: Path, open_rocks: OpenRocks, flushed: int
) -> None:
    """As a power cut leaves them: nothing was closed, and what was flushed is there."""
    store = open_rocks(tmp_path / "store")
    for number in range(1, 21):
        store.write(numbered(number))
        if number == flushed:
            store.flush()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert_whole(open_rocks(tmp_path / "copy"), at_least=flushed)


CRASHING = """
import os, signal, sys
from pathlib import Path
from buckets.rocks_store import RocksMemory, RocksStore
from tests.conformance.test_rocks_files import numbered

path, batches, flush_every, big_bytes = Path(sys.argv[1]), *map(int, sys.argv[2:])
store = RocksStore(path, RocksMemory(1 << 20))
for number in range(1, batches + 1):
    batch = numbered(number)
    batch.row_puts.append((b"big", os.urandom(big_bytes)))
    store.write(batch)
    if flush_every and number % flush_every == 0:
        store.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("batches", "flush_every", "big_bytes", "at_least"),
    [(20, 0, 0, 0), (21, 7, 0, 21), (20, 7, 0, 14), (50, 0, 4 << 20, 1)],
)
def test_a_killed_process_leaves_a_whole_batch(
    tmp_path: Path, batches: int, flush_every: int, big_bytes: int, at_least: int
) -> None:
    """Also when the memtables were flushed because they were full (the last row)."""
    arguments = [str(tmp_path), *(str(n) for n in (batches, flush_every, big_bytes))]
    killed = subprocess.run(
        [sys.executable, "-c", CRASHING, *arguments], cwd=ROOT, check=False, timeout=60
    )
    assert killed.returncode < 0
    store = RocksStore(tmp_path, RocksMemory(8 << 20))
    try:
        store.write(Batch(store.position() or b"0", row_deletes=[b"big"]))
        assert_whole(store, at_least=at_least)
    finally:
        store.close()


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, open_rocks: OpenRocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_rocks(tmp_path)
    store.write(numbered(1))

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(database, name)

        def write(self, *_: Any) -> None:
            raise Exception("IO error: No space left on device: While appending to file")

    database = store._database
    with monkeypatch.context() as patched:
        patched.setattr(store, "_database", Full())
        with pytest.raises(StoreUnavailable, match="No space left"):
            store.write(numbered(2))
    assert_whole(store, at_least=1)
    store.close()
    assert_whole(open_rocks(tmp_path), at_least=1)


def test_what_a_flush_has_met_is_heard_of_afterwards(
    tmp_path: Path, open_rocks: OpenRocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise StoreUnavailable("No space left on device")

    store = open_rocks(tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setattr(store, "flush", refuse)
        store.begin_flush()

    def heard() -> bool:
        try:
            store.check_flush()
        except StoreUnavailable:
            return True
        return False

    wait_until(heard, 10, "the flush to have failed")
    store.check_flush()
    store.begin_flush()
    store.close()


def test_a_store_that_is_closed_lets_its_flush_end_first(
    tmp_path: Path, open_rocks: OpenRocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = Event(), Event(), Event()
    flush = RocksStore.flush

    def slow(store: RocksStore) -> None:
        begun.set()
        assert go_on.wait(10)
        flush(store)
        ended.set()

    store = open_rocks(tmp_path / "store")
    with monkeypatch.context() as patched:
        patched.setattr(RocksStore, "flush", slow)
        store.begin_flush()
        assert begun.wait(10)
    closing = Thread(target=store.close)
    closing.start()
    # One that did not wait would be through with it by then.
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(10)
    assert ended.is_set()
    assert not closing.is_alive()


def test_a_store_that_cannot_flush_still_closes(
    tmp_path: Path, open_rocks: OpenRocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_rocks(tmp_path)

    def refuse() -> None:
        raise StoreUnavailable("no space")

    monkeypatch.setattr(store, "flush", refuse)
    store.close()
    open_rocks(tmp_path)


# ---- locked ----

HOLDING = """
import sys
from pathlib import Path
from buckets.rocks_store import RocksMemory, RocksStore

store = RocksStore(Path(sys.argv[1]), RocksMemory(1 << 20))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_store_held_by_another_process_is_locked(tmp_path: Path, open_rocks: OpenRocks) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked, match="--data-dir"):
            open_rocks(tmp_path)
        holder.kill()
        holder.communicate(timeout=30)
    open_rocks(tmp_path)


def test_a_store_held_by_this_process_is_locked(tmp_path: Path, open_rocks: OpenRocks) -> None:
    held = open_rocks(tmp_path)
    with pytest.raises(StoreLocked):
        open_rocks(tmp_path)
    held.close()
    open_rocks(tmp_path)


# ---- damaged ----

ROWS = 3_000


@pytest.fixture(scope="session")
def intact(tmp_path_factory: pytest.TempPathFactory, memory: RocksMemory) -> Path:
    """A closed store of many blocks, whose path has the word that locks are known by."""
    path = tmp_path_factory.mktemp("blocked") / "store"
    store = RocksStore(path, memory)
    store.identify(b"mine")
    store.write(
        Batch(
            b"position",
            index_puts=[(b"%06d" % n, b"h" * 12) for n in range(ROWS)],
            row_puts=[(b"%06d" % n, b"%0100d" % n) for n in range(ROWS)],
            count_puts=[(b"%06d" % n, b"%0240d" % n) for n in range(500)],
        )
    )
    store.close()
    return path


def read_everything(store: RocksStore) -> None:
    """Whatever the store still answers, it answers rightly: all of its batch, or nothing of it."""
    if store.position() is None:
        assert rows_of(store) == []
        assert list(store.counts()) == []
        assert store.headers([b"000001"]) == [None]
        return
    assert store.identity() == b"mine"
    assert store.position() == b"position"
    assert len(rows_of(store)) == ROWS
    assert [key for key, _ in store.scan(b"001000", END, 1_500)] == [
        b"%06d" % n for n in range(1_000, 2_500)
    ]
    assert len(list(store.counts())) == 500
    assert len(list(store.index())) == ROWS
    headers = store.headers([b"%06d" % n for n in range(ROWS)])
    assert all(header is not None for header in headers)


def damaged_or_whole(path: Path, open_rocks: OpenRocks) -> bool:
    """Whether a store is refused as damaged; otherwise it must be right in all it says."""
    try:
        store = open_rocks(path)
    except StoreDamaged:
        return True
    try:
        read_everything(store)
    except StoreDamaged:
        store.close()
        # The next process must not find it sound only because it opens.
        with pytest.raises(StoreDamaged):
            open_rocks(path)
        return True
    store.close()
    return False


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x40
    file.write_bytes(content)


@pytest.mark.parametrize("part", ["*.sst", "MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "remove"])
def test_damaged_files_are_never_served(
    tmp_path: Path, intact: Path, open_rocks: OpenRocks, part: str, harm: str
) -> None:
    refused = 0
    for number, victim in enumerate(sorted(intact.glob(part))):
        size = victim.stat().st_size
        places = range(3, size, max(1, size // 12)) if harm == "flip" else [size // 2]
        for place in places:
            path = tmp_path / f"{number}-{place}"
            shutil.copytree(intact, path)
            file = path / victim.name
            if harm == "flip":
                flip(file, place)
            elif harm == "cut":
                file.write_bytes(file.read_bytes()[:place])
            elif harm == "empty":
                file.write_bytes(b"")
            else:
                file.unlink()
            refused += damaged_or_whole(path, open_rocks)
            shutil.rmtree(path)
    # A manifest that ends early describes an earlier batch, which the log brings up to date.
    assert refused or (part, harm) == ("MANIFEST-*", "cut")


@pytest.mark.parametrize("part", ["OPTIONS-*", "rocksdict-config.json", "IDENTITY", "LOG*"])
def test_files_that_hold_no_data_may_go(
    tmp_path: Path, intact: Path, open_rocks: OpenRocks, part: str
) -> None:
    for number, victim in enumerate(sorted(intact.glob(part))):
        for garbage in (b"", b"\xff\x00garbage", None):
            path = tmp_path / f"{number}-{garbage!r}"
            shutil.copytree(intact, path)
            if garbage is None:
                (path / victim.name).unlink()
            else:
                (path / victim.name).write_bytes(garbage)
            assert not damaged_or_whole(path, open_rocks)


def test_a_damaged_store_can_be_wiped_and_begun_anew(
    tmp_path: Path, intact: Path, open_rocks: OpenRocks
) -> None:
    path = tmp_path / "store"
    shutil.copytree(intact, path)
    (path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StoreDamaged):
        open_rocks(path)
    wipe(path)
    store = open_rocks(path)
    assert store.position() is None
    store.write(numbered(1))
    assert_whole(store, at_least=1)


def test_a_path_that_is_a_file_is_not_damage(tmp_path: Path, open_rocks: OpenRocks) -> None:
    (tmp_path / "store").write_text("something else")
    with pytest.raises(StoreUnavailable):
        open_rocks(tmp_path / "store")
    assert (tmp_path / "store").read_text() == "something else"


def test_too_many_open_files_are_not_damage(
    tmp_path: Path, intact: Path, open_rocks: OpenRocks
) -> None:
    path = tmp_path / "store"
    shutil.copytree(intact, path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        # A little more than what the process has open, which depends on the tests before.
        allowed = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, allowed), hard))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(3):
            os.close(taken.pop())
        with pytest.raises(StoreUnavailable, match="Too many open files"):
            open_rocks(path)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    read_everything(open_rocks(path))
