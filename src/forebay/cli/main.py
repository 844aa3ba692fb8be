"""The command tree."""

from __future__ import annotations

import click

from forebay import __version__
from forebay.cli.run import worker


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Forebay, a background job queue."""


main.add_command(worker)
