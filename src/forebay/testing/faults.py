"""Faults at the seam between a program and its store: not reached, not answered, killed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, cast

from forebay.errors import ConfigError, StoreBusy, StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store


class Killed(BaseException):
    """The process has died, perhaps in the middle of a call; nothing of it is heard again."""


class Fault(StrEnum):
    """What may happen to one call. It has happened in the store with the last two."""

    AWAY = "away"  # the store is not reached
    BUSY = "busy"  # a lock time-out: another transaction holds what the call needs
    KILLED = "killed before"
    LOST = "answer lost"
    KILLED_AFTER = "killed after"


class FaultPlan(Protocol):
    """Says which calls go wrong, and how."""

    def next(self, operation: str, *, is_process: bool) -> Fault | None:
        """The fault for this call, if it has one. Only a process can be killed."""
        ...


class PlannedFaults:
    """Faults at calls that a test names; while `is_away` is set, nobody reaches the store at all.

    >>> faults = PlannedFaults()
    >>> faults.plan("insert", Fault.AWAY)
    >>> faults.next("insert", is_process=False), faults.next("insert", is_process=False)
    (<Fault.AWAY: 'away'>, None)
    """

    def __init__(self) -> None:
        self.is_away = False
        self._planned: list[tuple[str, Fault]] = []

    def plan(self, operation: str, fault: Fault | str, *, times: int = 1) -> None:
        """Let the next `times` calls of a method of `Store` go wrong: `insert` enqueues, `exchange` claims
        and settles, `sweep` takes over from the dead."""
        if not hasattr(Store, operation):
            raise ConfigError(
                f"{operation!r} is no operation of a store; see forebay.stores.contract.store.Store"
            )
        self._planned += [(operation, Fault(fault))] * times

    @property
    def left(self) -> int:
        """How many planned faults nobody has met yet."""
        return len(self._planned)

    def next(self, operation: str, *, is_process: bool) -> Fault | None:
        """The fault that was planned for this call, once."""
        if self.is_away:
            return Fault.AWAY
        for place, (name, fault) in enumerate(self._planned):
            if name == operation:
                del self._planned[place]
                return fault
        return None


def _ignore_call(operation: str, args: tuple[Any, ...], answer: Any) -> None:
    pass


class FaultyStore:
    """A handle whose calls go wrong now and then. `note` hears of each call that has happened in the store,
    whether its caller does or not."""

    def __init__(
        self,
        store: Any,
        faults: FaultPlan,
        on_call: Callable[[str, tuple[Any, ...], Any], None] = _ignore_call,
        *,
        is_process: bool = True,
    ) -> None:
        self._store = store
        self._faults = faults
        self._on_call = on_call
        self._is_process = is_process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return method if name == "close" else partial(self._call, name, method)

    def _call(self, name: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        fault = self._faults.next(name, is_process=self._is_process)
        if fault is Fault.AWAY:
            raise StoreUnavailable("the store cannot be reached")
        if fault is Fault.BUSY:
            raise StoreBusy("another transaction holds what this call needs")
        if fault is Fault.KILLED:
            raise Killed
        answer = method(*args, **options)
        self._on_call(name, args, answer)
        if fault is Fault.LOST:
            raise StoreUnavailable("the answer was lost")
        if fault is Fault.KILLED_AFTER:
            raise Killed
        return answer


class _FaultyEngine:
    """Passes on whatever it does not do itself."""

    def __init__(self, engine: Engine, wrap: Callable[[Store], Any]) -> None:
        self._engine = engine
        self._wrap = wrap

    def store(self) -> Store:
        return cast(Store, self._wrap(self._engine.store()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def inject_faults(engine: Engine, wrap: Callable[[Store], Any]) -> Engine:
    """The engine with every handle to write wrapped."""
    # It has all the methods of an engine; those that it does not change are the engine's own.
    return cast(Engine, _FaultyEngine(engine, wrap))
