"""Whether a server can be trusted with jobs, and whether this program can work with what it finds there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from forebay.errors import SchemaNewer, SchemaOutdated, StoreUnusable
from forebay.stores.redis.connection import Connection

SCHEMA: Final = 1
# The oldest layout that programs must know to work with what this one writes.
READABLE_FROM: Final = 1
OLDEST_SERVER: Final = 7

logger = logging.getLogger(__name__)


def prepare(connection: Connection) -> None:
    """Note our number in a namespace that is new, and refuse one that this program cannot work with."""
    found = connection.run("prepare", {"number": SCHEMA, "readable_from": READABLE_FROM})
    _check(connection.address.place, found)


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


def _stored(connection: Connection) -> list[Any]:
    found: list[Any] = connection.ask("HMGET", f"{connection.address.tag}:schema", "number", "readable_from")
    return found


def _check(place: str, found: Sequence[Any]) -> None:
    number, readable_from = int(found[0]), int(found[1] or found[0])
    if readable_from > SCHEMA:
        raise SchemaNewer(f"{place} is of a newer Forebay: upgrade this program")
    if number < READABLE_FROM:
        raise SchemaOutdated(f"{place} is of an older Forebay: run `forebay migrate`")


def check_server(connection: Connection) -> None:
    """Refuse a server that is too old or that throws jobs away; warn of one that forgets them at its end."""
    place = connection.address.place
    info = {
        name: value
        for section in ("server", "memory", "persistence")
        for name, value in _fields(connection.ask("INFO", section))
    }
    version = info.get("redis_version", "0")
    if int(version.partition(".")[0] or 0) < OLDEST_SERVER:
        raise StoreUnusable(f"{place} is Redis {version}; Forebay needs Redis 7 or Valkey")
    # The volatile policies evict keys that have an expiry, and none of ours has.
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        raise StoreUnusable(
            f"{place} throws keys away when its memory is full (maxmemory-policy {policy}), and jobs with "
            "them: set maxmemory-policy to noeviction"
        )
    if info.get("aof_enabled") == "0" and not connection.address.accepts_loss:
        logger.warning(
            "%s keeps no append-only file: when it ends, all jobs since its last snapshot are lost. Set "
            "appendonly to yes, or add `persistence=none` to the address to accept that.",
            place,
        )


def _fields(info: bytes) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return [(name, value) for name, colon, value in lines if colon]
