"""Wake-ups over LISTEN and NOTIFY."""

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

from forebay.stores.postgres.server_address import PostgresAddress
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
    """Sender of wake-ups for one handle: NOTIFY goes with the commit.

    Commits that notify wait for each other, and wake up every listener. So for new jobs there is at most one
    in 10 ms. A worker that receives it polls several times within the next 50 ms (`worker.idle_polling`) and
    finds later jobs. That does not cover a slow commit; then the wake-up follows the commit.
    Whether a worker looks idle decides nothing, since a check before the commit can always be wrong.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._sent_at = -inf
        self._sending_at: float | None = None
        self._is_deferred = False

    def send(self, tx: CommitNotifier) -> None:
        """Add a NOTIFY to this transaction if it needs one; the last step of each try."""
        now = time.monotonic()
        is_recent = now - self._sent_at < NOTIFY_INTERVAL_SECONDS
        must_notify = self._address.notifies and (tx.needs_wakeup or tx.has_new_jobs)
        self._is_deferred = must_notify and not tx.needs_wakeup and is_recent
        self._sending_at = None
        if must_notify and not self._is_deferred:
            tx.notify(self._address.channel)
            self._sending_at = now  # before the commit, so no listener has received it earlier

    def on_commit(self) -> bool:
        """Record the commit and return whether a wake-up must follow.

        It must if this one was deferred, and workers may have stopped polling before this commit.
        """
        if self._sending_at is not None:
            self._sent_at = self._sending_at
        return self._is_deferred and time.monotonic() - self._sent_at > COVERED_SECONDS


class PostgresWakeups:
    """Listener on a connection of its own.

    While the connection is down, wake-ups are lost, and polling finds the jobs. When it is back, there is one
    wake-up for all that may have been missed.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._stopping = Event()
        self._thread: Thread | None = None
        self._stop_write_fd = -1

    def start(self, on_wakeup: Callable[[], None]) -> None:
        if self._thread is not None or self._stopping.is_set() or not self._can_listen:
            return
        stop_read_fd, self._stop_write_fd = os.pipe()
        self._thread = Thread(
            target=self._run, args=(on_wakeup, stop_read_fd), name="forebay-listen", daemon=True
        )
        self._thread.start()

    @property
    def _can_listen(self) -> bool:
        """Whether LISTEN works: a transaction pooler gives the session to other clients."""
        return CAN_LISTEN and self._address.notifies and not self._address.pooled

    def close(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            os.close(self._stop_write_fd)  # self-pipe: wakes the thread
            # A wake-up may close its own listener. A server that does not respond may block the thread
            # longer; it ends by itself then.
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
                        "wake-ups from %s are down, polling finds jobs later: %s", self._location, exc
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
        """Forward notifications, one wake-up for all that came together, until a stop or an error."""
        pgconn = raw.pgconn
        raw.add_notify_handler(lambda _: on_wakeup())  # for notifications that come during a statement
        poller = select.poll()
        poller.register(pgconn.socket, select.POLLIN)
        poller.register(stop_read_fd, select.POLLIN)
        while not self._stopping.is_set():
            if not poller.poll(CHECK_SECONDS * 1_000):
                raw.execute(b"select 1")  # a server that is gone sends no notification: check it
            pgconn.consume_input()
            if pgconn.notifies() is not None:
                on_wakeup()
                while pgconn.notifies() is not None:
                    pass
