"""Fetches one jar with jgo's pure-Python resolver: no Maven needed. Checks nothing: see jars.py."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.broker.errors import DownloadError
from deploy.broker.manifest import Jar

# Fetches a jar into the directory, returns the file's path, raises DownloadError.
Fetch = Callable[[Jar, Path], Path]

ATTEMPTS_MAX = 3
# Between two bytes, not for a whole file: a slow line is not a broken one.
SILENCE_TIMEOUT_S = 20


def maven() -> Any:
    """The package that reads Maven repositories. Raises DownloadError if it is not installed."""
    try:
        return importlib.import_module("jgo.maven")
    except ImportError as error:
        raise DownloadError(
            "The package jgo, which fetches Kafka's jars, is not installed: "
            'install minutewheel with its extra "local".'
        ) from error


def fetch_jar(jar: Jar, directory: Path) -> Path:
    """Fetches the jar below `directory`, trying a few times; raises DownloadError."""
    module = maven()
    context = module.MavenContext(
        resolver=module.PythonResolver(), repo_cache=directory, timeout=SILENCE_TIMEOUT_S
    )
    artifact = context.create_dependency(jar.coordinate).artifact
    failure: Exception | None = None
    for _ in range(ATTEMPTS_MAX):
        # What an attempt left behind is half a file, and the resolver would take it for a whole.
        artifact.cached_path.unlink(missing_ok=True)
        try:
            return Path(artifact.resolve())
        # OSError is the network's, RuntimeError the resolver's "not found there".
        except (OSError, RuntimeError) as error:
            failure = error
    # Not the whole text: it names the repository, which says nothing about what to do.
    reason = getattr(failure, "strerror", None) or type(failure).__name__
    raise DownloadError(f"{jar.file_name} could not be fetched ({reason}).") from failure
