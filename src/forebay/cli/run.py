"""`forebay worker`: run jobs until a signal says stop."""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from forebay.app.app import Forebay
from forebay.cli.loading import load_app
from forebay.errors import ConfigError, StoreUnavailable
from forebay.worker.worker import DRAIN_SECONDS, INTERRUPT_SECONDS, Worker

CLOSING_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.1
MAX_DRAIN_SECONDS: Final = 86_400

logger = logging.getLogger(__name__)


@click.command()
@click.argument("app")
@click.option(
    "--queues", "-q", help="Queues to work on, separated by commas; default: those that the app's tasks name."
)
@click.option(
    "--threads", "--concurrency", "-t", default=4, show_default=True, help="Blocking tasks that run at once."
)
@click.option("--coroutines", default=100, show_default=True, help="Coroutine tasks that run at once.")
@click.option("--drain", default=DRAIN_SECONDS, show_default=True, help="Seconds to let jobs end on a stop.")
def worker(app: str, queues: str | None, threads: int, coroutines: int, drain: float) -> None:
    """Run the jobs of APP, named as package.module:app.

    SIGTERM or SIGINT: claim nothing more, let running jobs end, hand back the rest; a second one stops at
    once. SIGUSR1: write the stacks of all threads to standard error.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if not 0 <= drain <= MAX_DRAIN_SECONDS:  # also refuses NaN
        raise ConfigError(f"drain must be a number of seconds from 0 to {MAX_DRAIN_SECONDS}, not {drain}")
    found = load_app(app)
    names = [name.strip() for name in queues.split(",")] if queues else found.queues()
    parts = Worker(
        found.engine,
        found.registry,
        queues=names,
        threads=threads,
        coroutines=coroutines,
        clock=found.clock,
    )
    run(found, parts, drain)


def run(app: Forebay, worker: Worker, drain: float) -> None:
    """Run a worker until a signal comes. Raises StoreUnavailable if a stop takes longer than it may, because
    a store that does not answer holds it up."""
    # A handler may come between any two bytecodes of the main thread, also where that holds the lock of an
    # Event; setting the same Event would then wait for ever. Appending takes no lock. (SimpleQueue was tried:
    # its get with a timeout may wait for ever when a signal comes near its end, seen with CPython 3.11.)
    heard: deque[int] = deque()
    try:
        with _listening(heard.append):
            worker.start()
            logger.info("worker %s runs", worker.id)
            while not worker.is_over and not _has_heard(heard):
                pass
            _stop(worker, drain, heard)
            logger.info("worker %s has stopped", worker.id)
    finally:
        app.close()


def _stop(worker: Worker, drain: float, heard: deque[int]) -> None:
    worker.ask_to_stop(drain)
    logger.info("worker %s stops; what runs may take another %g s", worker.id, drain)
    rest = INTERRUPT_SECONDS + CLOSING_SECONDS
    leave_at = time.monotonic() + drain + rest
    while not worker.is_over:
        if _has_heard(heard):
            worker.stop_now()
            leave_at = min(leave_at, time.monotonic() + rest)
        if time.monotonic() >= leave_at:
            # Whoever asked will not wait longer, and kills. What was not written down runs again.
            worker.abandon()
            raise StoreUnavailable(
                f"the store does not answer, so worker {worker.id} leaves without a word to it; "
                "the jobs it held are run again when its leases have ended"
            )
    worker.stop()  # at once; raises what has crashed it


def _has_heard(heard: deque[int]) -> bool:
    """Whether a signal has come; else it waits a moment."""
    if heard:
        heard.popleft()
        return True
    time.sleep(LOOK_SECONDS)
    return False


@contextmanager
def _listening(hear: Callable[[int], None]) -> Iterator[None]:
    """Signals to stop go to `hear`, and SIGUSR1 shows all stacks; afterwards everything is as it was."""
    previous = {
        number: signal.signal(number, lambda number, _: hear(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        for number, handler in previous.items():
            signal.signal(number, handler)
