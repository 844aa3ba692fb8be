"""A store of an engine behind a network that can fail, for the tests of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from evidence.proxy import Proxy

SERVERS: Final = ("postgresql", "redis")
ANSWER_SECONDS: Final = 5
PATIENT_SECONDS: Final = 60  # longer than a machine that is busy with other tests takes for a call
# What holds up a call at most: the look for an answer, and a new connection after it.
BOUND_SECONDS: Final = 2 * ANSWER_SECONDS


class Network:
    """The address of one store, directly and through proxies."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._proxies: list[Proxy] = []

    def proxy(self) -> Proxy:
        """A way to the server that no other client uses."""
        port = urlsplit(self.url).port
        assert port is not None
        self._proxies.append(Proxy(port))
        return self._proxies[-1]

    def through(self, proxy: Proxy, response_timeout: int = ANSWER_SECONDS) -> str:
        """The address for who has to go that way, and does not wait long for an answer."""
        parts = urlsplit(self.url)
        there = self.url.replace(f":{parts.port}/", f":{proxy.port}/")
        return f"{there}{'&' if parts.query else '?'}response_timeout={response_timeout}"

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.close()


@contextmanager
def network_to(url: str) -> Iterator[Network]:
    network = Network(url)
    try:
        yield network
    finally:
        network.close()
