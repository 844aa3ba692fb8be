"""Numbered schema files, forward only: which there are, and whether this program may work with a schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from forebay.errors import SchemaNewer
from forebay.stores.statements import load_statements

_FILE: Final = re.compile(r"(\d{4})_(\w+)")
_OLDEST: Final = re.compile(r"-- oldest: (\d+)\n")


class Migration(NamedTuple):
    """One step of a schema. Programs that know fewer than `oldest` steps cannot work with what it leaves."""

    number: int
    name: str
    oldest: int
    script: str


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of an engine in their order, numbered from 1 without a gap."""
    found = sorted(_parse(name, text) for name, text in load_statements(package, "migrations").items())
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations of {package} are not numbered from 1 without a gap")
    return tuple(found)


def _parse(name: str, text: str) -> Migration:
    file, head = _FILE.fullmatch(name), _OLDEST.match(text)
    if file is None or head is None:
        raise ValueError(f"migration {name} needs a name like 0001_jobs and a first line '-- oldest: 1'")
    return Migration(int(file[1]), file[2], int(head[1]), text)


def missing(known: Sequence[Migration], number: int, oldest: int) -> Sequence[Migration]:
    """The migrations that a schema of this number still needs; raises SchemaNewer if it has outgrown us."""
    newest = len(known)
    if oldest > newest:
        raise SchemaNewer(
            f"the store's schema is number {number} and needs a Forebay that knows schema {oldest} or newer; "
            f"this one knows up to {newest}: upgrade Forebay"
        )
    return known[number:]
