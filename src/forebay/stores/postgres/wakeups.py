"""Hints that work may have come, over LISTEN and NOTIFY."""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable
from math import inf
from threading import Event, Thread, current_thread
from typing import Final

import psycopg

from forebay.stores.postgres.connection import PostgresAddress
from forebay.stores.postgres.session import Session
from forebay.stores.postgres.transaction import CommitNotifier

CAN_LISTEN: Final = hasattr(select, "poll")  # on Windows polling finds the jobs
NOTIFY_INTERVAL_SECONDS: Final = 0.01
COVERED_SECONDS: Final = 0.03
PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 30.0
JOIN_SECONDS: Final = 5.0

logger: logging.Logger = logging.getLogger(__name__)


class PostgresNotifier:
    """The sending side, of one handle: NOTIFY goes with the commit.

    Commits that notify wait for each other, and wake up every listener. So for new jobs there is at most one
    in 10 ms: whoever has heard it looks again several times within the next 50 ms (`worker.lingering`), and
    finds what came after it. That does not cover a commit that takes long; then the word follows it.
    Whether anybody looks idle decides nothing, because a look before the commit can always be wrong.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._sent_at = -inf
        self._sending_at: float | None = None
        self._is_deferred = False

    def send(self, tx: CommitNotifier) -> None:
        """Tell with this transaction what it has changed; the last thing it does. Made again, told again."""
        now = time.monotonic()
        is_recent = now - self._sent_at < NOTIFY_INTERVAL_SECONDS
        has_to_tell = self._address.notifies and (tx.needs_wakeup or tx.has_new_jobs)
        self._is_deferred = has_to_tell and not tx.needs_wakeup and is_recent
        self._sending_at = None
        if has_to_tell and not self._is_deferred:
            tx.notify(self._address.channel)
            self._sending_at = now  # before the commit, so that nobody has heard it earlier

    def on_commit(self) -> bool:
        """The transaction is kept. Answers whether a word has to follow, since it was held back and those who
        heard the last one may have ceased to look before this commit."""
        if self._sending_at is not None:
            self._sent_at = self._sending_at
        return self._is_deferred and time.monotonic() - self._sent_at > COVERED_SECONDS


class PostgresWakeups:
    """Listens on a connection of its own. While there is none, hints are lost, and polling finds the jobs;
    when it is back, there is one poke for all that may have been missed."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._stopping = Event()
        self._thread: Thread | None = None
        self._stop_write_fd = -1

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set() or not self._can_listen:
            return
        nudged, self._stop_write_fd = os.pipe()
        self._thread = Thread(target=self._run, args=(on_wakeup, nudged), name="forebay-listen", daemon=True)
        self._thread.start()

    @property
    def _can_listen(self) -> bool:
        """A pooler of transactions gives the session to somebody else; then polling has to do."""
        return CAN_LISTEN and self._address.notifies and not self._address.pooled

    def close(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            os.close(self._stop_write_fd)  # heard at the other end
            # A poke may close its own listener. A server that does not answer may hold up the thread longer;
            # it ends by itself then.
            if thread is not current_thread():
                thread.join(JOIN_SECONDS)

    def _run(self, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        try:
            self._listen(on_wakeup, stop_read_fd)
        finally:
            os.close(stop_read_fd)

    def _listen(self, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        pause, is_known = PAUSE_SECONDS, False
        while not self._stopping.is_set():
            try:
                with self._connect() as raw:
                    pause, is_known = PAUSE_SECONDS, False
                    on_wakeup()
                    self._relay_notifications(raw, on_wakeup, stop_read_fd)
            except (psycopg.Error, OSError) as exc:
                if not (is_known or self._stopping.is_set()):  # once for each outage
                    logger.warning(
                        "nobody listens to %s now, so jobs are found later: %s", self._location, exc
                    )
                is_known = True
            self._stopping.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    @property
    def _location(self) -> str:
        return self._address.location

    def _connect(self) -> Session:
        raw = Session.connect(
            self._address.dsn,
            autocommit=True,
            connect_timeout=self._address.connect_timeout,
            application_name="forebay listener",
            keepalives_idle=30,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=30_000,
        )
        raw.answer_timeout = self._address.response_timeout
        try:
            raw.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(self._address.channel)))
        except BaseException:
            raw.close()
            raise
        return raw

    def _relay_notifications(self, raw: Session, on_wakeup: Callable[[], None], stop_read_fd: int) -> None:
        """Poke for whatever is heard, once for all that came together, until the end or an error."""
        heard = raw.pgconn
        raw.add_notify_handler(lambda _: on_wakeup())  # what comes while a statement of ours is under way
        waiting = select.poll()
        waiting.register(heard.socket, select.POLLIN)
        waiting.register(stop_read_fd, select.POLLIN)
        while not self._stopping.is_set():
            if not waiting.poll(CHECK_SECONDS * 1_000):
                raw.execute(b"select 1")  # is anybody there? a server that is gone says nothing
            heard.consume_input()
            if heard.notifies() is not None:
                on_wakeup()
                while heard.notifies() is not None:
                    pass
