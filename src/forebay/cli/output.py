"""Output of commands: tables, JSON, progress bars, and confirmation questions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec

from forebay.cli.errors import CommandDeclined
from forebay.cli.redaction import redact_data
from forebay.domain.job_query import EXACT_UP_TO
from forebay.errors import ConfigError

Row = Sequence[object]
_LONGEST_CELL: Final = 60
# On a narrow terminal `_CUT` columns are truncated and `_FOLDED` ones are wrapped. Ids, states, numbers and
# times stay complete, because a part of one is useless.
_CUT: Final = {"queue", "queues", "task", "reason", "result", "first arguments", "host"}
_FOLDED: Final = {"detail", "why"}
# Control characters in the error of a task must not move the cursor or colour the terminal. Line ends and
# tabs are allowed where text may have several lines.
_CONTROL: Final = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), 127, *range(0x80, 0xA0))}
_CONTROL_IN_TEXT: Final = {code: sign for code, sign in _CONTROL.items() if chr(code) not in "\n\t"}


class Output:
    """Output of one command, as text or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def print_result(self, value: Any, print_text: Callable[[], None]) -> None:
        """Print `value` as one JSON document, or call `print_text`."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(redact_data(value))).decode())
        else:
            print_text()

    def print_message(self, value: Any, line: str) -> None:
        """Print one sentence, or `value` as JSON."""
        self.print_result(value, lambda: click.echo(text(line)))


def text(value: object) -> str:
    """Return text of several lines that is safe to print."""
    return str(redact_data(str(value))).translate(_CONTROL_IN_TEXT)


def cell(value: object, max_length: int = _LONGEST_CELL) -> str:
    """Return a table cell: safe to print, and truncated."""
    if value is None:
        return ""
    line = str(redact_data(str(value))).translate(_CONTROL)
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def json_line(value: object) -> str:
    """Return JSON with spaces, on one line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def format_instant(at: int | None) -> str:
    """Format an instant in UTC."""
    return "" if at is None else datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_duration(ms: int | None) -> str:
    """Format a duration in its largest two units."""
    if ms is None:
        return ""
    if ms < 1_000:  # noqa: PLR2004 - less than a second
        return f"{ms}ms"
    seconds, parts = ms // 1_000, []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def print_table(columns: Sequence[str], rows: Iterable[Row], *, title: str = "") -> None:
    """Print a table; numbers are right-aligned."""
    cells = [[cell(value) for value in row] for row in rows]
    numeric = _numeric_columns(rows if isinstance(rows, Sequence) else (), len(columns))
    if title:
        click.echo(f"\n{title}")
    if not cells:
        click.echo("(none)")
    elif not _print_rich_table(columns, cells, numeric):
        _print_plain_table(columns, cells, numeric)


def _numeric_columns(rows: Sequence[Row], width: int) -> list[bool]:
    return [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(width)]


def _print_plain_table(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> None:
    lines = [list(columns), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        padded = [
            part.rjust(width) if right else part.ljust(width)
            for part, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _print_rich_table(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> bool:
    """Print the table with rich, if output is a terminal and rich is installed; return whether it was."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and may be missing
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return False

    def make_cell(name: str, part: str) -> Text:  # as Text: values of jobs are not markup
        return Text(part, no_wrap=name in _CUT, overflow="ellipsis" if name in _CUT else "fold")

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in zip(columns, numeric, strict=True):
        is_flexible = name in _CUT or name in _FOLDED
        table.add_column(make_cell(name, name), justify="right" if right else "left", no_wrap=not is_flexible)
    for line in cells:
        table.add_row(*map(make_cell, columns, line))
    Console(highlight=False).print(table)
    return True


def print_fields(pairs: Mapping[str, object]) -> None:
    """Print named values, one per line; empty values are left out."""
    known = {name: value for name, value in pairs.items() if value not in (None, "", (), {}, [])}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        click.echo(f"{name.ljust(width)}  {cell(value, max_length=400)}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation; raise CommandDeclined on no, ConfigError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask on: add --yes")
    if not click.confirm(text(question), err=True):
        raise CommandDeclined("nothing was done")


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, if it is a terminal; the function updates it."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=max(total, 1), label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(max(0, min(done, bar.length or done) - bar.pos))


@contextmanager
def spinner(label: str) -> Iterator[None]:
    """Show a spinner on standard error, if it is a terminal, for work of unknown length."""
    if not sys.stderr.isatty():
        yield
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and may be missing
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        yield
        return
    with Console(stderr=True, highlight=False).status(Text(f"{cell(label)} ...")):
        yield


def format_job_count(count: int, *, is_exact: bool = True) -> str:
    """Return a number of jobs in words."""
    if not is_exact:
        return f"{'more than' if count >= EXACT_UP_TO else 'at least'} {count:,} jobs"
    return "1 job" if count == 1 else f"{count:,} jobs"
