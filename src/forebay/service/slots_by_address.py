"""Slots for concurrent connections and health watches: so many in total, and so many for each address."""

from __future__ import annotations

import ipaddress
from collections import Counter
from functools import lru_cache
from typing import Final

_IPV6_PREFIX: Final = 64  # a provider gives each customer a /64 at least, and the customer may use all of it


class AddressSlots:
    """At most `max_total` holders at a time, and `max_per_address` of one address; None is no bound.

    For one event loop: there is no await between check and count, so two callers never take the same slot.
    """

    def __init__(self, max_total: int | None, max_per_address: int | None = None) -> None:
        self._max_total = max_total
        self._max_per_address = max_per_address
        self._held: Counter[str] = Counter()
        self._total = 0

    def acquire(self, address: str) -> bool:
        """Take a slot for this address; return false if none is free."""
        network = network_of(address)
        if self._max_total is not None and self._total >= self._max_total:
            return False
        if self._max_per_address is not None and self._held[network] >= self._max_per_address:
            return False
        self._held[network] += 1
        self._total += 1
        return True

    def release(self, address: str) -> None:
        """Return a slot."""
        network = network_of(address)
        self._total -= 1
        self._held[network] -= 1
        if not self._held[network]:
            del self._held[network]


@lru_cache(maxsize=1_024)
def network_of(address: str) -> str:
    """Return the address under which a client is counted: an IPv6 address stands for its /64."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:  # noqa: PLR2004 - of the protocol
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
