"""Loads statements that are written in their own language, in their own files."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def load_statements(package: str, folder: str = "sql", ending: str = ".sql") -> dict[str, str]:
    """Every statement of an engine by the name of its file."""
    return {
        entry.name.removesuffix(ending): entry.read_text(encoding="utf-8")
        for entry in files(package).joinpath(folder).iterdir()
        if entry.name.endswith(ending)
    }
