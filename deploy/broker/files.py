"""The files of one node, and the end of its log for error messages."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.broker.settings import DATA_NAME

LOG_TAIL_LINES = 15
LOG_TAIL_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of one node."""

    home: Path

    @property
    def data(self) -> Path:
        """Kafka's own directory, with the records."""
        return self.home / DATA_NAME

    @property
    def properties(self) -> Path:
        """The node's settings; the path is also what its process is recognised by."""
        return self.home / "server.properties"

    @property
    def pid(self) -> Path:
        """The process id of the last start."""
        return self.home / "node.pid"

    @property
    def log(self) -> Path:
        """Kafka's log, bounded in size."""
        return self.home / "broker.log"

    @property
    def output(self) -> Path:
        """What Java itself says: bad flags, no memory. Begins anew at each start."""
        return self.home / "broker.out"

    def log_tail(self) -> str:
        """The last lines of the log and of Java's output, for an error message."""
        lines: list[str] = []
        for path in (self.log, self.output):
            with suppress(OSError), path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - LOG_TAIL_BYTES_MAX))
                text = file.read().decode("utf-8", errors="replace")
                lines += text.splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(f"  | {line}" for line in lines) or "  | (nothing was logged)"
