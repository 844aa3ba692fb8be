"""Log options of long-running commands: `--log-format` and `--log-level`."""

from __future__ import annotations

from collections.abc import Callable

import click

from forebay.cli.settings import Settings
from forebay.telemetry.log_setup import LogConfig, LogFormat, parse_levels


def log_options(func: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--log-level",
            metavar="LEVEL",
            help="debug, info (the default), warning or error; also per component, as in info,worker=debug.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            help="Text lines (the default) or JSON lines.",
        ),
    ):
        func = option(func)
    return func


def set_up_logs(
    log_format: LogFormat | None, log_level: str | None, settings: Settings | None = None
) -> None:
    """Set up logging by the flags, or else by the settings."""
    if settings is not None:
        log_format = log_format or settings.get("log_format")
        log_level = log_level or settings.get("log_level")
    LogConfig(format=log_format or "text", levels=parse_levels(log_level or "info")).set_up()
