"""Whether this program can work with what it finds in a namespace."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from forebay.errors import SchemaNewer, StoreUnusable
from forebay.stores.redis.connection import Connection
from forebay.stores.shared.migrations import unreleased_error

SCHEMA: Final = 1
# The oldest layout that programs must know to work with what this one writes.
READABLE_FROM: Final = 1
# Commits from before the baseline numbered their layouts 1 to 5, and wrote no name.
BASELINE: Final = "baseline"
_LAYOUT: Final = {"number": SCHEMA, "readable_from": READABLE_FROM, "name": BASELINE}
_FIELDS: Final = ("number", "readable_from", "name")

logger: logging.Logger = logging.getLogger(__name__)


def prepare(connection: Connection) -> None:
    """Write our layout into a namespace that is new, and refuse one that this program cannot work with."""
    *found, is_new = connection.run("prepare", _LAYOUT)
    _check(connection.address.location, found)
    if is_new:
        logger.info("created a new, empty store at %s", connection.address.location)


def check_or_prepare(connection: Connection) -> None:
    """The same for one who only looks, and may do so on a replica."""
    found = _load_layout(connection)
    if found[0] is None:
        prepare(connection)
    else:
        _check(connection.address.location, found)


def check_schema(connection: Connection) -> None:
    """Raise unless there is a namespace of ours that this program can work with; nothing is written."""
    found = _load_layout(connection)
    if found[0] is None:
        raise StoreUnusable(
            f"{connection.address.location} has nothing of Forebay yet: run `forebay migrate`"
        )
    _check(connection.address.location, found)


def refuse_newer(connection: Connection) -> None:
    """Raise if the namespace has outgrown this program. One without a number was emptied: it is not newer."""
    found = _load_layout(connection)
    if found[0] is not None:
        _check(connection.address.location, found)


def _load_layout(connection: Connection) -> list[Any]:
    found: list[Any] = connection.execute("HMGET", f"{connection.address.tag}:schema", *_FIELDS)
    return found


def _check(location: str, found: Sequence[Any]) -> None:
    _, readable_from, name = found
    if name != BASELINE.encode():
        raise unreleased_error(location)
    if int(readable_from) > SCHEMA:
        raise SchemaNewer(f"{location} is of a newer Forebay: upgrade this program")
