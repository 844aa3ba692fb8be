"""Protocols of the store contract for limits."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.concurrency_and_rate_limits import Limit, LimitUsage


class LimitStore(Protocol):
    """Write side of limits. A saved limit holds from the next claim on, for every worker."""

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        """Save the limit of its scope, in place of an earlier one. What is left of a rate stays left, so a
        change allows no burst. Running jobs go on, however many they are. Leaves a LIMIT_CHANGED event and
        sends a wake-up.
        """
        ...

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        """Remove the limit of a scope and return whether there was one. Leaves a LIMIT_CHANGED event and
        sends a wake-up.
        """
        ...


class LimitReader(Protocol):
    """Read side of limits."""

    def limits(self) -> list[Limit]:
        """Return all limits, by scope."""
        ...

    def limit_usages(self) -> list[LimitUsage]:
        """Return the usage of all limits, by scope. A job counts as running while its lease has not ended."""
        ...
