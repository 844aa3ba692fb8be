"""Checks of the server: its version, its eviction policy, its persistence and its memory."""

from __future__ import annotations

import logging
from typing import Final

from forebay.domain.store_health import ServerUsage
from forebay.errors import StoreUnusable
from forebay.stores.redis.connection import Connection

OLDEST_SERVER: Final = 7
NEARLY_FULL: Final = 0.8
_MIB: Final = 1_048_576

logger: logging.Logger = logging.getLogger(__name__)


def check_server(connection: Connection) -> None:
    """Refuse a server that is too old or evicts jobs; warn if it loses them when it stops."""
    location = connection.address.location
    info = _load_info(connection, "server", "memory", "persistence")
    version = info.get("redis_version", "0")
    if int(version.partition(".")[0] or 0) < OLDEST_SERVER:
        raise StoreUnusable(f"{location} is Redis {version}; Forebay needs Redis 7 or Valkey")
    if _is_evicting(info):
        raise StoreUnusable(
            f"{location} evicts keys when its memory is full (maxmemory-policy "
            f"{info['maxmemory_policy']}), and jobs with them: set maxmemory-policy to noeviction"
        )
    if info.get("aof_enabled") == "0" and not connection.address.accepts_loss:
        logger.warning(
            "%s writes no append-only file: when it stops, all jobs since its last snapshot are lost. Set "
            "appendonly to yes, or add `persistence=none` to the address to accept that.",
            location,
        )


def memory_warnings(connection: Connection) -> list[str]:
    """Return a sentence for each problem of the server's memory that will cost jobs."""
    info = _load_info(connection, "memory", "stats")
    problems = []
    used, maximum = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    # Without maxmemory the machine is the limit: the kernel kills the server, and unwritten data is lost.
    limit = maximum or int(info.get("total_system_memory", 0))
    if limit and used >= NEARLY_FULL * limit:
        problems.append(
            f"the server's memory is {used * 100 // limit} % full ({used // _MIB} of {limit // _MIB} MiB); "
            "when there is none left, new jobs are refused: raise maxmemory, or keep less history"
        )
    if _is_evicting(info):
        problems.append(
            f"the server evicts keys when its memory is full (maxmemory-policy "
            f"{info['maxmemory_policy']}; {info.get('evicted_keys', 0)} so far), and jobs with them: set "
            "maxmemory-policy to noeviction"
        )
    return problems


def load_server_usage(connection: Connection) -> ServerUsage:
    """Return the use of memory and connections; in a cluster, of the node that has the jobs."""
    info = _load_info(connection, "memory", "stats", "clients")
    numbers = {name: int(value) for name, value in info.items() if value.isdecimal()}
    return ServerUsage(
        memory=numbers.get("used_memory"),
        memory_limit=numbers.get("maxmemory") or numbers.get("total_system_memory"),
        evicted=numbers.get("evicted_keys"),
        connections=numbers.get("connected_clients"),
        connection_limit=numbers.get("maxclients"),
    )


class ServerWatch:
    """Logger of memory problems: once for each time that there are any."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._has_warned = False

    def check(self) -> None:
        problems = memory_warnings(self._connection)
        if problems and not self._has_warned:
            for problem in problems:
                logger.error("%s: %s", self._connection.address.location, problem)
        self._has_warned = bool(problems)


def _is_evicting(info: dict[str, str]) -> bool:
    # The volatile policies evict keys that have an expiry, and none of ours has.
    return info.get("maxmemory_policy", "noeviction").startswith("allkeys")


def _load_info(connection: Connection, *sections: str) -> dict[str, str]:
    return {
        name: value for section in sections for name, value in _fields(connection.execute("INFO", section))
    }


def _fields(info: bytes) -> list[tuple[str, str]]:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return [(name, value) for name, colon, value in lines if colon]
