"""Shares: who has jobs waiting, and what a claim may take of them in their turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forebay.domain.gate import lane_gate
from forebay.domain.job import QueueName
from forebay.domain.share import Share, fair_gate, step
from forebay.stores.rows import Row, json_text
from forebay.stores.sharing import Lanes, Turns
from forebay.stores.sqlite.transaction import Transaction


def join(tx: Transaction, queue: QueueName, share: str | None, seqs: Sequence[int]) -> None:
    """These jobs have become pending: those of a share wait for its turn."""
    if share is None:
        return
    weights = tx.existing_queue(queue).settings.share_weights
    tx.run("share_put", {"gate": fair_gate(share), "seqs": json_text(seqs)})
    # Only where there are limits a share can have lanes that keep its turn.
    values = {"queue": queue, "share": share, "step": step(weights, share)}
    tx.run("share_resume" if tx.has_limits else "share_join", values)
    tx.seen.has_shares = None


def join_lane(tx: Transaction, queue: QueueName, scope: str, share: str) -> None:
    """Jobs of this share wait at the limit of a scope."""
    weights = tx.existing_queue(queue).settings.share_weights
    tx.run("lane_join", {"queue": queue, "scope": scope, "share": share, "step": step(weights, share)})


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
            if self._tx.has_limits:
                self._tx.run("lanes_keep", {"queue": self._queue, "share": share})
            self._tx.run("share_leave", {"queue": self._queue, "share": share, "gate": fair_gate(share)})
        self._tx.seen.has_shares = None

    def _move(self, by: Mapping[str, int]) -> None:
        for share, change in by.items():
            self._tx.run("share_move", {"queue": self._queue, "share": share, "by": change})


class SqliteLanes(Lanes[int]):
    """The shares with jobs behind one limit of a queue; heads are the numbers of jobs."""

    def __init__(self, tx: Transaction, queue: QueueName, scope: str) -> None:
        found = tx.queue(queue)
        super().__init__({} if found is None else found.settings.share_weights)
        self._tx = tx
        self._lane = {"queue": queue, "scope": scope}
        self._queue = queue
        self._scope = scope

    def _shares(self, limit: int) -> list[Share]:
        return [Share(*row) for row in self._tx.all("lanes", {**self._lane, "limit": limit})]

    def _look(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        return {share: self._seqs(share, jobs) for share, jobs in wanted.items()}

    def _seqs(self, share: str, jobs: int) -> list[int]:
        values = {"queue": self._queue, "gate": lane_gate(self._scope, share), "limit": jobs}
        return [seq for (seq,) in self._tx.all("lane_heads", values)]

    def _leave(self, shares: Sequence[str]) -> None:
        for share in shares:
            gate = lane_gate(self._scope, share)
            self._tx.run("lane_leave", {**self._lane, "share": share, "gate": gate})

    def _put_back(self, heads: Sequence[tuple[str, int]]) -> None:
        seqs: dict[str, list[int]] = {}
        for share, seq in heads:
            seqs.setdefault(share, []).append(seq)
        for share, some in seqs.items():
            join(self._tx, self._queue, share, some)

    def _move(self, by: Mapping[str, int]) -> None:
        for share, change in by.items():
            self._tx.run("lane_move", {**self._lane, "share": share, "by": change})
