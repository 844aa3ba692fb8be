"""`forebay worker`: run jobs until a signal says stop."""

from __future__ import annotations

import faulthandler
import logging
import signal
from threading import Event
from types import FrameType

import click

from forebay.app.app import Forebay
from forebay.cli.loading import load_app
from forebay.errors import ForebayError
from forebay.worker.worker import DRAIN_SECONDS, Worker

logger = logging.getLogger(__name__)


@click.command()
@click.argument("app")
@click.option("--queues", "-q", help="Queues to work on, separated by commas; those the app's tasks name.")
@click.option("--threads", "-t", default=4, show_default=True, help="Blocking tasks that run at once.")
@click.option("--coroutines", default=100, show_default=True, help="Coroutine tasks that run at once.")
@click.option("--drain", default=DRAIN_SECONDS, show_default=True, help="Seconds to let jobs end on a stop.")
def worker(app: str, queues: str | None, threads: int, coroutines: int, drain: float) -> None:
    """Run the jobs of APP, named as package.module:app.

    SIGTERM or SIGINT: claim nothing more, let running jobs end, hand back the rest; a second one stops at
    once. SIGUSR1: write the stacks of all threads to standard error.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
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
    except ForebayError as exc:
        raise click.ClickException(str(exc)) from exc


def run(app: Forebay, worker: Worker, drain: float) -> None:
    """Run a worker until a signal comes."""
    asked = Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            worker.stop_now()
        asked.set()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        worker.start()
        logger.info("worker %s runs", worker.id)
        worker.wait(asked)
        worker.stop(drain)
        logger.info("worker %s has stopped", worker.id)
    finally:
        faulthandler.unregister(signal.SIGUSR1)
        for number, handler in previous.items():
            signal.signal(number, handler)
        app.close()
