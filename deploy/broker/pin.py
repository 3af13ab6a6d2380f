"""Writes jars.sha256 anew after KAFKA_VERSION was changed: `python -m deploy.broker.pin`."""

import tempfile
from pathlib import Path

from deploy.broker.download import fetch_jar, maven
from deploy.broker.manifest import KAFKA_VERSION, MANIFEST_PATH, Jar, digest_of, render_manifest

# Kafka's own logging goes through slf4j; this binds it to log4j, which Kafka brings along.
LOG_BINDING = "org.apache.logging.log4j:log4j-slf4j-impl"
# Only Kafka Connect's tools need these, and they would bring a web server with them.
LEFT_OUT = ("connect-runtime", "connect-api", "connect-json", "connect-transforms")


def resolve(directory: Path) -> list[str]:
    """The coordinates of all jars that the server and its console tools need."""
    module = maven()
    context = module.MavenContext(resolver=module.PythonResolver(), repo_cache=directory)
    left_out = [context.project("org.apache.kafka", name) for name in LEFT_OUT]
    wanted = [
        context.create_dependency(f"org.apache.kafka:{name}:{KAFKA_VERSION}", left_out)
        for name in ("kafka_2.13", "kafka-tools")
    ]
    inputs, transitive = context.resolver.resolve(wanted)
    artifacts = [
        each.artifact
        for each in inputs + transitive
        if each.scope not in ("test", "provided", "system")
    ]
    coordinates = [f"{each.groupId}:{each.artifactId}:{each.version}" for each in artifacts]
    # The binding must have log4j's version. It is added by hand, because resolved together with
    # the others its managed versions would win over Kafka's (and bring a kafka-clients of 3.9).
    log4j = next(each.version for each in artifacts if each.artifactId == "log4j-core")
    return [*coordinates, f"{LOG_BINDING}:{log4j}"]


def main() -> None:
    """Resolves, fetches and hashes every jar, and writes the manifest."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        jars = []
        for coordinate in resolve(directory):
            path = fetch_jar(Jar(coordinate, ""), directory)
            jars.append(Jar(coordinate, digest_of(path)))
    MANIFEST_PATH.write_text(render_manifest(tuple(jars)), encoding="ascii")


if __name__ == "__main__":
    main()
