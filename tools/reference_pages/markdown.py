"""Markdown from docstrings and signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_CODE: Final = re.compile(r"(`[^`]*`)")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table and an empty line."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(cell(one) for one in row)} |"
    yield ""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    return f"`{text}`"


def prose(docstring: str | None) -> str:
    """A docstring as Markdown, in which signs that mean something there stand for themselves."""
    parts = _CODE.split(inspect.cleandoc(docstring or ""))
    return "".join(one if one.startswith("`") else _plain(one) for one in parts)


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("**", "\\*\\*")


def anchor(heading: str) -> str:
    """Return the part of a link to a heading after #."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
