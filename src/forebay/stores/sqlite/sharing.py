"""Shares: who has jobs waiting, and what a claim may take of them in their turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forebay.domain.job import QueueName
from forebay.domain.share import Share, fair_gate, step
from forebay.stores.rows import Row, json_text
from forebay.stores.sharing import Turns
from forebay.stores.sqlite.transaction import Transaction


def join(tx: Transaction, queue: QueueName, share: str | None, seqs: Sequence[int]) -> None:
    """These jobs have become pending: those of a share wait for its turn."""
    if share is None:
        return
    weights = tx.existing_queue(queue).settings.share_weights
    tx.run("share_put", {"gate": fair_gate(share), "seqs": json_text(seqs)})
    tx.run("share_join", {"queue": queue, "share": share, "step": step(weights, share)})
    tx.seen.has_shares = None


def prune(tx: Transaction) -> None:
    """Forget shares that nobody has met empty."""
    tx.run("shares_prune", {})


class SqliteTurns(Turns[Row]):
    """The shares of a queue; heads are rows as `heads` has them, and `look` finds those behind a gate."""

    def __init__(
        self,
        tx: Transaction,
        queue: QueueName,
        weights: Mapping[str, int],
        look: Callable[[str, int], list[Row]],
    ) -> None:
        super().__init__(weights)
        self._tx = tx
        self._queue = queue
        self._look_behind = look

    def _shares(self, limit: int) -> list[Share]:
        return [Share(*row) for row in self._tx.all("shares", {"queue": self._queue, "limit": limit})]

    def _look(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        return {share: self._look_behind(fair_gate(share), jobs) for share, jobs in wanted.items()}

    def _leave(self, shares: Sequence[str]) -> None:
        for share in shares:
            self._tx.run("share_leave", {"queue": self._queue, "share": share, "gate": fair_gate(share)})
        self._tx.seen.has_shares = None

    def _move(self, by: Mapping[str, int]) -> None:
        for share, change in by.items():
            self._tx.run("share_move", {"queue": self._queue, "share": share, "by": change})
