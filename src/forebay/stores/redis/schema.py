"""Whether this program can work with what it finds in a namespace."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from forebay.errors import SchemaNewer, SchemaOutdated, StoreUnusable
from forebay.stores.redis.connection import Connection

# 1 to 3 were never released. A program of 4 would forget lines of the audit log with their jobs.
SCHEMA: Final = 5
# The oldest layout that programs must know to work with what this one writes.
READABLE_FROM: Final = 5
_UNRELEASED: Final = 3
_STEP: Final = {"number": SCHEMA, "readable_from": READABLE_FROM}

logger: logging.Logger = logging.getLogger(__name__)


def prepare(connection: Connection) -> None:
    """Note our number in a namespace that is new, bring an older one up to date, and refuse one that this
    program cannot work with."""
    found = connection.run("prepare", _STEP)
    if _UNRELEASED < int(found[0]) < SCHEMA:
        connection.run("migrate_audit", _STEP)
        found = [SCHEMA, READABLE_FROM, False]
    _check(connection.address.place, found)
    if found[2]:
        logger.info("created a new, empty store at %s", connection.address.place)


def look_or_prepare(connection: Connection) -> None:
    """The same for one who only looks, and may do so on a replica."""
    found = _stored(connection)
    if found[0] is None:
        prepare(connection)
    else:
        _check(connection.address.place, found)


def check_schema(connection: Connection) -> None:
    """Raise unless there is a namespace of ours that this program can work with; nothing is written."""
    found = _stored(connection)
    if found[0] is None:
        raise StoreUnusable(f"{connection.address.place} has nothing of Forebay yet: run `forebay migrate`")
    _check(connection.address.place, found)


def refuse_newer(connection: Connection) -> None:
    """Raise if the namespace has outgrown this program. One without a number was emptied: it is not newer."""
    found = _stored(connection)
    if found[0] is not None:
        _check(connection.address.place, found)


def _stored(connection: Connection) -> list[Any]:
    found: list[Any] = connection.ask("HMGET", f"{connection.address.tag}:schema", "number", "readable_from")
    return found


def _check(place: str, found: Sequence[Any]) -> None:
    number, readable_from = int(found[0]), int(found[1] or found[0])
    if readable_from > SCHEMA:
        raise SchemaNewer(f"{place} is of a newer Forebay: upgrade this program")
    if _UNRELEASED < number < READABLE_FROM:
        raise SchemaOutdated(
            f"{place} has layout {number}, which is too old; `forebay migrate` brings it up to date"
        )
    if number < READABLE_FROM:
        raise SchemaOutdated(
            f"{place} was written by a Forebay before the first release, in a layout that cannot be read: "
            "use another namespace (?namespace=...), or remove its keys"
        )
