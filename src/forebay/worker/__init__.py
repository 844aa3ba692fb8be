"""Who does the work."""

from __future__ import annotations
