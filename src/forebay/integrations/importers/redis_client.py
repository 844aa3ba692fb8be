"""Client for a Redis server with the jobs of another queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from forebay.errors import ConfigError, StoreUnavailable, StoreUnusable
from forebay.integrations.importers.source import PAGE_SIZE
from forebay.stores.url_redaction import redact_url

SECONDS: Final = 30.0
OUR_NAME: Final = "forebay"  # the client name of Forebay's own stores
SCHEMES: Final = ("redis://", "rediss://", "unix://")


class SourceRedis:
    """A connection whose errors are raised as Forebay's."""

    def __init__(self, url: str) -> None:
        self.name: str = redact_url(url)
        if not url.startswith(SCHEMES):
            raise ConfigError(f"{self.name} is no address of a Redis server; write redis://HOST:PORT/NUMBER")
        try:
            self.client: Any = redis.Redis.from_url(
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 0),  # without retries: the reply to a removal must be known
                client_name=OUR_NAME,
            )
        except (ValueError, TypeError) as exc:
            raise ConfigError(f"{self.name}: {exc}") from exc

    @contextmanager
    def use_client(self) -> Iterator[Any]:
        """Yield the client, and translate its errors."""
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
        """Return clients of this database whose last command was one of these, without Forebay's."""
        with self.use_client() as client:
            try:
                clients = client.client_list()
            except redis.ResponseError as exc:
                raise ConfigError(
                    f"{self.name} does not tell who its clients are ({exc}), so it is unknown whether "
                    "workers take jobs from it; stop them, and say so with --workers-stopped"
                ) from exc
            database = str(client.connection_pool.connection_kwargs.get("db") or 0)
        return [
            str(connected["addr"])
            for connected in clients
            if connected.get("db") == database
            and connected.get("cmd") in commands
            and connected.get("name") != OUR_NAME
        ]

    def names(self, pattern: str, kind: str | None = None) -> list[str]:
        """Return keys that match a pattern, in order; of one kind, if one is named."""
        with self.use_client() as client:
            keys = {key for key in client.scan_iter(match=pattern, count=1_000, _type=kind)}
        return sorted(key.decode() for key in keys if _is_text(key))

    def tail(self, key: str, skip: int) -> list[bytes]:
        """Return the next elements of a list from its right end on, the rightmost first, without the skipped
        ones."""
        with self.use_client() as client:
            elements: list[bytes] = client.lrange(key, -skip - PAGE_SIZE, -skip - 1)
        return elements[::-1]

    def close(self) -> None:
        self.client.close()


def _is_text(key: bytes) -> bool:
    """Return whether a key is text; those of other programs may be any bytes."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True
