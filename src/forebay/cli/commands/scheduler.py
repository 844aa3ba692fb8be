"""`forebay scheduler`: fire schedules, and nothing else, until a signal says stop."""

from __future__ import annotations

import logging
from typing import Final

import click

from forebay.app.schedules import FIRE_BATCH
from forebay.cli.app_loader import load_app
from forebay.cli.logs import log_options, set_up_logs
from forebay.cli.options import DurationParam, with_store
from forebay.cli.output import Output, format_job_count
from forebay.cli.platform_check import not_on_windows
from forebay.cli.signals import collect_signals
from forebay.cli.store_session import StoreSession
from forebay.errors import WorkersDied
from forebay.maintenance.scheduler import LONGEST_SLEEP_SECONDS, Scheduler
from forebay.telemetry.logs import LogFormat
from forebay.worker.inbox import WakeSignal

_POLL_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--polling-interval",
    type=DurationParam(),
    help=f"Sleep at most this long; {LONGEST_SLEEP_SECONDS:g}s without it.",
)
@click.option(
    "--batch-size", default=FIRE_BATCH, show_default=True, help="How many schedules to fire at once."
)
@log_options
@not_on_windows
@with_store(create=True)
def scheduler(
    session: StoreSession,
    out: Output,
    polling_interval: int | None,
    batch_size: int,
    log_format: LogFormat | None,
    log_level: str | None,
) -> None:
    """Fire schedules until a signal says stop.

    Workers do this by themselves, once a second. A scheduler of its own fires to the moment, and fires where
    no worker runs; any number may run beside each other. With --app it saves what the app declares.
    """
    set_up_logs(log_format, log_level, session.settings)
    app = session.settings.get("app")
    declared = load_app(app).registry.schedules.values() if app else ()
    longest = LONGEST_SLEEP_SECONDS if polling_interval is None else polling_interval / 1_000
    made = Scheduler(session.engine, declared, longest=longest, batch=batch_size)
    bell = WakeSignal()
    with collect_signals(bell) as heard:
        made.start()
        logger.info("the scheduler runs on %s", session.engine.location)
        while made.is_running and not heard:
            bell.wait(_POLL_SECONDS)
        made.stop()
    if not heard:
        raise WorkersDied("the scheduler has ended by itself; its log says why")
    out.print_message(
        {"enqueued": made.fired}, f"the scheduler has stopped; {format_job_count(made.fired)} enqueued"
    )
