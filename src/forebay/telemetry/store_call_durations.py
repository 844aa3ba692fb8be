"""Durations of store calls, logged at debug level."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from forebay.clock import Clock

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("forebay.stores.timing")


class _TimingProxy:
    """Proxy that logs the duration of each method call of an object."""

    def __init__(self, target: object, clock: Clock) -> None:
        self._target = target
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._time_call(name, found) if callable(found) else found

    def _time_call(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began, how = self._clock.monotonic(), "failed after"
            try:
                answer = method(*args, **kwargs)
                how = "took"
                return answer
            finally:
                ms = (self._clock.monotonic() - began) * 1_000
                logger.debug("%s %s %.3f ms", name, how, ms, extra={"call": name, "took_ms": round(ms, 3)})

        return call


def log_durations(store: T, clock: Clock) -> T:
    """Return the store, with logged durations at debug level. The level is read once: other levels pay
    nothing."""
    return cast("T", _TimingProxy(store, clock)) if logger.isEnabledFor(logging.DEBUG) else store
