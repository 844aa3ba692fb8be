"""Loader of SQL statements, and of other files in a language of their own.

A file of statements is about one subject. The line `-- name: claim: purpose` begins a statement, and the line
`-- fragment: arrivals: purpose` a fragment. The line `-- include: arrivals` is replaced by that fragment. An
engine has the statements of its own folder `sql` and those of `stores/shared/sql`, rewritten in its dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

SHARED: Final = "forebay.stores.shared"

_HEAD: Final = re.compile(r"^-- (name|fragment): (\w+): .+\n", re.MULTILINE)
_INCLUDE: Final = re.compile(r"^ *-- include: (.*)\n", re.MULTILINE)
_COMMENT: Final = re.compile(r"^ *--.*\n", re.MULTILINE)


class Section(NamedTuple):
    """Statement or fragment as it is written, with the file that holds it."""

    is_fragment: bool
    text: str
    file: Path


@cache
def load_statements(package: str, to_dialect: Callable[[str], str]) -> dict[str, str]:
    """Load the statements of an engine by name; `to_dialect` rewrites those that engines share."""
    return compose_statements(_package_path(package) / "sql", _package_path(SHARED) / "sql", to_dialect)


def compose_statements(own: Path, shared: Path, to_dialect: Callable[[str], str]) -> dict[str, str]:
    """Return the statements of two folders with their fragments, and without comment lines."""
    sections: dict[str, Section] = {}
    for name, section in [*_sections(shared, to_dialect), *_sections(own, str)]:
        if name in sections:
            raise ValueError(f"two statements or fragments are named {name}: {section.file} has the second")
        sections[name] = section
    return {
        name: _COMMENT.sub("", _resolve(name, sections, ())).strip()
        for name, section in sections.items()
        if not section.is_fragment
    }


def _sections(folder: Path, rewrite: Callable[[str], str]) -> list[tuple[str, Section]]:
    return [
        (name, section._replace(text=rewrite(section.text)))
        for file in sorted(folder.glob("*.sql"))
        for name, section in parse_sections(file)
    ]


def parse_sections(file: Path) -> list[tuple[str, Section]]:
    """Return the statements and fragments of a file with their names."""
    before, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
    if before:
        raise ValueError(f"{file} does not begin with a head such as `-- name: claim: its purpose`")
    heads = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return [(name, Section(kind == "fragment", text.rstrip() + "\n", file)) for kind, name, text in heads]


def _resolve(name: str, sections: dict[str, Section], within: tuple[str, ...]) -> str:
    """Return the text of a section with its includes replaced."""

    def include(match: re.Match[str]) -> str:
        fragment = sections.get(match[1])
        if fragment is None or not fragment.is_fragment or match[1] in within:
            reason = "includes itself through" if match[1] in within else "includes an unknown fragment,"
            raise ValueError(f"{sections[name].file}: {name} {reason} {match[1]!r}")
        return _resolve(match[1], sections, (*within, match[1]))

    return _INCLUDE.sub(include, sections[name].text)


@cache
def read_files(package: str, folder: str, suffix: str = ".sql") -> dict[str, str]:
    """Return the texts of all files in a folder of a package by name."""
    return {
        entry.name.removesuffix(suffix): entry.read_text(encoding="utf-8")
        for entry in (_package_path(package) / folder).iterdir()
        if entry.name.endswith(suffix)
    }


def _package_path(package: str) -> Path:
    # Not importlib.resources: it reads from archives too, and brings two megabytes along for that. Every
    # process pays them, and what we depend on cannot be imported from an archive anyway.
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{package} is no package, so it has no statements")
    return Path(spec.submodule_search_locations[0])
