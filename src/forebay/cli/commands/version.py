"""`forebay version`: versions of Forebay and its dependencies."""

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

# `psycopg[binary]>=3.3.7; extra == 'postgres'`: a package, and the extra that requires it.
_REQUIREMENT: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*?(?:extra == ['\"](?P<extra>[\w-]+)['\"])?\Z")
# `all` and the extras for development: `dev`, `dev-test` and so on.
_NOT_FOR_USERS: Final = re.compile(r"all|dev(-.*)?")


class Package(NamedTuple):
    """Package that Forebay can use. `version` is None if it is not installed, `extra` if it is required."""

    name: str
    version: str | None
    extra: str | None

    @property
    def install_command(self) -> str:
        """Command that installs the package, if it is missing."""
        return "" if self.version or not self.extra else f"pip install 'forebay[{self.extra}]'"


@click.command(epilog="Include the output in a bug report.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for programs.")
def version(as_json: bool) -> None:
    """Show the versions of Forebay, Python, SQLite and the other dependencies."""
    found = list_packages()
    about: dict[str, Any] = {
        "forebay": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "sqlite": sqlite_version(),
    }
    has_dashboard = is_built()

    def print_text() -> None:
        print_fields({**about, "dashboard": "built" if has_dashboard else "not built"})
        rows = [
            (package.name, package.version or "not installed", package.extra, package.install_command)
            for package in found
        ]
        print_table(("package", "version", "extra", "install with"), rows, title="Packages")

    versions = {package.name: package.version for package in found}
    Output(as_json=as_json).print_result(
        {**about, "has_dashboard": has_dashboard, "packages": versions}, print_text
    )


def list_packages() -> list[Package]:
    """Return the packages in the metadata of Forebay, with the installed versions."""
    try:
        lines = metadata.requires("forebay") or []
    except metadata.PackageNotFoundError:  # run from a folder without installation
        lines = []
    return [Package(name, _find_version(name), extra) for name, extra in _parse_requirements(lines)]


def _parse_requirements(lines: Iterable[str]) -> list[tuple[str, str | None]]:
    found = [(match["name"], match["extra"]) for line in lines if (match := _REQUIREMENT.match(line))]
    sizes = Counter(extra for _, extra in found)
    # An extra may include another one; name the smallest extra that has the package.
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
