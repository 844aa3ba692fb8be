"""Hints from writers to listeners in the same process."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread
from typing import Final

from forebay.errors import StoreError

_PATIENCE: Final = 5.0


class Bell:
    """What a writer rings after its call, for everybody who listens."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rung: set[Event] = set()

    def ring(self) -> None:
        with self._lock:
            for rung in self._rung:
                rung.set()

    def listen(self) -> Event:
        rung = Event()
        with self._lock:
            self._rung.add(rung)
        return rung

    def leave(self, rung: Event) -> None:
        with self._lock:
            self._rung.discard(rung)


class MemoryWakeups:
    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._rung = Event()
        self._thread: Thread | None = None
        self._closed = False

    def start(self, poke: Callable[[], None]) -> None:
        if self._closed:
            raise StoreError("this handle is closed")
        if self._thread is not None:
            raise StoreError("this handle listens already")
        # Listening begins here and not on the thread, so that nothing rung after `start` is missed.
        self._rung = self._bell.listen()
        self._thread = Thread(target=self._run, args=(poke,), name="forebay-memory-wakeups", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._bell.leave(self._rung)
        self._rung.set()
        # A poke may close its own listener, and one that hangs must not hold up whoever closes.
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(_PATIENCE)

    def _run(self, poke: Callable[[], None]) -> None:
        while True:
            self._rung.wait()
            # Cleared first: a ring during the poke is another hint, and a close just now is still seen.
            self._rung.clear()
            if self._closed:
                return
            poke()
