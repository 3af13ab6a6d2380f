"""The Faust app: a worker around the engine, never the road of the reminders.

It starts and stops the processor as a service, serves HTTP and the metrics, and holds the one
replicated view: what each partition owes, and who owns it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
from dataclasses import replace
from typing import Any, Final

import faust
import orjson
from aiohttp import web
from faust.web.base import BlueprintManager
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from schemas.limits import RECORD_BYTES_MAX
from streams import logs, topics
from streams.clock import SystemClock
from streams.console import leaders
from streams.console.http import HOP_HEADER, RETRY_AFTER_S, Answer, Node
from streams.credentials import credentials
from streams.errors import BadSetting, EngineFailed, PartitionsChanged, StreamsError
from streams.kafka import Cluster
from streams.processor.processor import Processor
from streams.settings import Settings

STOP_TIMEOUT_S: Final = 30.0
FAUST_STOP_TIMEOUT_S: Final = 5.0
VIEW: Final = "pressure-view"


def exit_code(failure: BaseException | None) -> int:
    """The exit code of a worker whose engine ended with this failure, or with none."""
    if failure is None:
        return 0
    return failure.exit_code if isinstance(failure, StreamsError) else 1


class Engine(faust.Service):  # type: ignore[misc]
    """The processor in a thread of its own; its death ends the worker."""

    def __init__(self, settings: Settings, **more: Any) -> None:
        self._settings = settings
        self._thread: threading.Thread | None = None
        self.processor: Processor | None = None
        self.failure: BaseException | None = None
        super().__init__(**more)

    async def on_start(self) -> None:
        """Start the thread; connecting happens there, so that the pages answer meanwhile."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="processor")
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.processor = Processor(self._settings, SystemClock())
            # What was made to get here lives as long as the process: no need to collect it.
            gc.freeze()
            if not self.should_stop:
                self.processor.run()
        except BaseException as error:
            self.failure = error
            expected = isinstance(error, StreamsError)
            logs.get("worker").error("engine failed", error=str(error), exc_info=not expected)
            loop.call_soon_threadsafe(self._end_worker, error)

    def _end_worker(self, error: BaseException) -> None:
        self.add_future(self.crash(error))

    def ask_to_stop(self) -> None:
        """Let the turn finish; `on_stop` waits for it."""
        if self.processor is not None:
            self.processor.stop()

    async def on_stop(self) -> None:
        """Let the turn finish and the partitions be handed over."""
        self.ask_to_stop()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)
            if self._thread.is_alive():
                self.failure = EngineFailed(f"the turn did not end within {STOP_TIMEOUT_S:g} s")
        self._bound_the_end()

    def _bound_the_end(self) -> None:
        """Everything that matters is committed and closed; Faust's own end is given no longer.

        It can wait for a minute on a group that is rebalancing.
        """
        code = exit_code(self.failure)
        timer = threading.Timer(FAUST_STOP_TIMEOUT_S, os._exit, [code])
        timer.daemon = True
        timer.start()


class WorkerApp(faust.App):  # type: ignore[misc]
    """A Faust app whose engine starts before Faust's own recovery and is told first to stop."""

    engine: Engine

    async def on_stop(self) -> None:
        """Called when a signal has come, before Faust flushes anything."""
        self.engine.ask_to_stop()
        await super().on_stop()

    async def on_first_start(self) -> None:
        """Called before Faust connects to anything."""
        await super().on_first_start()
        await self.add_runtime_dependency(self.engine)


class Worker(faust.Worker):  # type: ignore[misc]
    """Runs the app in this thread until a signal, and ends with its exit code whatever comes."""

    def _setup_logging(self) -> None:
        """Leaves the process's log as it is set up: one form for all parts."""

    def install_signal_handlers(self) -> None:
        """For the process, not for its event loop as Faust does.

        Those go when the loop closes, and a second SIGTERM in the last moments would then kill
        the process: to who had sent it, a drained worker looked like one that was cut off.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked_to_stop)

    def _asked_to_stop(self, number: int, _frame: object) -> None:
        if not self.loop.is_closed():
            handler = self._on_sigint if number == signal.SIGINT else self._on_sigterm
            self.loop.call_soon_threadsafe(handler)


def build(settings: Settings) -> WorkerApp:
    """The app of one worker."""
    host, _, port = settings.http.rpartition(":")
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    app = WorkerApp(
        f"{settings.prefix}worker",
        broker="kafka://" + settings.bootstrap.replace(",", ";kafka://"),
        broker_credentials=credentials(settings.kafka),
        store="memory://",
        datadir=str(settings.data_dir / "faust"),
        topic_replication_factor=settings.replication,
        topic_partitions=settings.partitions,
        web_host=host,
        web_bind=host,
        web_port=int(port),
        broker_commit_interval=1.0,
        consumer_auto_offset_reset="earliest",
        producer_max_request_size=RECORD_BYTES_MAX,
        # A worker that was killed and comes back is the same member, and is not waited for.
        consumer_group_instance_id=settings.name,
        broker_session_timeout=settings.session_timeout_ms / 1_000,
        broker_heartbeat_interval=settings.session_timeout_ms / 5_000,
        broker_rebalance_timeout=settings.session_timeout_ms / 1_000,
        # Figures are absolute: one that was not acknowledged is no reason to delay the end.
        stream_wait_empty=False,
    )
    # Faust's own pages would show table data to anyone who asks.
    app.web.blueprints = BlueprintManager([])
    app.engine = Engine(settings, loop=app.loop, beacon=app.beacon)
    figures = _pressure_view(app, settings)
    node = Node(lambda: app.engine.processor, lambda: dict(figures.items()), settings.http_token)
    _serve(app, node)
    return app


def _pressure_view(app: faust.App, settings: Settings) -> Any:
    """The GlobalTable of `pressure`: partition number → its latest figures."""
    topic = app.topic(
        settings.topics.pressure,
        key_type=str,
        value_serializer="json",
        partitions=settings.partitions,
    )
    # No recovery buffer: with one, Faust may recover for ever on several workers (its own warning).
    view = app.GlobalTable(VIEW, partitions=settings.partitions, recovery_buffer_size=1)

    @app.agent(topic, name="pressure")  # type: ignore[untyped-decorator]
    async def follow(stream: Any) -> None:
        """Absolute figures: the latest of a partition replaces what was known of it."""
        async for number, figures in stream.items():
            if figures is not None:
                view[number] = figures

    return view


def _serve(app: faust.App, node: Node) -> None:
    @app.page("/v1/reminders/{id:.+}")  # type: ignore[untyped-decorator]
    async def reminder(_web: Any, request: web.Request, id: str) -> web.Response:  # noqa: A002
        refused = node.refusal(request.headers)
        hopped = HOP_HEADER in request.headers
        return _json(refused or await node.reminder(id, hopped=hopped))

    @app.page("/v1/due")  # type: ignore[untyped-decorator]
    async def due(_web: Any, request: web.Request) -> web.Response:
        return _json(node.refusal(request.headers) or node.due(request.query))

    @app.page("/")  # type: ignore[untyped-decorator]
    async def index(_web: Any, _request: web.Request) -> web.Response:
        return _json(node.index())

    @app.page("/health/live")  # type: ignore[untyped-decorator]
    async def live(_web: Any, _request: web.Request) -> web.Response:
        return _json((200, {"live": True}))

    @app.page("/health/ready")  # type: ignore[untyped-decorator]
    async def ready(_web: Any, _request: web.Request) -> web.Response:
        return _json(node.ready())

    @app.page("/metrics")  # type: ignore[untyped-decorator]
    async def metrics(_web: Any, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _json(answer: Answer) -> web.Response:
    status, body = answer
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    return web.Response(
        body=orjson.dumps(body) + b"\n",
        status=status,
        content_type="application/json",
        headers=headers,
    )


def _check_free(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_server((host, int(port))):
            pass
    except OSError as error:
        raise BadSetting(f"--http {address}: {error.strerror}; choose another port") from None


def _make_topic_of_view(app: WorkerApp, cluster: Cluster, settings: Settings) -> None:
    """Faust would make it as well, but go on before the brokers show it, and not look again for
    minutes: until then nothing would be owed. Raises `PartitionsChanged`.
    """
    name = app.tables[VIEW].changelog_topic_name
    wanted = topics.Wanted(name, {"cleanup.policy": "compact"})
    clock = SystemClock()
    made = topics.create_these(cluster, settings, [wanted])
    found = leaders.described(cluster, clock, name)
    if made:
        leaders.wait_readable(cluster, clock, found)
    count = len(found[name].partitions)
    if count != settings.partitions:
        raise PartitionsChanged(
            f"the topics have {settings.partitions} partitions, {name} has {count}: if partitions "
            "were added, ids hash to other partitions now and nothing may be written; if the "
            f"topics were made anew, delete {name}, which holds figures only"
        )


def run_worker(settings: Settings) -> int:
    """Run one processor until SIGTERM or SIGINT; returns the process's exit code.

    Raises `BadSetting`, `BrokerUnreachable`, `TopicsMissing`, `PartitionsChanged` before anything
    is started.
    """
    cluster = Cluster(settings)
    cluster.cluster_id()
    # Faust does not see for minutes a topic that appears after it: so all must be there now.
    there = cluster.our_topics()
    # As was asked for when they were made, not as this process would ask for.
    made = there[settings.topics.pressure].partitions
    settings = replace(settings, partitions=len(made), replication=len(made[0].replicas))
    _check_free(settings.http)
    app = build(settings)
    _make_topic_of_view(app, cluster, settings)
    engine = app.engine
    worker = Worker(app, quiet=True, redirect_stdouts=False, loop=app.loop)
    worker.spinner = None
    try:
        worker.execute_from_commandline()
    except SystemExit as ended:
        if engine.failure is None and ended.code:
            return int(ended.code) if isinstance(ended.code, int) else 1
    return exit_code(engine.failure)
