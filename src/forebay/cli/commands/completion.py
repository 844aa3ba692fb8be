"""`forebay completion`: shell completion for commands, options, states and queues."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from forebay.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash, put this line into ~/.bashrc: eval "$(forebay completion bash)"
    """
    found = get_completion_class(shell)
    if found is None:
        raise ConfigError(f"this version of click cannot complete in {shell}; upgrade it")
    completer = found(ctx.find_root().command, {}, "forebay", "_FOREBAY_COMPLETE")
    click.echo(completer.source())
