"""Loader of numbered schema files, and the check whether this program may work with a store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from forebay.errors import SchemaNewer, SchemaOutdated
from forebay.stores.shared.statement_loader import read_files

_FILE: Final = re.compile(r"(\d{4})_(\w+)")
_MIN_PROGRAM: Final = re.compile(r"-- min_program: (\d+)\n")


class Migration(NamedTuple):
    """One step of a schema. Programs that know fewer than `min_program` steps cannot work with its result."""

    number: int
    name: str
    min_program: int
    script: str


class AppliedSchema(NamedTuple):
    """Schema of a store: its number, the fewest steps that a program must know, the name of step 1."""

    number: int
    min_program: int
    first: str | None


NOTHING_APPLIED: Final = AppliedSchema(0, 0, None)


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """Load the migrations of an engine in their order, numbered from 1 without a gap."""
    migrations = sorted(_parse(name, text) for name, text in read_files(package, "migrations").items())
    if [migration.number for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError(f"the migrations of {package} are not numbered from 1 without a gap")
    return tuple(migrations)


def _parse(name: str, text: str) -> Migration:
    file, head = _FILE.fullmatch(name), _MIN_PROGRAM.match(text)
    if file is None or head is None:
        raise ValueError(f"migration {name} needs a name like 0001_jobs and a first line '-- min_program: 1'")
    return Migration(int(file[1]), file[2], int(head[1]), text)


def pending_migrations(
    known: Sequence[Migration], applied: AppliedSchema, location: str
) -> Sequence[Migration]:
    """Return the migrations that the store at `location` still needs.

    Raises SchemaNewer if the store needs a newer program, and SchemaOutdated if its first step is not ours.
    """
    if applied.number and applied.first != known[0].name:
        raise unreleased_error(location)
    newest = len(known)
    if applied.min_program > newest:
        raise SchemaNewer(
            f"{location}: the store's schema is number {applied.number} and needs a Forebay that "
            f"knows schema "
            f"{applied.min_program} or newer; this one knows up to {newest}: upgrade Forebay"
        )
    return known[applied.number :]


def unreleased_error(location: str) -> SchemaOutdated:
    """Return the refusal of a store from before the baseline.

    Neither program opens the other's store, so the way out leads through a service of this version.
    """
    return SchemaOutdated(
        f"{location} was made by an unreleased commit of Forebay, which this version does not migrate: start "
        "`forebay server` of this version on a new store, and move the jobs there from that commit with "
        "`forebay move --from OLD_STORE_URL --to http://127.0.0.1:8080`"
    )
