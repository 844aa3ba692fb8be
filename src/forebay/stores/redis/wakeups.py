"""Hints that work may have come, over publish and subscribe."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread, current_thread
from typing import Any, Final

import redis

from forebay.errors import StoreError
from forebay.stores.redis.circuit_breaker import ServerReachability
from forebay.stores.redis.connection import RedisAddress, open_connection

CAN_LISTEN: Final = hasattr(select, "poll")  # on Windows polling finds the jobs
PAUSE_SECONDS: Final = 0.1
# Workers wait longer and longer for a server that is away. This is who tells them that it is back, so it is
# what their own wait comes to.
LONGEST_PAUSE_SECONDS: Final = 0.5
CHECK_SECONDS: Final = 30.0
_JOIN_TIMEOUT: Final = 5.0


class RedisWakeups:
    """Listens on a connection of its own. While there is none, hints are lost, and polling finds the jobs;
    when it is back, there is one poke for all that may have been missed."""

    def __init__(self, address: RedisAddress, reachability: ServerReachability) -> None:
        self._address = address
        self._reachability = reachability
        self._stopping = Event()
        self._thread: Thread | None = None
        self._stop_write_fd = -1

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set() or not CAN_LISTEN:
            return
        nudged, self._stop_write_fd = os.pipe()
        self._thread = Thread(target=self._run, args=(on_wakeup, nudged), name="forebay-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            os.close(
                self._stop_write_fd
            )  # heard at the other end, which the thread closes: it may use it for longer
            # A poke may close its own listener. A server that does not answer may hold up the thread longer;
            # it ends by itself then.
            if thread is not current_thread():
                thread.join(_JOIN_TIMEOUT)

    def _run(self, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        try:
            self._listen(on_wakeup, stop_read_fd)
        finally:
            os.close(stop_read_fd)

    def _listen(self, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        pause = PAUSE_SECONDS
        while not self._stopping.is_set():
            with suppress(redis.RedisError, OSError, StoreError), self._subscribe() as raw:
                pause = PAUSE_SECONDS
                # before the poke: whoever hears of it asks the store at once
                self._reachability.record_reached()
                on_wakeup()
                self._relay_messages(raw, on_wakeup, stop_read_fd)
            self._stopping.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    @contextmanager
    def _subscribe(self) -> Iterator[Any]:
        """A connection that listens. Any node of a cluster will do: all hear what is published on one."""
        raw = open_connection(self._address, answer_seconds=_JOIN_TIMEOUT)
        try:
            # A server that still loads its data lets everybody listen, and refuses this.
            raw.send_command("PING")
            raw.read_response()
            raw.send_command("SUBSCRIBE", f"{self._address.tag}:wakeups")
            raw.read_response()
            yield raw
        finally:
            raw.disconnect()

    def _relay_messages(self, raw: Any, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        """Poke for whatever is heard, until the end or an error."""
        waiting = select.poll()  # select() knows no descriptors beyond 1023
        waiting.register(raw._sock, select.POLLIN)
        waiting.register(stop_read_fd, select.POLLIN)
        while not self._stopping.is_set():
            if not waiting.poll(CHECK_SECONDS * 1_000):
                raw.send_command("PING")  # is anybody there? a server that is gone says nothing
                raw.read_response()
            elif not self._stopping.is_set():  # else it may be the nudge alone, and nothing is there to read
                on_wakeup()  # first of all: a job waits, and what is said we know without reading it
                if self._read_all(raw) > 1:
                    on_wakeup()  # what came while we read may have come after the look

    def _read_all(self, raw: Any) -> int:
        """How many hints there were; one poke for all that came together."""
        raw.read_response()
        hints = 1
        while raw.can_read(0):
            raw.read_response()
            hints += 1
        return hints
