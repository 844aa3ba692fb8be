"""Wake-ups between writers and listeners in the same process."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread
from typing import Final

from forebay.errors import StoreError

_JOIN_TIMEOUT: Final = 5.0


class WakeupBroadcast:
    """Registry of listeners that a writer wakes up after its call."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: set[Event] = set()

    def broadcast(self) -> None:
        with self._lock:
            for wakeup in self._listeners:
                wakeup.set()

    def add_listener(self) -> Event:
        wakeup = Event()
        with self._lock:
            self._listeners.add(wakeup)
        return wakeup

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
        # The listener is added here and not on the thread, so that no wake-up after `start` is missed.
        self._wakeup = self._broadcast.add_listener()
        self._thread = Thread(target=self._run, args=(on_wakeup,), name="forebay-memory-wakeups", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._broadcast.remove_listener(self._wakeup)
        self._wakeup.set()
        # A callback may close its own listener, and one that hangs must not block the closing thread.
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(_JOIN_TIMEOUT)

    def _run(self, on_wakeup: Callable[[], None]) -> None:
        while True:
            self._wakeup.wait()
            # Cleared first: a wake-up during the callback counts as another, and a close just now is seen.
            self._wakeup.clear()
            if self._closed:
                return
            on_wakeup()
