"""Layout version of a namespace: create it, and check that this program can use it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from forebay.errors import SchemaNewer, StoreUnusable
from forebay.stores.redis.connection import Connection
from forebay.stores.shared.migration_loader import unreleased_error

SCHEMA: Final = 1
# Oldest layout that other programs must know to work with the data of this one.
READABLE_FROM: Final = 1
# Commits before the baseline numbered their layouts 1 to 5, and wrote no name.
BASELINE: Final = "baseline"
_LAYOUT: Final = {"number": SCHEMA, "readable_from": READABLE_FROM, "name": BASELINE}
_FIELDS: Final = ("number", "readable_from", "name")

logger: logging.Logger = logging.getLogger(__name__)


def prepare(connection: Connection) -> None:
    """Write this layout into a new namespace; refuse a namespace that this program cannot use."""
    *layout, is_new = connection.run("prepare", _LAYOUT)
    _check(connection.address.location, layout)
    if is_new:
        logger.info("created a new, empty store at %s", connection.address.location)


def check_or_prepare(connection: Connection) -> None:
    """Do the same for a reader, which may be connected to a read-only replica."""
    layout = _load_layout(connection)
    if layout[0] is None:
        prepare(connection)
    else:
        _check(connection.address.location, layout)


def check_schema(connection: Connection) -> None:
    """Raise unless the namespace exists and this program can use it; write nothing."""
    layout = _load_layout(connection)
    if layout[0] is None:
        raise StoreUnusable(f"{connection.address.location} has no store yet: run `forebay migrate`")
    _check(connection.address.location, layout)


def refuse_newer(connection: Connection) -> None:
    """Raise if the layout is newer than this program. A namespace without a number was emptied: not newer."""
    layout = _load_layout(connection)
    if layout[0] is not None:
        _check(connection.address.location, layout)


def _load_layout(connection: Connection) -> list[Any]:
    layout: list[Any] = connection.execute("HMGET", f"{connection.address.tag}:schema", *_FIELDS)
    return layout


def _check(location: str, layout: Sequence[Any]) -> None:
    _, readable_from, name = layout
    if name != BASELINE.encode():
        raise unreleased_error(location)
    if int(readable_from) > SCHEMA:
        raise SchemaNewer(f"{location} is of a newer Forebay: upgrade this program")
