"""One worker in this process, and what signals do to it."""

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
from forebay.app.middleware import add_job_fields_to_logs
from forebay.cli.app_loader import load_app
from forebay.cli.delivery_options import delivery_policy
from forebay.cli.suggestions import suggest
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS
from forebay.errors import ConfigError, ForebayError, StoreUnavailable, WorkersDied
from forebay.worker.control import SignalPause
from forebay.worker.inbox import WakeSignal
from forebay.worker.lease_table import LeaseTable
from forebay.worker.parent_death import die_with
from forebay.worker.recycler import MAX_ABANDONED, ProcessLimits
from forebay.worker.stop_timeouts import CLOSING_SECONDS, DRAIN_SECONDS, INTERRUPT_SECONDS
from forebay.worker.supervisor.channel import TO_WORKER, Channel
from forebay.worker.supervisor.supervised_renewal import SupervisorLink
from forebay.worker.worker import Worker

POLL_SECONDS: Final = 1.0
REPLACE_SECONDS: Final = 1.0
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

logger: logging.Logger = logging.getLogger(__name__)


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about a worker."""

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
    """Run the jobs of an app in this process; `child` names what ties it to a supervisor, if it has one."""
    tie = None if child is None else [int(part) for part in child.split(":")]
    if tie is not None:
        die_with(tie[0])
    fields = add_job_fields_to_logs()
    found = load_app(app)
    worker = _create_worker(app, found, options)
    fields.worker_id = worker.id
    if tie is not None:
        for descriptor in tie[1:]:
            os.set_inheritable(descriptor, False)  # not for what tasks start
        channel = Channel(socket.socket(fileno=tie[1]), TO_WORKER)
        features = found.engine.features
        leash = SupervisorLink(channel, LeaseTable(tie[2]), found._url, features.is_shared, found._api_key)
        worker.attach_supervisor(leash)
    named = parse_weights(options.queues) if options.queues else ()
    run(found, worker, options.drain_timeout, is_supervised=tie is not None, named=named)


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
    """Queues as they are written on the command line, `mail:3,reports`, with their weights; None for the
    queue's own."""
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
    """Run a worker until a signal comes; `named` are queues that the command line names.

    Raises StoreUnavailable if its results could not be written at the stop, or if that takes longer than it
    may, because a store that does not answer holds it up."""
    # A handler may come between any two bytecodes of the main thread, also where that holds the lock of an
    # Event; setting the same Event would then wait for ever. Appending takes no lock, and a bell none either.
    # (SimpleQueue was tried: its get with a timeout may wait for ever when a signal comes near its end, seen
    # with CPython 3.11.)
    heard: deque[int] = deque()
    bell = WakeSignal()

    def hear(number: int) -> None:
        heard.append(number)
        bell.set()

    worker.on_stopped = bell.set
    try:
        with _signal_handlers(hear, is_supervised=is_supervised):
            worker.start()
            logger.info("worker %s runs on %s", worker.id, app.engine.location)
            _warn_unknown_queues(app, named)
            _run_until_over(worker, drain, heard, bell, is_supervised=is_supervised)
            logger.info("worker %s has stopped", worker.id)
    finally:
        app.close()


def _warn_unknown_queues(app: Forebay, named: Iterable[str]) -> None:
    """Log queues that the command line names, and that neither the store nor a task of the app has: their
    names may be mistyped."""
    own = set(app.queues())
    asked = [name for name in named if name not in own]
    if not asked:
        return
    with suppress(ForebayError), closing(app.engine.reader()) as reader:
        known = own | {queue.name for queue in reader.queues()}
        for name in asked:
            if name not in known:
                hint = suggest(name, known, otherwise="the first job in it makes it")
                logger.warning("there is no queue %s yet%s", name, hint)


def _run_until_over(
    worker: Worker, drain: float, signals: deque[int], wake_signal: WakeSignal, *, is_supervised: bool
) -> None:
    obeying = SignalHandler(worker, drain, is_supervised=is_supervised)
    while not worker.is_over:
        if signals:
            obeying.handle(signals.popleft())
        else:
            wake_signal.wait(min(POLL_SECONDS, obeying.leave_at - time.monotonic()))
        if worker.is_hopeless and not is_supervised:
            # Its leases run out, and whoever has started it sees that it has gone.
            worker.abandon()
            raise WorkersDied(f"the loop of worker {worker.id} hangs and will not go on, so its process ends")
        if time.monotonic() >= obeying.leave_at:
            # Whoever asked will not wait longer, and kills. What was not written down runs again.
            worker.abandon()
            raise StoreUnavailable(
                f"the store does not answer, so worker {worker.id} leaves without a word to it; "
                "the jobs it held are run again when its leases have ended"
            )
    worker.stop()  # at once; raises what has crashed it
    if worker.unwritten is not None:
        raise StoreUnavailable(worker.unwritten)


class SignalHandler:
    """What signals do to a worker. A second signal to stop means "at once", but not to a process with a
    supervisor: signals to a group of processes reach both, and the supervisor says when it is enough."""

    def __init__(self, worker: Worker, drain: float, *, is_supervised: bool) -> None:
        self._worker = worker
        self._drain = drain
        self._is_supervised = is_supervised
        self._signal_pause = SignalPause(worker)
        self._is_stop_requested = False
        self.leave_at: float = inf

    def handle(self, number: int) -> None:
        if number == signal.SIGTSTP:
            logger.info("worker %s is quiet until SIGCONT", self._worker.id)
            self._signal_pause.pause()
        elif number == signal.SIGCONT:
            self._signal_pause.resume()
        elif not self._is_stop_requested:
            self._is_stop_requested = True
            self._begin_to_stop()
            logger.info("worker %s stops; what runs may take another %g s", self._worker.id, self._drain)
            self._set_deadline(self._drain)
        elif not self._is_supervised:
            self._worker.stop_now()
            self._set_deadline(0.0)

    def _begin_to_stop(self) -> None:
        if self._is_supervised:
            # Sent to the whole group, the supervisor has it too, and wants nobody in our place. Sent to this
            # process alone, another one is missing.
            self._worker.retire("it was told to stop by SIGTERM", self._drain, REPLACE_SECONDS)
        else:
            self._worker.ask_to_stop(self._drain)

    def _set_deadline(self, seconds: float) -> None:
        rest = INTERRUPT_SECONDS + CLOSING_SECONDS
        self.leave_at = min(self.leave_at, time.monotonic() + seconds + rest)


@contextmanager
def _signal_handlers(on_signal: Callable[[int], None], *, is_supervised: bool) -> Iterator[None]:
    """Signals go to `on_signal`, and SIGUSR1 shows all stacks; afterwards everything is as it was.

    Stacks are shown by a handler in Python: it runs with the interpreter's lock, when no other thread changes
    its own. One in C does not wait for that, reads what is being changed, and has ended busy workers so. That
    one, on SIGUSR2, is for a process whose lock a task does not let go of.
    """
    heard: tuple[signal.Signals, ...] = (*_STOP_SIGNALS, signal.SIGTSTP, signal.SIGCONT)
    ignored: tuple[signal.Signals, ...] = ()
    if is_supervised:  # the supervisor hears these, and passes them on
        heard, ignored = (signal.SIGTERM,), (signal.SIGINT, signal.SIGTSTP)
    with ExitStack() as stack:
        for number in heard:
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
