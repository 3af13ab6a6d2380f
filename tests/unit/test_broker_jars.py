"""The jars: only pinned bytes are ever used, and a broken download heals."""

import hashlib
import threading
from pathlib import Path

import pytest

from deploy.broker import BrokerError, CacheError, DigestMismatchError, DownloadError
from deploy.broker.jars import cache_directory, class_path
from deploy.broker.manifest import (
    KAFKA_VERSION,
    MANIFEST_PATH,
    Jar,
    parse_manifest,
    pinned_jars,
    render_manifest,
)

CONTENTS = {name: f"the bytes of {name}".encode() for name in ("alpha", "beta", "gamma")}
JARS = tuple(
    Jar(f"org.example:{name}:1.0", hashlib.sha256(content).hexdigest())
    for name, content in CONTENTS.items()
)
PLACE = f"kafka-{KAFKA_VERSION}"


class Source:
    """Stands for the repository; notes what was asked for, gives what it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.altered: set[str] = set()

    def fetch(self, jar: Jar, directory: Path) -> Path:
        name = jar.coordinate.split(":")[1]
        self.asked.append(name)
        path = directory / jar.file_name
        if name in self.broken:
            path.write_bytes(CONTENTS[name][:5])
            raise DownloadError(f"{name} broke off.")
        path.write_bytes(b"something else" if name in self.altered else CONTENTS[name])
        return path


def run(cache: Path, source: Source) -> str:
    return class_path(cache, fetch=source.fetch, jars=JARS)


def test_the_checked_in_manifest_is_in_its_own_form_and_has_one_kafka() -> None:
    jars = pinned_jars()
    assert render_manifest(jars) == MANIFEST_PATH.read_text()
    kafka = {jar.coordinate.split(":")[2] for jar in jars if ":kafka" in jar.coordinate}
    assert kafka == {KAFKA_VERSION}


@pytest.mark.parametrize(
    "text",
    [
        "abc  org.example:alpha:1.0\n",
        f"{'0' * 64} org.example:alpha:1.0\n",
        f"{'0' * 64}  alpha-1.0.jar\n",
        f"{'0' * 64}  org.example:alpha:1.0\n" * 2,
        "\n",
    ],
)
def test_a_manifest_of_another_form_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"jars\.sha256 line \d"):
        parse_manifest(text)


def test_everything_is_fetched_once(tmp_path: Path) -> None:
    source = Source()
    first = run(tmp_path, source)
    assert sorted(source.asked) == sorted(CONTENTS)
    assert run(tmp_path, source) == first
    assert len(source.asked) == len(CONTENTS)
    assert [Path(each).read_bytes() for each in first.split(":")] == list(CONTENTS.values())


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    class_path(tmp_path, told.append, Source().fetch, JARS)
    assert told[0].startswith(f"Fetching Kafka {KAFKA_VERSION}")
    assert "Fetched 3 of 3" in told[-1]


def test_a_download_that_breaks_off_is_continued_by_the_next_start(tmp_path: Path) -> None:
    source = Source()
    source.broken = {"beta"}
    with pytest.raises(DownloadError, match="beta broke off"):
        run(tmp_path, source)
    assert not (tmp_path / PLACE / "beta-1.0.jar").exists()
    arrived = {path.name.split("-")[0] for path in (tmp_path / PLACE).glob("*.jar")}
    source.broken, source.asked = set(), []
    run(tmp_path, source)
    assert set(source.asked) == set(CONTENTS) - arrived


def test_what_a_killed_start_left_behind_is_cleared_away(tmp_path: Path) -> None:
    left_over = tmp_path / ".download-old"
    left_over.mkdir()
    (left_over / "alpha-1.0.jar").write_bytes(b"half")
    run(tmp_path, Source())
    assert not left_over.exists()


def test_an_altered_download_is_refused_and_not_kept(tmp_path: Path) -> None:
    source = Source()
    source.altered = {"gamma"}
    with pytest.raises(DigestMismatchError, match=r"gamma-1\.0\.jar arrived with another digest"):
        run(tmp_path, source)
    assert not (tmp_path / PLACE / "gamma-1.0.jar").exists()


def test_a_jar_altered_in_the_cache_is_refused_by_name(tmp_path: Path) -> None:
    source = Source()
    run(tmp_path, source)
    (tmp_path / PLACE / "alpha-1.0.jar").write_bytes(b"corrupted")
    with pytest.raises(DigestMismatchError, match=r"alpha-1\.0\.jar has another digest.*") as info:
        run(tmp_path, source)
    assert "delete it and start again" in str(info.value)
    (tmp_path / PLACE / "alpha-1.0.jar").unlink()
    run(tmp_path, source)


def test_two_starts_at_once_fetch_once(tmp_path: Path) -> None:
    source = Source()
    threads = [threading.Thread(target=run, args=(tmp_path, source)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(source.asked) == sorted(CONTENTS)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(CacheError, match="MINUTEWHEEL_CACHE"):
        run(in_the_way / "cache", Source())


def test_the_cache_is_where_the_environment_says() -> None:
    assert cache_directory({"MINUTEWHEEL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/minutewheel")
    assert cache_directory({}) == Path.home() / ".cache" / "minutewheel"


def test_every_error_says_what_to_do() -> None:
    for kind in BrokerError.__subclasses__():
        assert len(str(kind())) > 40
        assert str(kind("The detail.")).startswith("The detail.\n")
