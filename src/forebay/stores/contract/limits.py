"""The part of the seam that keeps limits, and what they leave for the claims of one exchange."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.limits import Limit, LimitUsage


class LimitStore(Protocol):
    """The write side of limits. What is saved holds from the next claim on, whoever makes it."""

    def save_limit(self, limit: Limit, *, actor: str = "") -> None:
        """Set the limit of its scope, in the place of another one. What is left of a rate stays left, so a
        change gives nobody a burst; jobs that run go on, however many they are. Leaves a LIMIT event and is
        worth a wake-up."""
        ...

    def drop_limit(self, scope: str, *, actor: str = "") -> bool:
        """Remove the limit of a scope; whether there was one. Leaves a LIMIT event and is worth a wake-up."""
        ...


class LimitReader(Protocol):
    """The read side of limits."""

    def limits(self) -> list[Limit]:
        """All limits, by scope."""
        ...

    def limit_usages(self) -> list[LimitUsage]:
        """How all limits stand, by scope. What runs is what has a lease that has not ended."""
        ...
