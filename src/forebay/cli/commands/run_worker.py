"""`forebay worker`: run jobs until a stop signal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from forebay.cli.allowed_alert_address_and_secret_options import delivery_options, delivery_policy
from forebay.cli.log_options import log_options, set_up_logs
from forebay.cli.platform_check import not_on_windows
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS
from forebay.errors import ConfigError
from forebay.worker.process_recycler import MAX_ABANDONED, ProcessLimits, check_abandoned
from forebay.worker.stop_timeouts import DRAIN_SECONDS

MAX_DRAIN_SECONDS: Final = 86_400
MAX_PROCESSES: Final = 1_000
# Options that a supervisor does not pass on to its worker processes.
_SUPERVISOR_OPTIONS: Final = ("app", "processes", "reload", "child")


@click.command()
@click.argument("app")
@click.option(
    "--queues",
    "-q",
    help="Queues to work on, separated by commas, with optional weights: mail:3,reports:1. Without a "
    "weight, the queue's own weight counts; default: the queues that the app's tasks name.",
)
@click.option(
    "--strict", is_flag=True, help="Claim jobs of a queue only when the queues named before it are empty."
)
@click.option(
    "--threads", "--concurrency", "-t", default=4, show_default=True, help="Blocking tasks that run at once."
)
@click.option("--coroutines", default=100, show_default=True, help="Coroutine tasks that run at once.")
@click.option(
    "--isolated", type=int, help="Isolated tasks that run at once, each in a process; default: usable cores."
)
@click.option(
    "--drain-timeout",
    default=DRAIN_SECONDS,
    show_default=True,
    help="Seconds to let running jobs end on a stop.",
)
@click.option(
    "--heartbeat",
    default=DEFAULT_HEARTBEAT_MS / 1_000,
    show_default=True,
    help="Seconds between two heartbeats, 5 to 300; after three missed ones a worker counts as dead.",
)
@click.option(
    "--processes",
    "-p",
    type=int,
    help="Run this many worker processes under a supervisor. It renews their leases, releases the jobs of a "
    "process that dies, and replaces it; default: one process without a supervisor.",
)
@click.option("--max-jobs", type=int, help="Replace a worker process after this many jobs.")
@click.option("--max-memory", type=float, help="Replace a worker process above this many MB of memory.")
@click.option("--max-age", type=float, help="Replace a worker process after this many seconds.")
@click.option(
    "--max-abandoned",
    default=MAX_ABANDONED,
    show_default=True,
    help="Abandoned threads, whose jobs did not stop at their timeouts. Above this number a worker process "
    "is replaced; without --processes it reports itself unhealthy.",
)
@click.option("--reload", is_flag=True, help="For development: replace worker processes when code changes.")
@click.option(
    "--metrics/--no-metrics",
    default=True,
    show_default=True,
    help="Collect metrics of the jobs that it runs.",
)
@delivery_options
@log_options
@click.option("--child", hidden=True, help="Run as a worker process of a supervisor.")
@click.pass_context
@not_on_windows
def worker(ctx: click.Context, /, app: str, **options: Any) -> None:
    """Run the jobs of APP, named as package.module:app.

    SIGTERM or SIGINT: claim nothing more, let running jobs finish, release the rest; a second signal stops at
    once. SIGUSR1: write the stacks of all threads to standard error. SIGTSTP: claim nothing more until
    SIGCONT.

    A worker that has reached one of its limits lets its jobs finish. Without --processes it then stops with
    status 0, and its service manager may start it again.
    """
    _check_options(**options)
    set_up_logs(options.pop("log_format"), options.pop("log_level"))
    processes, child = options.pop("processes"), options.pop("child")
    reload = options.pop("reload")
    if child is None and (processes is not None or reload):
        _supervise(ctx, processes or 1, options["drain_timeout"], reload=reload)
        return
    from forebay.cli.worker_runner import WorkerOptions, work  # noqa: PLC0415 - a supervisor has no use for a worker's parts

    work(app, WorkerOptions(**options), child)


def _check_options(*, drain_timeout: float, processes: int | None, **options: Any) -> None:
    """Refuse invalid options before anything starts."""
    if not 0 <= drain_timeout <= MAX_DRAIN_SECONDS:  # also refuses NaN
        raise ConfigError(
            f"drain_timeout must be a number of seconds from 0 to {MAX_DRAIN_SECONDS}, not {drain_timeout}"
        )
    if processes is not None and not 1 <= processes <= MAX_PROCESSES:
        raise ConfigError(f"processes must be a number from 1 to {MAX_PROCESSES}, not {processes}")
    check_abandoned(options["max_abandoned"])
    delivery_policy(options["allow_webhooks_to"], options["secrets_folder"], None)
    limits_of(options)


def limits_of(options: dict[str, Any]) -> ProcessLimits:
    """Return the limits of a worker process."""
    return ProcessLimits(**{name: options[name] for name in ("max_jobs", "max_memory", "max_age")})


def _supervise(ctx: click.Context, processes: int, drain_timeout: float, *, reload: bool) -> None:
    from forebay.worker.supervisor.supervisor import Supervisor, SupervisorPlan  # noqa: PLC0415 - as above

    arguments = [sys.executable, "-m", "forebay", *child_arguments(ctx)]

    def command(channel: int, page: int) -> list[str]:
        return [*arguments, "--child", f"{os.getpid()}:{channel}:{page}"]

    status = Supervisor(
        SupervisorPlan(processes=processes, drain=drain_timeout, command=command, is_reloading=reload)
    ).run()
    if status:
        ctx.exit(status)


def child_arguments(ctx: click.Context) -> list[str]:
    """Return the arguments of a worker process: all options of this command, from any source."""
    # Without the path of the settings file a worker would read other settings than its supervisor.
    config = ["--config", str(ctx.obj)] if ctx.obj else []
    return [*config, "worker", ctx.params["app"], *_option_arguments(ctx)]


def _option_arguments(ctx: click.Context) -> Iterator[str]:
    for option in ctx.command.params:
        value = ctx.params.get(str(option.name))
        names = (
            option.secondary_opts if value is False else option.opts
        )  # a flag that is on by default is switched off by its second name
        if option.name in _SUPERVISOR_OPTIONS or value is None or not names:
            continue
        yield max(names, key=len)
        if not isinstance(value, bool):
            yield str(value)
