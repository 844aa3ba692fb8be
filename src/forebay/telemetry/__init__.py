"""What is seen while jobs run: gathered in memory, written when there is time."""

from __future__ import annotations
