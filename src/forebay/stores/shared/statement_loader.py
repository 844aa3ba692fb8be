"""Loader of statements that are written in their own language, in their own files."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path


@cache
def load_statements(package: str, folder: str = "sql", suffix: str = ".sql") -> dict[str, str]:
    """Load every statement of an engine by the name of its file."""
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
