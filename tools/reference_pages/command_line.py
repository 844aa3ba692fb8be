"""docs/reference/command-line.md: every command, from the tree of commands itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from forebay.cli.main import main
from tools.reference_pages.markdown import code, prose, table

HEAD: Final = """# Commands

Made by `make reference` from the commands themselves; `forebay COMMAND --help` prints the same. The
[guide](../guide/command-line.md) shows their use together, [the command line](cli.md) has their common
parts: statuses, conditions, JSON. [Settings](settings.md) describes how they find their store.

Nearly all commands take `--url URL` (the store), `--app MODULE:APP` (the store and the tasks of this
app), `--json` (answer with one JSON document) and `--help`. The tables below leave them out; a command
without one of them says so.
"""
# Options of every command, described once at the top.
_SHARED: Final = ("--url", "--app", "--json", "--help")


def commands() -> dict[str, click.Command]:
    """All commands by the words that call them, groups before what is in them."""
    return dict(_within(main, "forebay", click.Context(main, info_name="forebay")))


def _within(group: click.Group, words: str, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        yield f"{words} {name}", command
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=name, parent=ctx)
            yield from _within(command, f"{words} {name}", inner)


def page() -> str:
    return "\n".join([HEAD, *_itself(), *_all()]).rstrip() + "\n"


def _itself() -> Iterator[str]:
    yield "## `forebay`\n"
    yield f"{_describe(main)}\n"
    yield from _options(main)


def _all() -> Iterator[str]:
    for words, command in commands().items():
        depth = "#" * len(words.split())
        yield f"{depth} `{words}`\n"
        yield f"{_describe(command)}\n"
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"Usage: `{_usage(words, command)}`{_missing(command)}\n"
            yield from _options(command)


def _describe(command: click.Command) -> str:
    text = prose(command.help)
    return f"{text}\n\n{command.epilog}" if command.epilog else text


def _usage(words: str, command: click.Command) -> str:
    ctx = click.Context(command, info_name=words)
    return " ".join([words, *command.collect_usage_pieces(ctx)])


def _missing(command: click.Command) -> str:
    named = {option for param in command.params for option in param.opts}
    missing = [option for option in _SHARED if option not in named and option != "--help"]
    return f" (without {', '.join(map(code, missing))})" if missing else ""


def _options(command: click.Command) -> Iterator[str]:
    rows = [
        (_names(param), _meaning(param), default_of(param))
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden and param.opts[0] not in _SHARED
    ]
    if rows:
        yield from table(("option", "meaning", "default"), rows)


def _meaning(option: click.Option) -> str:
    variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or []
    return " ".join([option.help or "", *(f"Also {code(name)} in the environment." for name in variables)])


def _names(option: click.Option) -> str:
    names = ", ".join(code(one) for one in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag or option.count else f" {_value(option)}"
    return f"{names}{value}{', may be repeated' if option.multiple else ''}"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "or ".join(f"{code(one)} " for one in option.type.choices).strip()
    return option.metavar or option.type.name.upper()


def default_of(option: click.Option) -> str:
    """Return the default of an option; empty for None, false and an empty list."""
    default: Any = option.to_info_dict()["default"]
    if callable(default) or default in (None, False, ()) or option.required:
        return ""
    if option.is_flag and option.secondary_opts:
        return code(option.opts[0])
    return "" if default is True else code(default)
