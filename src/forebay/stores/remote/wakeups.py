"""Hints that work may have come, by one long poll."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread, current_thread
from typing import Any, Final

import httpx2
from msgspec.structs import replace

from forebay.errors import ForebayError
from forebay.stores.remote.asking import Asking
from forebay.stores.wire import calls

# Longer than a service lets anybody wait (20 s).
SILENT_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 0.5
_PATIENCE: Final = 5.0
_OK: Final = 200


class RemoteWakeups:
    """Asks for the next hint again and again. While no server answers, hints are lost, and polling finds the
    jobs; the first answer of a server is worth a poke for all that may have been missed."""

    def __init__(self, asking: Asking) -> None:
        # Connections of its own, on which nobody speaks for longer than an answer may take.
        self._asking = Asking(replace(asking.address, answer_wait=SILENT_SECONDS))
        self._stopping = Event()
        self._thread: Thread | None = None
        self._lock = Lock()
        self._waiting: Any = None  # the socket on which the next hint is awaited

    def start(self, poke: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set():
            return
        self._thread = Thread(target=self._run, args=(poke,), name="forebay-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        with self._lock:
            if self._waiting is not None:
                with suppress(OSError):
                    self._waiting.shutdown(socket.SHUT_RDWR)
        # A poke may close its own listener, and a server that is away may hold up the thread for longer.
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(_PATIENCE)

    def _run(self, poke: Callable[[], None]) -> None:
        self._asking.hold()
        try:
            self._listen(poke)
        finally:
            self._asking.let_go()

    def _listen(self, poke: Callable[[], None]) -> None:
        seen: str | None = None
        pause = PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                word = self._next(seen)
            except (ForebayError, httpx2.HTTPError):
                self._asking.go_on(self._asking.chosen)
                self._stopping.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                continue
            pause = PAUSE_SECONDS
            if self._stopping.is_set():
                return
            if word != seen:
                seen = word
                poke()
            else:
                # Nothing has come; a server that is about to stop says so at once.
                self._stopping.wait(PAUSE_SECONDS)

    def _next(self, seen: str | None) -> str:
        call = calls()["hint"]
        # The head of the answer comes at once, so that there is a connection to cut.
        with self._asking.streaming("hint", call.asked((seen,), {}), self._asking.chosen) as response:
            stream = response.extensions["network_stream"]
            with self._lock:
                self._waiting = stream.get_extra_info("socket")
            try:
                if self._stopping.is_set():
                    return ""
                body = response.read()
            finally:
                with self._lock:
                    self._waiting = None
            if response.status_code != _OK:
                raise ForebayError("the service gives no hints")
            word: str = call.answer(body)
            return word
