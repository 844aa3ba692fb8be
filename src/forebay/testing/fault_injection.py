"""Faults between a program and its store: not reached, busy, answer lost, process killed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, cast

from forebay.errors import ConfigError, StoreBusy, StoreUnavailable
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.store import Store


class Killed(BaseException):
    """The process has died, perhaps in the middle of a call, and does nothing more."""


class Fault(StrEnum):
    """A fault of one call. With the last two the call has taken effect in the store."""

    AWAY = "away"  # the store is not reached
    BUSY = "busy"  # a lock time-out: another transaction holds what the call needs
    KILLED = "killed before"
    LOST = "answer lost"
    KILLED_AFTER = "killed after"


class FaultPlan(Protocol):
    """Plan that decides which calls fail, and how."""

    def next(self, operation: str, *, is_process: bool) -> Fault | None:
        """Return the fault of this call, or None. Only a process can be killed."""
        ...


class PlannedFaults:
    """Faults at calls that a test names; while `is_away` is set, every call fails.

    >>> faults = PlannedFaults()
    >>> faults.plan("insert", Fault.AWAY)
    >>> faults.next("insert", is_process=False), faults.next("insert", is_process=False)
    (<Fault.AWAY: 'away'>, None)
    """

    def __init__(self) -> None:
        self.is_away = False
        self._planned: list[tuple[str, Fault]] = []

    def plan(self, operation: str, fault: Fault | str, *, times: int = 1) -> None:
        """Make the next `times` calls of a method of `Store` fail: `insert` enqueues, `settle_and_claim`
        claims and settles, `sweep` takes over from dead workers."""
        if not hasattr(Store, operation):
            raise ConfigError(
                f"{operation!r} is no operation of a store; see forebay.stores.contract.store.Store"
            )
        self._planned += [(operation, Fault(fault))] * times

    @property
    def left(self) -> int:
        """Number of planned faults that no call has met yet."""
        return len(self._planned)

    def next(self, operation: str, *, is_process: bool) -> Fault | None:
        """Return the fault that was planned for this call, once."""
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
    """A store handle with faults. `on_call` is called for each call that took effect in the store, even if
    its answer is lost."""

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
    """Engine with wrapped store handles; all else is delegated."""

    def __init__(self, engine: Engine, wrap: Callable[[Store], Any]) -> None:
        self._engine = engine
        self._wrap = wrap

    def store(self) -> Store:
        return cast(Store, self._wrap(self._engine.store()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def inject_faults(engine: Engine, wrap: Callable[[Store], Any]) -> Engine:
    """Return the engine with every store handle wrapped."""
    # It has all the methods of an engine; those that it does not change are the engine's own.
    return cast(Engine, _FaultyEngine(engine, wrap))
