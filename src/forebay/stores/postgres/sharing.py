"""Shares: who has jobs waiting, and what a claim may take of them in their turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby

from forebay.domain.job import QueueName
from forebay.domain.share import STEP, Share, fair_gate, share_behind, step
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.rows import Row
from forebay.stores.sharing import Turns


def come(tx: Transaction, jobs: Iterable[tuple[str, str | None]]) -> None:
    """Jobs have become pending, given as queue and share; those of shares wait for their turns."""
    pairs = sorted({(queue, share) for queue, share in jobs if share is not None})
    if pairs:
        queues, shares = zip(*pairs, strict=True)
        tx.run("shares_come", {"queues": list(queues), "shares": list(shares)})
        tx.shared.update(queues)  # a claim of this transaction takes from them, too


def take_turns(tx: Transaction, queues: Collection[str]) -> None:
    """Lock the shares of these queues, and give those that have come their turns.

    Behind the lock, in later statements: what others have claimed meanwhile has moved the turns.
    """
    shared = sorted(queue for queue in queues if queue in tx.shared)
    if not shared:
        return
    weighted = [(queue, share) for queue in shared for share in _weights(tx, queue)]
    tx.run("shares_lock", {"queues": shared})
    values = {
        "names": shared,
        "queues": [queue for queue, _ in weighted],
        "shares": [share for _, share in weighted],
        "steps": [step(_weights(tx, queue), share) for queue, share in weighted],
        "step": STEP,
    }
    tx.run("shares_join", values)


def _weights(tx: Transaction, name: str) -> Mapping[str, int]:
    queue = tx.queue(name)
    return {} if queue is None else queue.settings.share_weights


class PostgresTurns(Turns[Row]):
    """The shares of a queue, under their lock; heads are rows as `fair_heads` has them."""

    def __init__(self, tx: Transaction, queue: QueueName, cap_ms: Callable[[], int]) -> None:
        super().__init__(_weights(tx, queue))
        self._tx = tx
        self._queue = queue
        self._cap_ms = cap_ms

    def _shares(self, limit: int) -> list[Share]:
        return [Share(*row) for row in self._tx.all("shares", {"queue": self._queue, "limit": limit})]

    def _look(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        values = {
            "queue": self._queue,
            "cap_ms": self._cap_ms(),
            "gates": [fair_gate(share) for share in wanted],
            "rooms": list(wanted.values()),
        }
        rows = self._tx.all("fair_heads", values)
        return {share_behind(gate): list(some) for gate, some in groupby(rows, key=lambda row: str(row[2]))}

    def _leave(self, shares: Sequence[str]) -> None:
        self._tx.run("shares_leave", {"queue": self._queue, "shares": list(shares)})

    def _move(self, by: Mapping[str, int]) -> None:
        self._tx.run("shares_move", {"queue": self._queue, "shares": list(by), "by": list(by.values())})
