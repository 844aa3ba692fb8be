"""Engines that can be watched, held and spoiled, for tests of the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, Final, cast

from forebay.domain.job import NewJob
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store
from tests.app.watched_store import Trouble, Watched
from tests.stores.sqlite_support import DEADLINE

__all__ = ["DEADLINE", "InsertBarrier", "WatchedEngine"]


class WatchedEngine:
    """An engine whose stores write down what reaches them; `trouble` may wait or raise instead."""

    def __init__(self, engine: Engine, trouble: Trouble | None = None) -> None:
        self._engine = engine
        self._trouble = trouble
        self.stores: list[Watched] = []
        self.inserts: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def store(self) -> Store:
        watched = Watched(self._engine.store(), self._note)
        self.stores.append(watched)
        return watched.contract

    def _note(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "insert":
            jobs: Sequence[NewJob] = args[0]
            self.inserts.append(len(jobs))
        if self._trouble is not None:
            self._trouble(name, args)

    @property
    def contract(self) -> Engine:
        return cast(Engine, self)


class InsertBarrier:
    """Holds the first insert until it is opened, and then does what it is told to."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self._then = then
        self._is_first = True
        self.is_reached: Final = Event()
        self.is_open: Final = Event()

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if name != "insert" or not self._is_first:
            return
        self._is_first = False
        self.is_reached.set()
        assert self.is_open.wait(DEADLINE)
        if self._then is not None:
            self._then()

    def wait(self) -> None:
        """Until an insert has reached it."""
        assert self.is_reached.wait(DEADLINE)

    def open(self) -> None:
        self.is_open.set()
