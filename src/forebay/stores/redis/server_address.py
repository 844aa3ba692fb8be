"""Address of a Redis server, with the settings of the store URL."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from forebay.stores.redis.key_layout import DEFAULT_NAMESPACE, tag

ANSWER_SECONDS: Final = 30.0
# History takes memory here, so it has a maximum number besides its retention.
MAX_FINISHED: Final = 10_000

_PORT: Final = re.compile(r":[0-9]+\Z")


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a store: a URL as redis-py takes it, and a namespace.

    Several hosts, separated by commas, are nodes of one cluster, or alternatives of which one is reachable.
    With `master` the hosts are Sentinels that name the current master.

    `accepts_loss` silences the warning about a server without persistence. `max_finished` bounds the jobs of
    each queue and final state, `max_finished_bytes` their memory; 0 for any. A server that is silent for
    `response_timeout` seconds is given up. `clock` is for tests."""

    url: str
    master: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    accepts_loss: bool = False
    max_finished: int = MAX_FINISHED
    max_finished_bytes: int = 0
    response_timeout: float = ANSWER_SECONDS
    clock: str | None = None

    @property
    def location(self) -> str:
        """Identify the store, without user and password; all addresses of one store give the same text."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}?namespace={self.namespace}"
        hosts = [host if _PORT.search(host) else f"{host or 'localhost'}:6379" for host in self._hosts]
        name = "" if self.master is None else f"{self.master}/"
        return f"redis://{','.join(hosts)}/{name}{parts.path.strip('/') or 0}?namespace={self.namespace}"

    @property
    def tag(self) -> str:
        return tag(self.namespace)

    @property
    def urls(self) -> list[str]:
        """Return a URL for each host."""
        if self.url.startswith("unix:"):
            return [self.url]
        return [self.url_of(host) for host in self._hosts]

    @property
    def sentinels(self) -> list[str]:
        """Return a URL for each Sentinel. Sentinels have neither the store's user nor databases."""
        scheme = urlsplit(self.url).scheme
        return [f"{scheme}://{host if _PORT.search(host) else f'{host}:26379'}" for host in self._hosts]

    def url_of(self, host: str) -> str:
        """Return the URL of a host that the server has named, with the same user and settings."""
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{host}"))

    @property
    def _hosts(self) -> list[str]:
        return urlsplit(self.url).netloc.rpartition("@")[2].split(",")
