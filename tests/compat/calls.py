"""Functions that the tests submit. Programs find them by their names, so they are not inside a test."""

from __future__ import annotations

from collections import defaultdict
from threading import Event
from typing import Any, Final

from forebay import current_job
from forebay.compat.task_queue.errors import PermanentError, RetryableError
from tests.worker.support import DEADLINE

# What has been called, and barriers that calls wait at, by a name that each test chooses for itself.
noted: Final[defaultdict[str, list[Any]]] = defaultdict(list)
reached: Final[defaultdict[str, Event]] = defaultdict(Event)
opened: Final[defaultdict[str, Event]] = defaultdict(Event)

ERRORS: Final[dict[str, type[BaseException]]] = {
    kind.__name__: kind
    for kind in (
        TypeError,
        ValueError,
        AttributeError,
        KeyError,
        ImportError,
        SyntaxError,
        AssertionError,
        FileNotFoundError,
        ConnectionError,
        TimeoutError,
        PermissionError,
        OSError,
        PermanentError,
        RetryableError,
    )
}


def add(a: int, b: int = 0) -> int:
    return a + b


def note(key: str, value: Any) -> Any:
    noted[key].append(value)
    return value


def take(*, priority: str, job_id: str) -> str:
    """Its arguments are called like options of `submit`."""
    return f"{priority} {job_id}"


def fail(key: str, kind: str = "ConnectionError") -> None:
    noted[key].append(current_job().attempt)
    raise ERRORS[kind](f"attempt {current_job().attempt} of {key}")


def fail_until(key: str, attempt: int) -> int:
    """Fails until it has this many attempts."""
    noted[key].append(current_job().attempt)
    if current_job().attempt < attempt:
        raise ConnectionError("not yet")
    return current_job().attempt


def hold(key: str) -> str:
    """Says that it runs, and goes on when it may."""
    noted[key].append(current_job().attempt)
    reached[key].set()
    assert opened[key].wait(DEADLINE)
    return key


def linger(key: str) -> None:
    """Runs in small steps, so that it can be interrupted, until it may end."""
    reached[key].set()
    nap = Event()  # its own: an interrupt must not hit the lock of a barrier that others use
    while not opened[key].is_set():
        nap.wait(0.01)


async def asleep() -> None: ...


class Shop:
    @staticmethod
    def price(item: str) -> str:
        return f"{item}: 5"

    def sell(self, item: str) -> None: ...
