"""Click groups that import a command only when it runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from forebay.cli.errors import build_exit, build_usage_exit, interrupt_error
from forebay.errors import ForebayError

AS_JSON: Final = "forebay.as_json"


class LazyGroup(click.Group):
    """Command group over a table: command name to (module:attribute, one line of help).

    The help texts are in the table because reading them from the commands would import every command and
    its dependencies. A test compares the table with the commands.
    """

    def __init__(self, *args: Any, table: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Recorded before parsing, because parsing itself may fail.
        options = args[: args.index("--")] if "--" in args else args
        ctx.meta.setdefault(AS_JSON, "--json" in options)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            raise build_usage_exit(exc, as_json=ctx.meta[AS_JSON]) from exc

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; turn our own errors into one sentence and an exit status, without a traceback."""
        try:
            return super().invoke(ctx)
        except (ForebayError, TimeoutError) as exc:
            raise build_exit(exc, as_json=ctx.meta[AS_JSON]) from exc
        except (KeyboardInterrupt, click.Abort) as exc:
            raise build_exit(interrupt_error(exc), as_json=ctx.meta[AS_JSON]) from exc
        except click.ClickException as exc:
            if isinstance(exc.__cause__, ForebayError):
                raise build_exit(exc.__cause__, as_json=ctx.meta[AS_JSON]) from exc
            raise build_usage_exit(exc, as_json=ctx.meta[AS_JSON]) from exc
