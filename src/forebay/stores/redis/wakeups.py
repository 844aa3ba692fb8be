"""Wake-ups over Redis pub/sub."""

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
from forebay.stores.redis.connection import open_connection
from forebay.stores.redis.server_address import RedisAddress

CAN_LISTEN: Final = hasattr(select, "poll")  # on Windows polling finds the jobs
PAUSE_SECONDS: Final = 0.1
# Workers back off while the server is away. The listener wakes them when it is back, so this bound is also
# the longest delay of a worker.
LONGEST_PAUSE_SECONDS: Final = 0.5
CHECK_SECONDS: Final = 30.0
_JOIN_TIMEOUT: Final = 5.0


class RedisWakeups:
    """Listener with a connection of its own.

    Without a connection wake-ups are lost, and polling finds the jobs. After a reconnect there is one wake-up
    for all that may have been missed."""

    def __init__(self, address: RedisAddress, reachability: ServerReachability) -> None:
        self._address = address
        self._reachability = reachability
        self._stopping = Event()
        self._thread: Thread | None = None
        self._stop_write_fd = -1

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set() or not CAN_LISTEN:
            return
        stop_read_fd, self._stop_write_fd = os.pipe()  # self-pipe: closing the write end stops the thread
        self._thread = Thread(
            target=self._run, args=(on_wakeup, stop_read_fd), name="forebay-listen", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            # The thread closes the read end itself: it may use it for longer.
            os.close(self._stop_write_fd)
            # A callback may close its own listener. A server that does not respond may delay the thread for
            # longer; then it ends by itself.
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
                # Before the wake-up: its receiver calls the store at once.
                self._reachability.record_reached()
                on_wakeup()
                self._relay_messages(raw, on_wakeup, stop_read_fd)
            self._stopping.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    @contextmanager
    def _subscribe(self) -> Iterator[Any]:
        """Open a subscribed connection. Any node of a cluster will do: messages reach all nodes."""
        raw = open_connection(self._address, answer_seconds=_JOIN_TIMEOUT)
        try:
            # A server that is still loading its data accepts subscriptions, but refuses this.
            raw.send_command("PING")
            raw.read_response()
            raw.send_command("SUBSCRIBE", f"{self._address.tag}:wakeups")
            raw.read_response()
            yield raw
        finally:
            raw.disconnect()

    def _relay_messages(self, raw: Any, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        """Wake up for each batch of messages, until the end or an error."""
        poller = select.poll()  # select() knows no descriptors beyond 1023
        poller.register(raw._sock, select.POLLIN)
        poller.register(stop_read_fd, select.POLLIN)
        while not self._stopping.is_set():
            if not poller.poll(CHECK_SECONDS * 1_000):
                raw.send_command("PING")  # detects a server that is gone without a word
                raw.read_response()
            elif not self._stopping.is_set():  # else only the self-pipe may be readable
                on_wakeup()  # before the read: a job waits, and all messages mean the same
                if self._read_all(raw) > 1:
                    on_wakeup()  # later messages may be about jobs that came after the claim

    def _read_all(self, raw: Any) -> int:
        """Read all pending messages; return their number."""
        raw.read_response()
        messages = 1
        while raw.can_read(0):
            raw.read_response()
            messages += 1
        return messages
