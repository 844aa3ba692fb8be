"""Runner of a worker in the process of a command, with its signal handling."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from math import inf
from typing import Final

import msgspec

from forebay.app.app import Forebay
from forebay.app.logging_integration import add_job_fields_to_logs
from forebay.cli.allowed_alert_address_and_secret_options import delivery_policy
from forebay.cli.app_loader import load_app
from forebay.cli.suggestions import suggest
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS
from forebay.errors import ConfigError, ForebayError, StoreUnavailable, WorkersDied
from forebay.worker.coordinator_inbox import WakeSignal
from forebay.worker.lease_table import LeaseTable
from forebay.worker.parent_death import die_with
from forebay.worker.process_recycler import MAX_ABANDONED, ProcessLimits
from forebay.worker.signal_pause import SignalPause
from forebay.worker.stop_timeouts import CLOSING_SECONDS, DRAIN_SECONDS, INTERRUPT_SECONDS
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.messages import TO_WORKER
from forebay.worker.supervisor.supervised_renewal import SupervisorLink
from forebay.worker.worker import Worker

POLL_SECONDS: Final = 1.0
REPLACE_SECONDS: Final = 1.0
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

logger: logging.Logger = logging.getLogger(__name__)


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a worker on the command line."""

    queues: str | None = None
    strict: bool = False
    threads: int = 4
    coroutines: int = 100
    isolated: int | None = None
    drain_timeout: float = DRAIN_SECONDS
    heartbeat: float = DEFAULT_HEARTBEAT_MS / 1_000
    max_jobs: int | None = None
    max_memory: float | None = None
    max_age: float | None = None
    max_abandoned: int = MAX_ABANDONED
    metrics: bool = True
    allow_webhooks_to: str | None = None
    secrets_folder: str | None = None


def work(app: str, options: WorkerOptions, child: str | None) -> None:
    """Run the jobs of an app in this process. `child` has the supervisor's pid and descriptors, if any."""
    supervisor = None if child is None else [int(part) for part in child.split(":")]
    if supervisor is not None:
        die_with(supervisor[0])
    fields = add_job_fields_to_logs()
    found = load_app(app)
    worker = _create_worker(app, found, options)
    fields.worker_id = worker.id
    if supervisor is not None:
        for descriptor in supervisor[1:]:
            os.set_inheritable(descriptor, False)  # programs that tasks start must not inherit it
        channel = Channel(socket.socket(fileno=supervisor[1]), TO_WORKER)
        features = found.engine.features
        link = SupervisorLink(
            channel, LeaseTable(supervisor[2]), found._url, features.is_shared, found._api_key
        )
        worker.attach_supervisor(link)
    named = parse_weights(options.queues) if options.queues else ()
    run(found, worker, options.drain_timeout, is_supervised=supervisor is not None, named=named)


def _create_worker(name: str, app: Forebay, options: WorkerOptions) -> Worker:
    worker = Worker(
        app.engine,
        app.registry,
        queues=parse_weights(options.queues) if options.queues else app.queues(),
        strict=options.strict,
        threads=options.threads,
        coroutines=options.coroutines,
        isolated=options.isolated,
        clock=app.clock,
        heartbeat=options.heartbeat,
        program=name,
        metrics=options.metrics,
        max_abandoned=options.max_abandoned,
        policy=delivery_policy(options.allow_webhooks_to, options.secrets_folder, app.delivery_policy),
    )
    worker.limits = ProcessLimits(
        max_jobs=options.max_jobs, max_memory=options.max_memory, max_age=options.max_age
    )
    worker.drain_seconds = options.drain_timeout
    return worker


def parse_weights(queues: str) -> dict[str, int | None]:
    """Parse queues with weights, such as `mail:3,reports`; None means the queue's own weight."""
    return dict(_parse_weight(part.strip()) for part in queues.split(","))


def _parse_weight(part: str) -> tuple[str, int | None]:
    name, colon, weight = part.partition(":")
    if not colon:
        return name, None
    if not weight.strip().isdecimal():
        raise ConfigError(f"{part!r} cannot name a queue with a weight: write mail:3,reports:1")
    return name.strip(), int(weight)


def run(
    app: Forebay, worker: Worker, drain: float, *, is_supervised: bool = False, named: Iterable[str] = ()
) -> None:
    """Run a worker until a stop signal; `named` are the queues on the command line.

    Raises StoreUnavailable if results could not be written at the stop, or not in time because the store does
    not answer.
    """
    # A signal handler may run between any two bytecodes of the main thread, also while that thread holds the
    # lock of an Event; setting the same Event would then deadlock. Appending to a deque takes no lock, and
    # WakeSignal is a self-pipe. SimpleQueue is no alternative: with CPython 3.11 its get with a timeout may
    # wait for ever if a signal arrives near the end of the timeout.
    signals: deque[int] = deque()
    wake_signal = WakeSignal()

    def on_signal(number: int) -> None:
        signals.append(number)
        wake_signal.set()

    worker.on_stopped = wake_signal.set
    try:
        with _signal_handlers(on_signal, is_supervised=is_supervised):
            worker.start()
            logger.info("worker %s runs on %s", worker.id, app.engine.location)
            _warn_unknown_queues(app, named)
            _run_until_over(worker, drain, signals, wake_signal, is_supervised=is_supervised)
            logger.info("worker %s has stopped", worker.id)
    finally:
        app.close()


def _warn_unknown_queues(app: Forebay, named: Iterable[str]) -> None:
    """Log queues of the command line that neither the store nor a task of the app has: the names may be
    mistyped."""
    app_queues = set(app.queues())
    others = [name for name in named if name not in app_queues]
    if not others:
        return
    with suppress(ForebayError), closing(app.engine.reader()) as reader:
        known = app_queues | {queue.name for queue in reader.queues()}
        for name in others:
            if name not in known:
                hint = suggest(name, known, otherwise="its first job creates it")
                logger.warning("there is no queue %s yet%s", name, hint)


def _run_until_over(
    worker: Worker, drain: float, signals: deque[int], wake_signal: WakeSignal, *, is_supervised: bool
) -> None:
    handler = SignalHandler(worker, drain, is_supervised=is_supervised)
    while not worker.is_over:
        if signals:
            handler.handle(signals.popleft())
        else:
            wake_signal.wait(min(POLL_SECONDS, handler.leave_at - time.monotonic()))
        if worker.is_hopeless and not is_supervised:
            # Its leases expire, and the service manager sees that the process has ended.
            worker.abandon()
            raise WorkersDied(f"the loop of worker {worker.id} hangs and will not go on, so its process ends")
        if time.monotonic() >= handler.leave_at:
            # The service manager kills the process after this time. Results that are not written are lost,
            # and their jobs run again.
            worker.abandon()
            raise StoreUnavailable(
                f"the store does not answer, so worker {worker.id} ends without settling its jobs; "
                "they run again when its leases have expired"
            )
    worker.stop()  # at once; raises the exception that crashed it
    if worker.unwritten is not None:
        raise StoreUnavailable(worker.unwritten)


class SignalHandler:
    """Signal handling of a worker. A second stop signal stops it at once.

    A process with a supervisor ignores the second signal: a signal to the process group reaches both, and the
    supervisor decides when to kill.
    """

    def __init__(self, worker: Worker, drain: float, *, is_supervised: bool) -> None:
        self._worker = worker
        self._drain = drain
        self._is_supervised = is_supervised
        self._signal_pause = SignalPause(worker)
        self._is_stop_requested = False
        self.leave_at: float = inf

    def handle(self, number: int) -> None:
        if number == signal.SIGTSTP:
            logger.info("worker %s is paused until SIGCONT", self._worker.id)
            self._signal_pause.pause()
        elif number == signal.SIGCONT:
            self._signal_pause.resume()
        elif not self._is_stop_requested:
            self._is_stop_requested = True
            self._begin_to_stop()
            logger.info("worker %s stops; running jobs may take another %g s", self._worker.id, self._drain)
            self._set_deadline(self._drain)
        elif not self._is_supervised:
            self._worker.stop_now()
            self._set_deadline(0.0)

    def _begin_to_stop(self) -> None:
        if self._is_supervised:
            # A signal to the whole group reaches the supervisor too, which then starts no replacement. A
            # signal to this process alone leaves a gap that the supervisor fills.
            self._worker.retire("it was told to stop by SIGTERM", self._drain, REPLACE_SECONDS)
        else:
            self._worker.request_stop(self._drain)

    def _set_deadline(self, seconds: float) -> None:
        rest = INTERRUPT_SECONDS + CLOSING_SECONDS
        self.leave_at = min(self.leave_at, time.monotonic() + seconds + rest)


@contextmanager
def _signal_handlers(on_signal: Callable[[int], None], *, is_supervised: bool) -> Iterator[None]:
    """Pass signals to `on_signal`, and let SIGUSR1 dump all stacks; restore the old handlers at the end.

    The handler of SIGUSR1 is in Python: it holds the GIL, so no other thread changes its stack meanwhile. The
    handler in C does not take the GIL, reads stacks while they change, and has crashed busy workers. It is on
    SIGUSR2, for a process in which a task never releases the GIL.
    """
    handled: tuple[signal.Signals, ...] = (*_STOP_SIGNALS, signal.SIGTSTP, signal.SIGCONT)
    ignored: tuple[signal.Signals, ...] = ()
    if is_supervised:  # the supervisor receives these and passes them on
        handled, ignored = (signal.SIGTERM,), (signal.SIGINT, signal.SIGTSTP)
    with ExitStack() as stack:
        for number in handled:
            stack.callback(signal.signal, number, signal.signal(number, lambda number, _: on_signal(number)))
        for number in ignored:
            stack.callback(signal.signal, number, signal.signal(number, signal.SIG_IGN))
        stack.callback(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, show_stacks))
        faulthandler.register(signal.SIGUSR2, all_threads=True)
        stack.callback(faulthandler.unregister, signal.SIGUSR2)
        yield


def show_stacks(*_: object) -> None:
    """Write the stacks of all threads to standard error, if there is one."""
    with suppress(RuntimeError, OSError, ValueError):
        faulthandler.dump_traceback(all_threads=True)
