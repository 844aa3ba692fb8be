"""Health of a store and usage of its server."""

from __future__ import annotations

import msgspec


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a health check of a store; `problems` is empty when all is well."""

    engine: str
    schema: int
    problems: tuple[str, ...] = ()


class ServerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a store's server; None where a value does not exist or is unknown. Without a limit of its
    own a server has the memory of its machine. `evicted` counts keys that it has evicted since its start."""

    memory: int | None = None
    memory_limit: int | None = None
    evicted: int | None = None
    connections: int | None = None
    connection_limit: int | None = None


def used_ratio(used: int | None, total: int | None) -> float | None:
    """Return the used part of a total; None where it does not exist or is unknown."""
    return used / total if used is not None and total else None
