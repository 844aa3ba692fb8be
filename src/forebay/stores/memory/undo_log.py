"""Undo log of the in-memory engine: every write can be undone until its call ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class UndoLog:
    """Undo steps of the current call.

    Values are never changed in place, so that an undo step puts the old value back.
    """

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self._undo_steps: list[Callable[[], None]] = []

    def undo(self) -> None:
        for step in reversed(self._undo_steps):
            step()

    def write(self, table: dict[K, V], key: K, value: V | None) -> None:
        """Set a value, or remove it with None."""
        self._undo_steps.append(partial(set_or_remove, table, key, table.get(key)))
        set_or_remove(table, key, value)

    def next_number(self, name: str) -> int:
        """Return the next number of a series."""
        number = self.counters.get(name, 0) + 1
        self.write(self.counters, name, number)
        return number


def set_or_remove(table: dict[K, V], key: K, value: V | None) -> None:
    """Set a value, or remove it with None."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
