"""`forebay dev`: a worker, the service and its dashboard in one terminal, for development."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import click

from forebay.cli.app_loader import load_app
from forebay.cli.dev.processes import LinePrinter, ProcessGroup, forward_signals
from forebay.cli.platform_check import not_on_windows
from forebay.errors import ConfigError

MAX_PORT: Final = 65_535
_SHUTDOWN_SECONDS: Final = 2  # for requests; an open dashboard is disconnected at once


@click.command(epilog="Example: `forebay dev tasks:app --port 8081`.")
@click.argument("app")
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    default=8_080,
    show_default=True,
    help="Port of the service and its dashboard; 0 takes a free one.",
)
@click.option("--reload/--no-reload", default=True, show_default=True, help="Reload code when it changes.")
@click.option("--queues", "-q", help="Queues to work on, as for `forebay worker --queues`.")
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0, 86_400),
    default=5.0,
    show_default=True,
    help="Seconds to let running jobs end on a stop or reload.",
)
@click.option("--json", "as_json", is_flag=True, help="Log lines of JSON, each with the name of its process.")
@click.pass_context
@not_on_windows
def dev(
    ctx: click.Context,
    app: str,
    port: int,
    reload: bool,
    queues: str | None,
    drain_timeout: float,
    as_json: bool,
) -> None:
    """Run a worker, the service and its dashboard in one terminal, for development.

    APP is named as package.module:app. Ctrl-C lets running jobs end, then stops the worker, then the service.
    A second Ctrl-C stops at once, a third one kills. If one process ends by itself, all are stopped.
    """
    if reload and find_spec("watchfiles") is None:
        raise ConfigError(
            "watching code needs watchfiles: pip install 'forebay[reload]', or add --no-reload to do without"
        )
    _check_store(app)
    config = ["--config", str(ctx.obj)] if ctx.obj else []
    logs = ["--log-format", "json"] if as_json else []
    server = [
        *config,
        "server",
        "--app",
        app,
        "--port",
        str(port),
        "--shutdown-timeout",
        str(_SHUTDOWN_SECONDS),
        *logs,
    ]
    worker = [*config, "worker", app, "--drain-timeout", str(drain_timeout), *logs]
    worker += ["--queues", queues] if queues else []
    group = ProcessGroup(LinePrinter(as_json=as_json), server, [*worker, "--reload"] if reload else worker)
    with forward_signals(group):
        status = group.run()
    if status:
        ctx.exit(status)


def _check_store(app: str) -> None:
    """Raise ConfigError for an unusable app, before two processes report it."""
    found = load_app(app)
    try:
        if not found.engine.features.is_shared:
            raise ConfigError(
                f"the store of {app} lives inside one program, and `forebay dev` runs two: name another one, "
                "such as sqlite:///jobs.db"
            )
    finally:
        found.close()
