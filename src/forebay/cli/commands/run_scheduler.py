"""`forebay scheduler`: fire schedules, and nothing else, until a stop signal."""

from __future__ import annotations

import logging
from typing import Final

import click

from forebay.app.due_schedules import FIRE_BATCH
from forebay.cli.app_loader import load_app
from forebay.cli.log_options import log_options, set_up_logs
from forebay.cli.options import DurationParam, with_store
from forebay.cli.output import Output, format_job_count
from forebay.cli.platform_check import not_on_windows
from forebay.cli.stop_signals import collect_signals
from forebay.cli.store_session import StoreSession
from forebay.errors import WorkersDied
from forebay.maintenance.scheduler import LONGEST_SLEEP_SECONDS, Scheduler
from forebay.telemetry.log_setup import LogFormat
from forebay.worker.coordinator_inbox import WakeSignal

_POLL_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--polling-interval",
    type=DurationParam(),
    help=f"Sleep at most this long; default: {LONGEST_SLEEP_SECONDS:g}s.",
)
@click.option("--batch-size", default=FIRE_BATCH, show_default=True, help="Schedules to fire in one batch.")
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
    """Fire schedules until a stop signal.

    Workers fire schedules too, once a second. A separate scheduler fires on time, and fires when no worker
    runs. Any number of schedulers may run at the same time. With --app it saves the schedules that the app
    declares.
    """
    set_up_logs(log_format, log_level, session.settings)
    app = session.settings.get("app")
    declared = load_app(app).registry.schedules.values() if app else ()
    longest = LONGEST_SLEEP_SECONDS if polling_interval is None else polling_interval / 1_000
    scheduler_loop = Scheduler(session.engine, declared, longest=longest, batch=batch_size)
    wake_signal = WakeSignal()
    with collect_signals(wake_signal) as signals:
        scheduler_loop.start()
        logger.info("the scheduler runs on %s", session.engine.location)
        while scheduler_loop.is_running and not signals:
            wake_signal.wait(_POLL_SECONDS)
        scheduler_loop.stop()
    if not signals:
        raise WorkersDied("the scheduler has ended by itself; see its log")
    out.print_message(
        {"enqueued": scheduler_loop.fired},
        f"the scheduler has stopped; {format_job_count(scheduler_loop.fired)} enqueued",
    )
