"""`forebay version`: what this is, and what it stands on here."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from typing import Any, Final, NamedTuple

import click

from forebay import __version__
from forebay.cli.output import Output, print_fields, print_table
from forebay.dashboard.static_files import is_built
from forebay.stores.factory import sqlite_version

# `psycopg[binary]>=3.3.6; extra == 'postgres'`: what is needed, and the extra that brings it.
_REQUIREMENT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*?(?:extra == ['\"](?P<extra>[\w-]+)['\"])?\Z")
# `all` and the sets for development: `dev`, `dev-test` and so on.
_NOT_FOR_USERS: Final = re.compile(r"all|dev(-.*)?")


class Package(NamedTuple):
    """A package that Forebay can use; `version` is None if it is not installed, `extra` if it must be."""

    name: str
    version: str | None
    extra: str | None

    @property
    def install_command(self) -> str:
        """How to get it, if it is not there."""
        return "" if self.version or not self.extra else f"pip install 'forebay[{self.extra}]'"


@click.command(epilog="Put what it says into a report of a bug.")
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document, for programs.")
def version(as_json: bool) -> None:
    """Show the versions of Forebay, of Python, of SQLite and of what else it uses."""
    found = list_packages()
    about: dict[str, Any] = {
        "forebay": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "sqlite": sqlite_version(),
    }
    has_dashboard = is_built()

    def people() -> None:
        print_fields({**about, "dashboard": "built" if has_dashboard else "not built"})
        rows = [(one.name, one.version or "not installed", one.extra, one.install_command) for one in found]
        print_table(("package", "version", "extra", "get it by"), rows, title="Packages")

    told = {one.name: one.version for one in found}
    Output(as_json=as_json).print_result({**about, "has_dashboard": has_dashboard, "packages": told}, people)


def list_packages() -> list[Package]:
    """What Forebay says of itself that it can use, with what is installed of it."""
    try:
        lines = metadata.requires("forebay") or []
    except metadata.PackageNotFoundError:  # run from a folder, and never installed
        lines = []
    return [Package(name, _find_version(name), extra) for name, extra in _parse_requirements(lines)]


def _parse_requirements(lines: Iterable[str]) -> list[tuple[str, str | None]]:
    found = [(match["name"], match["extra"]) for line in lines if (match := _REQUIREMENT.match(line))]
    sizes = Counter(extra for _, extra in found)
    # An extra may bring another one along; whoever wants a package is told of the smallest that has it.
    chosen: dict[str, str | None] = {}
    for name, extra in sorted(found, key=lambda pair: sizes[pair[1]]):
        if not _NOT_FOR_USERS.fullmatch(extra or "") and name != "forebay":
            chosen.setdefault(name, extra)
    return sorted(chosen.items(), key=lambda pair: (pair[1] or "", pair[0]))


def _find_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
