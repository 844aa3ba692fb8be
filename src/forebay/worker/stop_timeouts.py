"""Lengths of the phases of a stop, in seconds."""

from __future__ import annotations

from typing import Final

DRAIN_SECONDS: Final = 25.0  # running jobs may end by themselves
INTERRUPT_SECONDS: Final = 3.0  # running jobs have been asked to stop
CLOSING_SECONDS: Final = 2.0  # the last settlements are written, and everything is closed
