"""A Redis server that another queue keeps its jobs on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from forebay.errors import ConfigError, StoreUnavailable, StoreUnusable
from forebay.integrations.importers.source import PAGE_SIZE
from forebay.stores.factory import redact_url

SECONDS: Final = 30.0
OUR_NAME: Final = "forebay"  # as the clients of our own stores call themselves
SCHEMES: Final = ("redis://", "rediss://", "unix://")


class SourceRedis:
    """A connection, with its errors in our words."""

    def __init__(self, url: str) -> None:
        self.name: str = redact_url(url)
        if not url.startswith(SCHEMES):
            raise ConfigError(f"{self.name} is no address of a Redis server; write redis://HOST:PORT/NUMBER")
        try:
            self.client: Any = redis.Redis.from_url(
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 0),  # what was removed must be answered once
                client_name=OUR_NAME,
            )
        except (ValueError, TypeError) as exc:
            raise ConfigError(f"{self.name}: {exc}") from exc

    @contextmanager
    def use_client(self) -> Iterator[Any]:
        """The client, while the block lasts."""
        try:
            yield self.client
        except (redis.ConnectionError, redis.TimeoutError) as exc:
            raise StoreUnavailable(
                f"{self.name} does not answer ({exc}): look whether the server runs and --from names it; "
                "what was imported so far is safe, and the same command goes on from there"
            ) from exc
        except redis.RedisError as exc:
            raise StoreUnusable(f"{self.name}: {exc}") from exc

    def waiting_clients(self, commands: Collection[str]) -> list[str]:
        """Clients of this database whose last command was one of these; ours are left out."""
        with self.use_client() as client:
            try:
                listed = client.client_list()
            except redis.ResponseError as exc:
                raise ConfigError(
                    f"{self.name} does not tell who its clients are ({exc}), so nobody can see whether "
                    "workers take jobs from it; stop them, and say so with --workers-stopped"
                ) from exc
            database = str(client.connection_pool.connection_kwargs.get("db") or 0)
        return [
            str(each["addr"])
            for each in listed
            if each.get("db") == database and each.get("cmd") in commands and each.get("name") != OUR_NAME
        ]

    def names(self, pattern: str, kind: str | None = None) -> list[str]:
        """Keys that fit a pattern, in order; of one kind, if one is named."""
        with self.use_client() as client:
            found = {key for key in client.scan_iter(match=pattern, count=1_000, _type=kind)}
        return sorted(key.decode() for key in found if _is_text(key))

    def tail(self, key: str, skip: int) -> list[bytes]:
        """The next elements of a list from its right end on, the rightmost first, without those skipped."""
        with self.use_client() as client:
            found: list[bytes] = client.lrange(key, -skip - PAGE_SIZE, -skip - 1)
        return found[::-1]

    def close(self) -> None:
        self.client.close()


def _is_text(key: bytes) -> bool:
    """Keys of other programs may be any bytes."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
