"""Protocol of the store contract for wake-ups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Wakeups(Protocol):
    """Listener for wake-ups: hints that work may have come. Losing one costs delay, never a job."""

    def start(self, on_wakeup: Callable[[], None]) -> None:
        """Call `on_wakeup`, on a thread of its own, when another process may have enqueued or changed
        something.
        """
        ...

    def close(self) -> None:
        """Stop listening. Closing twice, or before the start, is allowed."""
        ...
