"""How long the phases of a stop take."""

from __future__ import annotations

from typing import Final

DRAIN_SECONDS: Final = 25.0  # what runs may end by itself
INTERRUPT_SECONDS: Final = 3.0  # what still runs has been asked to stop
CLOSING_SECONDS: Final = 2.0  # the store is told, and everything is let go of
