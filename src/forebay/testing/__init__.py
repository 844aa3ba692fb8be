"""Helpers for the tests of programs that use Forebay."""

from __future__ import annotations

from forebay.testing.clock import ManualClock

__all__ = ["ManualClock"]
