"""Shares: who has jobs waiting, and what a claim may take of them in their turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forebay.domain.fairness import FairnessKey, fairness_lane, virtual_time_step
from forebay.domain.job import QueueName
from forebay.domain.lane import limit_fairness_lane
from forebay.stores.shared.fairness import FairClaim, FairUnpark
from forebay.stores.shared.rows import Row, json_text
from forebay.stores.sqlite.transaction import Transaction


def mark_pending(tx: Transaction, queue: QueueName, key: str | None, seqs: Sequence[int]) -> None:
    """These jobs have become pending: those of a share wait for its turn."""
    if key is None:
        return
    weights = tx.get_or_create_queue(queue).settings.fairness_weights
    tx.run("fairness_lane_put", {"lane": fairness_lane(key), "seqs": json_text(seqs)})
    # Only where there are limits a share can have lanes that keep its turn.
    values = {"queue": queue, "fairness_key": key, "step": virtual_time_step(weights, key)}
    tx.run("fairness_key_resume" if tx.has_limits else "fairness_key_join", values)
    tx.cache.has_fairness_keys = None


def join_limit_lane(tx: Transaction, queue: QueueName, scope: str, key: str) -> None:
    """Jobs of this share wait at the limit of a scope."""
    weights = tx.get_or_create_queue(queue).settings.fairness_weights
    tx.run(
        "limit_fairness_join",
        {"queue": queue, "scope": scope, "fairness_key": key, "step": virtual_time_step(weights, key)},
    )


def prune(tx: Transaction) -> None:
    """Forget shares that nobody has met empty."""
    tx.run("fairness_keys_prune", {})


class SqliteFairClaim(FairClaim[Row]):
    """The shares of a queue; heads are rows as `heads` has them, and `look` finds those behind a gate."""

    def __init__(
        self,
        tx: Transaction,
        queue: QueueName,
        weights: Mapping[str, int],
        load_lane: Callable[[str, int], list[Row]],
    ) -> None:
        super().__init__(weights)
        self._tx = tx
        self._queue = queue
        self._load_lane = load_lane

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("fairness_keys", {"queue": self._queue, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        return {share: self._load_lane(fairness_lane(share), jobs) for share, jobs in counts.items()}

    def _remove_idle(self, keys: Sequence[str]) -> None:
        for share in keys:
            if self._tx.has_limits:
                self._tx.run("limit_fairness_keep_time", {"queue": self._queue, "fairness_key": share})
            self._tx.run(
                "fairness_key_remove",
                {"queue": self._queue, "fairness_key": share, "lane": fairness_lane(share)},
            )
        self._tx.cache.has_fairness_keys = None

    def _advance(self, steps: Mapping[str, int]) -> None:
        for share, change in steps.items():
            self._tx.run(
                "fairness_key_advance", {"queue": self._queue, "fairness_key": share, "change": change}
            )


class SqliteFairUnpark(FairUnpark[int]):
    """The shares with jobs behind one limit of a queue; heads are the numbers of jobs."""

    def __init__(self, tx: Transaction, queue: QueueName, scope: str) -> None:
        found = tx.queue(queue)
        super().__init__({} if found is None else found.settings.fairness_weights)
        self._tx = tx
        self._lane = {"queue": queue, "scope": scope}
        self._queue = queue
        self._scope = scope

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("limit_fairness_lanes", {**self._lane, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        return {share: self._load_seqs(share, jobs) for share, jobs in counts.items()}

    def _load_seqs(self, key: str, jobs: int) -> list[int]:
        values = {"queue": self._queue, "lane": limit_fairness_lane(self._scope, key), "limit": jobs}
        return [seq for (seq,) in self._tx.all("limit_fairness_candidates", values)]

    def _remove_idle(self, keys: Sequence[str]) -> None:
        for share in keys:
            gate = limit_fairness_lane(self._scope, share)
            self._tx.run("limit_fairness_remove", {**self._lane, "fairness_key": share, "lane": gate})

    def _unpark(self, candidates: Sequence[tuple[str, int]]) -> None:
        seqs: dict[str, list[int]] = {}
        for share, seq in candidates:
            seqs.setdefault(share, []).append(seq)
        for share, some in seqs.items():
            mark_pending(self._tx, self._queue, share, some)

    def _advance(self, steps: Mapping[str, int]) -> None:
        for share, change in steps.items():
            self._tx.run("limit_fairness_advance", {**self._lane, "fairness_key": share, "change": change})
