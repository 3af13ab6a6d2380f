"""Puts the pinned jars into the cache and proves that they are the pinned ones.

    <cache>/kafka-4.4.0/           only jars whose digest was checked
    <cache>/kafka-4.4.0/verified   sizes and times of the checked files, so that later starts
                                   need not read them again
    <cache>/.download-<random>/    jars on their way; left-overs of a dead start are removed
    <cache>/lock                   held while the cache is looked at or filled

A jar is renamed into its place only after its digest was checked, so a start that is cut off
leaves a cache that is smaller, never one that is wrong, and the next start goes on from there.
"""

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from deploy.broker.download import Fetch, fetch_jar
from deploy.broker.errors import BrokerError, CacheError, DigestMismatchError, DownloadError
from deploy.broker.manifest import KAFKA_VERSION, Jar, pinned_jars

Progress = Callable[[str], None]
DOWNLOADS_AT_ONCE_MAX = 8
_DOWNLOAD_PREFIX = ".download-"


def silent(message: str) -> None:
    """The progress hook of those who do not want any."""


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """MINUTEWHEEL_CACHE, else `minutewheel` in XDG_CACHE_HOME, else in ~/.cache."""
    if chosen := environment.get("MINUTEWHEEL_CACHE"):
        return Path(chosen).expanduser()
    if caches := environment.get("XDG_CACHE_HOME"):
        return Path(caches) / "minutewheel"
    return Path.home() / ".cache" / "minutewheel"


def class_path(
    cache: Path | None = None,
    on_progress: Progress = silent,
    fetch: Fetch = fetch_jar,
    jars: tuple[Jar, ...] | None = None,
) -> str:
    """Kafka's class path: every pinned jar, present and checked, fetched if need be.

    Raises DownloadError, DigestMismatchError or CacheError.
    """
    cache = cache or cache_directory()
    jars = jars or pinned_jars()
    place = cache / f"kafka-{KAFKA_VERSION}"
    try:
        with _locked(cache):
            place.mkdir(exist_ok=True)
            if not _is_verified(place, jars):
                _complete(cache, place, jars, on_progress, fetch)
                _write_stamp(place, jars)
    except BrokerError:
        raise
    except OSError as error:
        raise CacheError(f"The cache {cache} cannot be used: {error}.") from error
    return os.pathsep.join(str(place / jar.file_name) for jar in jars)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _complete(
    cache: Path, place: Path, jars: tuple[Jar, ...], on_progress: Progress, fetch: Fetch
) -> None:
    for left_over in cache.glob(f"{_DOWNLOAD_PREFIX}*"):
        shutil.rmtree(left_over, ignore_errors=True)
    missing = [jar for jar in jars if not _is_checked(jar, place / jar.file_name)]
    if not missing:
        return
    on_progress(f"Fetching Kafka {KAFKA_VERSION}, only this once: {len(missing)} files")
    with tempfile.TemporaryDirectory(prefix=_DOWNLOAD_PREFIX, dir=cache) as arrivals:
        _fetch_all(missing, Path(arrivals), place, on_progress, fetch)


def _fetch_all(
    missing: list[Jar], arrivals: Path, place: Path, on_progress: Progress, fetch: Fetch
) -> None:
    def fetch_one(jar: Jar) -> Jar:
        arrived = fetch(jar, arrivals)
        if not jar.matches(arrived):
            raise DigestMismatchError(f"{jar.file_name} arrived with another digest.")
        arrived.rename(place / jar.file_name)
        return jar

    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE_MAX, thread_name_prefix="jars") as pool:
        running = [pool.submit(fetch_one, jar) for jar in missing]
        try:
            for count, done in enumerate(as_completed(running), start=1):
                on_progress(f"Fetched {count} of {len(missing)}: {done.result().file_name}")
        except BaseException as error:
            pool.shutdown(wait=True, cancel_futures=True)
            if isinstance(error, OSError):
                raise DownloadError(f"A jar could not be fetched: {error}.") from error
            raise


def _is_checked(jar: Jar, path: Path) -> bool:
    if not path.exists():
        return False
    if not jar.matches(path):
        raise DigestMismatchError(f"{path} has another digest than the pinned one.")
    return True


def _stamp(place: Path, jars: tuple[Jar, ...]) -> dict[str, list[int | str]]:
    stamp: dict[str, list[int | str]] = {}
    for jar in jars:
        facts = (place / jar.file_name).stat()
        stamp[jar.file_name] = [jar.digest, facts.st_size, facts.st_mtime_ns]
    return stamp


def _is_verified(place: Path, jars: tuple[Jar, ...]) -> bool:
    try:
        written = json.loads((place / "verified").read_text(encoding="utf-8"))
        return bool(written == _stamp(place, jars))
    except (FileNotFoundError, ValueError):
        return False


def _write_stamp(place: Path, jars: tuple[Jar, ...]) -> None:
    unfinished = place / "verified.new"
    unfinished.write_text(json.dumps(_stamp(place, jars)), encoding="utf-8")
    unfinished.rename(place / "verified")
