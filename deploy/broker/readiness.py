"""Waits until a started cluster serves clients, and explains why if it does not."""

import time
from collections.abc import Mapping

from deploy.broker import probe
from deploy.broker.errors import StartTimeoutError
from deploy.broker.node import Node
from deploy.broker.settings import HOST, Layout

POLL_INTERVAL_S = 0.05
METADATA_TIMEOUT_S = 2.0


def wait_ready(
    nodes: Mapping[int, Node], layout: Layout, cluster_id: str, timeout_s: float
) -> None:
    """Returns once every running node answers as part of a cluster of all running nodes.

    Raises StartFailedError as soon as a process ends, StartTimeoutError after `timeout_s`; both
    quote the end of the log.
    """
    running = {number for number, node in nodes.items() if node.pid() is not None}
    waiting = dict.fromkeys(sorted(running))
    deadline = time.monotonic() + timeout_s
    while waiting:
        for node in nodes.values():
            node.check_alive()
        for number in list(waiting):
            if _serves(layout.ports()[number - 1], cluster_id, running):
                del waiting[number]
        if waiting and time.monotonic() > deadline:
            _give_up(nodes[next(iter(waiting))], layout, timeout_s)
        time.sleep(POLL_INTERVAL_S)
    for node in nodes.values():
        node.check_alive()


def _serves(port: int, cluster_id: str, running: set[int]) -> bool:
    # The client backs off after a refused connection, so it is not asked before the port is open.
    if not probe.is_listening(port):
        return False
    answer = probe.ask(f"{HOST}:{port}", METADATA_TIMEOUT_S)
    return answer is not None and answer.cluster_id == cluster_id and running <= answer.brokers


def _give_up(node: Node, layout: Layout, timeout_s: float) -> None:
    raise StartTimeoutError(
        f"Node {node.number} did not answer at {HOST}:{layout.ports()[node.number - 1]} within "
        f"{timeout_s:g} s. The end of {node.files.log}:\n{node.files.log_tail()}"
    )
