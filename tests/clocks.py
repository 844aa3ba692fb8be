"""Time for tests that others follow: a server has a clock of its own, and must be told."""

from __future__ import annotations

from collections.abc import Callable

from forebay.testing.manual_clock import ManualClock


class FollowedClock(ManualClock):
    """A clock that tells its followers whenever it moves."""

    def __init__(self, now_ms: int = 0) -> None:
        super().__init__(now_ms)
        self._followers: list[Callable[[int], object]] = []

    def add_follower(self, follower: Callable[[int], object]) -> None:
        """From now on this one has this time."""
        self._followers.append(follower)
        follower(self.now_ms())

    def advance(self, ms: int = 0, *, seconds: float = 0) -> None:
        super().advance(ms, seconds=seconds)
        self._notify()

    def set(self, now_ms: int) -> None:
        super().set(now_ms)
        self._notify()

    def _notify(self) -> None:
        for follower in self._followers:
            follower(self.now_ms())
