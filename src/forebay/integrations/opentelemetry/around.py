"""What stands before an engine, or before one of its handles."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Told = TypeVar("Told")


class Around(Generic[Told]):
    """Passes on whatever it does not do itself."""

    def __init__(self, inner: Any, told: Told) -> None:
        self._inner = inner
        self._told = told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
