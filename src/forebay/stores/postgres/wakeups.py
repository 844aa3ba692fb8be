"""Hints that work may have come, over LISTEN and NOTIFY."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Final

import psycopg

from forebay.stores.postgres.connection import Address, Raw

PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 30.0


class PostgresWakeups:
    """Listens on a connection of its own. While there is none, hints are lost, and polling finds the jobs;
    when it is back, there is one poke for all that may have been missed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._stopping = Event()
        self._thread: Thread | None = None
        self._wake: tuple[int, int] | None = None

    def start(self, poke: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set() or not self._can_listen:
            return
        self._wake = os.pipe()
        self._thread = Thread(
            target=self._listen, args=(poke, self._wake[0]), name="forebay-listen", daemon=True
        )
        self._thread.start()

    @property
    def _can_listen(self) -> bool:
        """A pooler of transactions gives the session to somebody else; then polling has to do."""
        return self._address.notifies and not self._address.pooled

    def close(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is None or self._wake is None:
            return
        os.write(self._wake[1], b".")
        thread.join()
        for end in self._wake:
            os.close(end)

    def _listen(self, poke: Callable[[], None], wake: int) -> None:
        pause = PAUSE_SECONDS
        while not self._stopping.is_set():
            with suppress(psycopg.Error, OSError), self._connected() as raw:
                pause = PAUSE_SECONDS
                poke()
                self._hear(raw, poke, wake)
            self._stopping.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _connected(self) -> Raw:
        raw = psycopg.connect(
            self._address.dsn,
            autocommit=True,
            connect_timeout=10,
            application_name="forebay listener",
            keepalives_idle=30,
            keepalives_interval=5,
            keepalives_count=3,
        )
        raw.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(self._address.channel)))
        return raw

    def _hear(self, raw: Raw, poke: Callable[[], None], wake: int) -> None:
        """Poke for whatever is heard, once for all that came together, until the end or an error."""
        while not self._stopping.is_set():
            heard, _, _ = select.select([raw.fileno(), wake], [], [], LOOK_SECONDS)
            if not heard:
                raw.execute(b"select 1")  # is anybody there? a server that is gone says nothing
            if list(raw.notifies(timeout=0)):
                poke()
