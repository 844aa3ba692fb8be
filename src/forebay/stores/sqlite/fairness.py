"""Fairness keys with waiting jobs: their virtual times, and the jobs that a claim may take of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forebay.domain.fairness import FairnessKey, fairness_lane, virtual_time_step
from forebay.domain.job import QueueName
from forebay.domain.lane import limit_fairness_lane
from forebay.stores.shared.fairness import FairClaim, FairUnpark
from forebay.stores.shared.rows import Row, json_text
from forebay.stores.sqlite.transaction import Transaction


def mark_pending(tx: Transaction, queue: QueueName, key: str | None, seqs: Sequence[int]) -> None:
    """Move jobs that have become pending to the lane of their fairness key, and add the key if it is new."""
    if key is None:
        return
    weights = tx.get_or_create_queue(queue).settings.fairness_weights
    tx.run("fairness_lane_put", {"lane": fairness_lane(key), "seqs": json_text(seqs)})
    # Only where there are limits a key can have lanes that keep its virtual time.
    values = {"queue": queue, "fairness_key": key, "step": virtual_time_step(weights, key)}
    tx.run("fairness_key_resume" if tx.has_limits else "fairness_key_join", values)
    tx.cache.has_fairness_keys = None


def join_limit_lane(tx: Transaction, queue: QueueName, scope: str, key: str) -> None:
    """Add the lane of this fairness key at the limit of a scope."""
    weights = tx.get_or_create_queue(queue).settings.fairness_weights
    tx.run(
        "limit_fairness_join",
        {"queue": queue, "scope": scope, "fairness_key": key, "step": virtual_time_step(weights, key)},
    )


def prune(tx: Transaction) -> None:
    """Remove fairness keys without jobs, of queues that no worker claims from."""
    tx.run("fairness_keys_prune", {})


class SqliteFairClaim(FairClaim[Row]):
    """Fairness keys of a queue. Candidates are rows of `candidates`; `load_lane` loads those of a lane."""

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
        return {key: self._load_lane(fairness_lane(key), jobs) for key, jobs in counts.items()}

    def _remove_idle(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._tx.has_limits:
                self._tx.run("limit_fairness_keep_time", {"queue": self._queue, "fairness_key": key})
            self._tx.run(
                "fairness_key_remove",
                {"queue": self._queue, "fairness_key": key, "lane": fairness_lane(key)},
            )
        self._tx.cache.has_fairness_keys = None

    def _advance(self, steps: Mapping[str, int]) -> None:
        for key, change in steps.items():
            self._tx.run(
                "fairness_key_advance", {"queue": self._queue, "fairness_key": key, "change": change}
            )


class SqliteFairUnpark(FairUnpark[int]):
    """Fairness keys with jobs parked at one limit of a queue. Candidates are seqs of jobs."""

    def __init__(self, tx: Transaction, queue: QueueName, scope: str) -> None:
        known_queue = tx.queue(queue)
        super().__init__({} if known_queue is None else known_queue.settings.fairness_weights)
        self._tx = tx
        self._lane = {"queue": queue, "scope": scope}
        self._queue = queue
        self._scope = scope

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("limit_fairness_lanes", {**self._lane, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[int]]:
        return {key: self._load_seqs(key, jobs) for key, jobs in counts.items()}

    def _load_seqs(self, key: str, jobs: int) -> list[int]:
        values = {"queue": self._queue, "lane": limit_fairness_lane(self._scope, key), "limit": jobs}
        return [seq for (seq,) in self._tx.all("limit_fairness_candidates", values)]

    def _remove_idle(self, keys: Sequence[str]) -> None:
        for key in keys:
            lane = limit_fairness_lane(self._scope, key)
            self._tx.run("limit_fairness_remove", {**self._lane, "fairness_key": key, "lane": lane})

    def _unpark(self, candidates: Sequence[tuple[str, int]]) -> None:
        seqs: dict[str, list[int]] = {}
        for key, seq in candidates:
            seqs.setdefault(key, []).append(seq)
        for key, seqs_of_key in seqs.items():
            mark_pending(self._tx, self._queue, key, seqs_of_key)

    def _advance(self, steps: Mapping[str, int]) -> None:
        for key, change in steps.items():
            self._tx.run("limit_fairness_advance", {**self._lane, "fairness_key": key, "change": change})
