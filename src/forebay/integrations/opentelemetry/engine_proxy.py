"""Proxy of an engine, or of one of its handles."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

RecorderT = TypeVar("RecorderT")


class Delegate(Generic[RecorderT]):
    """Passes on every attribute that it does not define itself."""

    def __init__(self, inner: Any, recorder: RecorderT) -> None:
        self._inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
