"""Tables for people, JSON for programs, and questions before anything is destroyed."""

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
from forebay.domain.query import EXACT_UP_TO
from forebay.errors import ConfigError

Row = Sequence[object]
_LONGEST_CELL: Final = 60
# Where a terminal is narrow, these columns give way: the first are cut off, the others go on below. Ids,
# states, numbers and times stay whole, because half of one says nothing.
_CUT: Final = {"queue", "queues", "task", "reason", "result", "first arguments", "host"}
_FOLDED: Final = {"detail", "why"}
# What a task wrote into an error must not move somebody's cursor or colour their terminal. Line ends and
# tabs are let through where a text may have several lines.
_CONTROL: Final = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), 127, *range(0x80, 0xA0))}
_CONTROL_IN_TEXT: Final = {code: sign for code, sign in _CONTROL.items() if chr(code) not in "\n\t"}


class Output:
    """One command's answer, for people or for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def print_result(self, value: Any, print_text: Callable[[], None]) -> None:
        """Print one JSON document, or whatever `print_text` prints."""
        if self.as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(redact_data(value))).decode())
        else:
            print_text()

    def print_message(self, value: Any, line: str) -> None:
        """Answer with one sentence."""
        self.print_result(value, lambda: click.echo(text(line)))


def text(value: object) -> str:
    """A text of several lines that is safe to print."""
    return str(redact_data(str(value))).translate(_CONTROL_IN_TEXT)


def cell(value: object, max_length: int = _LONGEST_CELL) -> str:
    """One line for a table: safe to print, and not too long."""
    if value is None:
        return ""
    line = str(redact_data(str(value))).translate(_CONTROL)
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def json_line(value: object) -> str:
    """JSON as people write it, on one line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def format_instant(at: int | None) -> str:
    """An instant for people, in UTC."""
    return "" if at is None else datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def format_duration(ms: int | None) -> str:
    """A length of time for people: the largest two units."""
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
    """Print rows under their columns; numbers stand on the right."""
    cells = [[cell(value) for value in row] for row in rows]
    numeric = _numeric_columns(rows if isinstance(rows, Sequence) else (), len(columns))
    if title:
        click.echo(f"\n{title}")
    if not cells:
        click.echo("(none)")
    elif not _print_rich_table(columns, cells, numeric):
        _print_plain_table(columns, cells, numeric)


def _numeric_columns(rows: Sequence[Row], width: int) -> list[bool]:
    return [bool(rows) and all(isinstance(row[place], int) for row in rows) for place in range(width)]


def _print_plain_table(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> None:
    lines = [list(columns), *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        padded = [
            part.rjust(width) if right else part.ljust(width)
            for part, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _print_rich_table(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> bool:
    """Whether the table was printed with rich: on a terminal, and where rich is installed."""
    if not sys.stdout.isatty():
        return False
    try:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and may be missing
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return False

    def fitting(name: str, part: str) -> Text:  # as Text: what a job says is no markup
        return Text(part, no_wrap=name in _CUT, overflow="ellipsis" if name in _CUT else "fold")

    made = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in zip(columns, numeric, strict=True):
        gives_way = name in _CUT or name in _FOLDED
        made.add_column(fitting(name, name), justify="right" if right else "left", no_wrap=not gives_way)
    for line in cells:
        made.add_row(*map(fitting, columns, line))
    Console(highlight=False).print(made)
    return True


def print_fields(pairs: Mapping[str, object]) -> None:
    """Print what is known of one thing, a line each; what is not known is left out."""
    known = {name: value for name, value in pairs.items() if value not in (None, "", (), {}, [])}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        click.echo(f"{name.ljust(width)}  {cell(value, max_length=400)}")


def confirm(question: str, *, yes: bool) -> None:
    """Raise unless somebody says yes, beforehand or now."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask on: add --yes to do it")
    if not click.confirm(text(question), err=True):
        raise CommandDeclined("nothing was done")


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while the block lasts, on a terminal; the function says how far it is."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    with click.progressbar(length=max(total, 1), label=label, file=sys.stderr) as bar:
        yield lambda done: bar.update(max(0, min(done, bar.length or done) - bar.pos))


@contextmanager
def spinner(label: str) -> Iterator[None]:
    """A sign on standard error, on a terminal, that something goes on whose length nobody knows."""
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
    """A number of jobs in words."""
    if not is_exact:
        return f"{'more than' if count >= EXACT_UP_TO else 'at least'} {count:,} jobs"
    return "1 job" if count == 1 else f"{count:,} jobs"
