"""`forebay scheduler`: fire schedules, and nothing else, until a signal says stop."""

from __future__ import annotations

import logging
from typing import Final

import click

from forebay.app.firing import FIRED_AT_ONCE
from forebay.cli.hearing import heard_signals
from forebay.cli.loading import load_app
from forebay.cli.logs import log_options, set_up_logs
from forebay.cli.opening import Desk
from forebay.cli.options import Length, at_store
from forebay.cli.output import Output, jobs_of
from forebay.cli.system import not_on_windows
from forebay.errors import WorkersDied
from forebay.scheduler.scheduler import LONGEST_SLEEP_SECONDS, Scheduler
from forebay.telemetry.logs import LogFormat
from forebay.worker.inbox import Bell

_LOOK_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


@click.command()
@click.option(
    "--polling-interval",
    type=Length(),
    help=f"Sleep at most this long; {LONGEST_SLEEP_SECONDS:g}s without it.",
)
@click.option(
    "--batch-size", default=FIRED_AT_ONCE, show_default=True, help="How many schedules to fire at once."
)
@log_options
@not_on_windows
@at_store(create=True)
def scheduler(
    desk: Desk,
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
    set_up_logs(log_format, log_level, desk.settings)
    app = desk.settings.get("app")
    declared = load_app(app).registry.schedules.values() if app else ()
    longest = LONGEST_SLEEP_SECONDS if polling_interval is None else polling_interval / 1_000
    made = Scheduler(desk.engine, declared, longest=longest, batch=batch_size)
    bell = Bell()
    with heard_signals(bell) as heard:
        made.start()
        logger.info("the scheduler runs on %s", desk.engine.place)
        while made.is_running and not heard:
            bell.wait(_LOOK_SECONDS)
        made.stop()
    if not heard:
        raise WorkersDied("the scheduler has ended by itself; its log says why")
    out.say({"enqueued": made.fired}, f"the scheduler has stopped; {jobs_of(made.fired)} enqueued")
