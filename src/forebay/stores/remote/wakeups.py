"""Wake-ups of the remote engine, by long polling."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread, current_thread
from typing import Any, Final

import httpx2
from msgspec.structs import replace

from forebay.errors import ForebayError
from forebay.stores.remote.http_client import ServiceClient
from forebay.stores.rpc import store_methods

# Longer than a service delays the response of a poll (20 s).
SILENT_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 0.5
_JOIN_TIMEOUT: Final = 5.0
_OK: Final = 200


class RemoteWakeups:
    """Listener that polls for the next wake-up.

    While no server responds, wake-ups are lost, and the workers' polling finds the jobs. The first response
    of a server causes one wake-up for all that may have been missed."""

    def __init__(self, client: ServiceClient) -> None:
        # A client of its own: its responses take longer than those of other calls may.
        self._client = ServiceClient(replace(client.address, response_timeout=SILENT_SECONDS))
        self._stopping = Event()
        self._thread: Thread | None = None
        self._lock = Lock()
        self._waiting: Any = None  # socket of the poll that is under way

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set():
            return
        self._thread = Thread(target=self._run, args=(on_wakeup,), name="forebay-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        with self._lock:
            if self._waiting is not None:
                with suppress(OSError):
                    self._waiting.shutdown(socket.SHUT_RDWR)
        # A callback may close its own listener. An unreachable server may delay the thread for longer.
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(_JOIN_TIMEOUT)

    def _run(self, on_wakeup: Callable[[], None]) -> None:
        self._client.acquire()
        try:
            self._listen(on_wakeup)
        finally:
            self._client.release()

    def _listen(self, on_wakeup: Callable[[], None]) -> None:
        seen: str | None = None
        pause = PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                version = self._poll(seen)
            except (ForebayError, httpx2.HTTPError):
                self._client.fail_over(self._client.chosen)
                self._stopping.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                continue
            pause = PAUSE_SECONDS
            if self._stopping.is_set():
                return
            if version != seen:
                seen = version
                on_wakeup()
            else:
                # No wake-up; a server that is about to stop responds at once.
                self._stopping.wait(PAUSE_SECONDS)

    def _poll(self, seen: str | None) -> str:
        call = store_methods()["poll_wakeups"]
        # The response's header comes at once, so that `close` has a connection to shut down.
        with self._client.stream(
            "poll_wakeups", call.encode_call((seen,), {}), self._client.chosen
        ) as response:
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
                raise ForebayError("the service sends no wake-ups")
            version: str = call.decode_response(body)
            return version
