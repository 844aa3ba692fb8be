"""Hints from writers to listeners in the same process."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread
from typing import Final

from forebay.errors import StoreError

_JOIN_TIMEOUT: Final = 5.0


class WakeupBroadcast:
    """What a writer rings after its call, for everybody who listens."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: set[Event] = set()

    def broadcast(self) -> None:
        with self._lock:
            for rung in self._listeners:
                rung.set()

    def add_listener(self) -> Event:
        rung = Event()
        with self._lock:
            self._listeners.add(rung)
        return rung

    def remove_listener(self, listener: Event) -> None:
        with self._lock:
            self._listeners.discard(listener)


class MemoryWakeups:
    def __init__(self, broadcast: WakeupBroadcast) -> None:
        self._broadcast = broadcast
        self._wakeup = Event()
        self._thread: Thread | None = None
        self._closed = False

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._closed:
            raise StoreError("this handle is closed")
        if self._thread is not None:
            raise StoreError("this handle listens already")
        # Listening begins here and not on the thread, so that nothing rung after `start` is missed.
        self._wakeup = self._broadcast.add_listener()
        self._thread = Thread(target=self._run, args=(on_wakeup,), name="forebay-memory-wakeups", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._broadcast.remove_listener(self._wakeup)
        self._wakeup.set()
        # A poke may close its own listener, and one that hangs must not hold up whoever closes.
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(_JOIN_TIMEOUT)

    def _run(self, on_wakeup: Callable[[], None]) -> None:
        while True:
            self._wakeup.wait()
            # Cleared first: a ring during the poke is another hint, and a close just now is still seen.
            self._wakeup.clear()
            if self._closed:
                return
            on_wakeup()
