"""Commands, one file per command group."""

from __future__ import annotations
