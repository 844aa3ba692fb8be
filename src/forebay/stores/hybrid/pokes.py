"""Telling those who listen that work may have come, over Redis as long as it is there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import psycopg

from forebay.domain.job import QueueName
from forebay.stores.hybrid.order import HotOrder
from forebay.stores.postgres.connection import Address
from forebay.stores.postgres.transaction import News, Transaction
from forebay.stores.postgres.wakeups import Pokes

# Of one transaction; whoever puts more jobs into orders at once leaves the rest to be found.
MOST_CAME: Final = 1_000


class HybridPokes(Pokes):
    """The sending side of one handle: a word in Redis after the commit, or NOTIFY with it if Redis is away.

    A program that dies between its commit and its word has told nobody; then polling finds the job, as with
    every hint that gets lost.
    """

    def __init__(self, address: Address, order: HotOrder) -> None:
        super().__init__(address)
        self._order = order
        self._can_tell = True
        self._has_word = False
        self._came: psycopg.Cursor[Any] | None = None

    def send(self, tx: News) -> None:
        self._has_word, self._came = False, None
        super().send(tx)
        if not (isinstance(tx, Transaction) and tx.placed):
            return
        if self._order.is_up:
            # Whatever this transaction has done: retried, promoted, released, revived, amended, brought back.
            self._came = tx.run("order_came", {"queues": tx.placed, "most": MOST_CAME})
        else:
            self._order.missed(map(QueueName, tx.placed))

    def _say(self, tx: News) -> None:
        if self._order.is_up:
            self._has_word = True
        elif self._address.notifies:
            super()._say(tx)

    def committed(self) -> bool:
        has_to_follow = super().committed()
        came, self._came = self._came, None
        if came is not None:
            with suppress(psycopg.Error):
                for queue, rank, seq in came.fetchall():
                    self._order.came(QueueName(queue), rank, (seq,))
        has_word, self._has_word = self._has_word, False
        is_told = self._order.flush(tell=has_word)
        # It was promised to Redis, which is away by now: the word follows by NOTIFY.
        return has_to_follow or not is_told
