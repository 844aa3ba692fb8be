"""Weighted fair queueing: fairness keys, their virtual times and their lanes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from forebay.domain.fairness import (
    VIRTUAL_TIME_STEP,
    FairnessKey,
    fairness_key_of,
    fairness_lane,
    virtual_time_step,
)
from forebay.domain.job import QueueName
from forebay.domain.lane import limit_fairness_lane
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.shared.fairness import FairClaim, FairUnpark
from forebay.stores.shared.rows import Row


def mark_pending(tx: Transaction, jobs: Iterable[tuple[str, str | None]]) -> None:
    """Record the fairness keys of jobs that have become pending, given as (queue, fairness key)."""
    pairs = sorted({(queue, key) for queue, key in jobs if key is not None})
    if pairs:
        queues, keys = zip(*pairs, strict=True)
        tx.run("fairness_keys_add", {"queues": list(queues), "fairness_keys": list(keys)})
        tx.fair_queues.update(queues)  # a claim of this transaction includes them


def lock_fairness_keys(tx: Transaction, queues: Collection[str]) -> None:
    """Take the fairness locks of these queues, in the order of their names; a held lock is taken again."""
    tx.run("fairness_lock", {"queues": sorted(queues)})


def join_fairness_keys(tx: Transaction, queues: Collection[str]) -> None:
    """Take the fairness locks of these queues, and give new fairness keys their virtual times.

    The virtual times are set in a later statement than the lock, since claims committed meanwhile have
    advanced the others.
    """
    names = sorted(queue for queue in queues if queue in tx.fair_queues)
    if not names:
        return
    weighted = [(queue, key) for queue in names for key in _weights(tx, queue)]
    lock_fairness_keys(tx, names)
    values = {
        "names": names,
        "queues": [queue for queue, _ in weighted],
        "fairness_keys": [key for _, key in weighted],
        "steps": [virtual_time_step(_weights(tx, queue), key) for queue, key in weighted],
        "step": VIRTUAL_TIME_STEP,
    }
    tx.run("fairness_keys_join", values)


def join_limit_lanes(tx: Transaction, queue: QueueName, lanes: Iterable[tuple[str, str]]) -> None:
    """Record fairness keys with jobs at limits, given as (scope, key), under the fairness lock."""
    pairs = sorted(set(lanes))
    if pairs:
        scopes, keys = zip(*pairs, strict=True)
        steps = [virtual_time_step(_weights(tx, queue), key) for key in keys]
        tx.run(
            "limit_fairness_join",
            {"queue": queue, "scopes": list(scopes), "fairness_keys": list(keys), "steps": steps},
        )


def _weights(tx: Transaction, name: str) -> Mapping[str, int]:
    queue = tx.queue(name)
    return {} if queue is None else queue.settings.fairness_weights


class PostgresFairClaim(FairClaim[Row]):
    """Fairness keys of a queue under its fairness lock; candidates are rows of `fairness_candidates`."""

    def __init__(self, tx: Transaction, queue: QueueName, cap_ms: int, max_payload: int) -> None:
        super().__init__(_weights(tx, queue))
        self._max_payload = max_payload
        self._tx = tx
        self._queue = queue
        self._cap_ms = cap_ms

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("fairness_keys", {"queue": self._queue, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[Row]]:
        values = {
            "queue": self._queue,
            "cap_ms": self._cap_ms,
            "max_payload": self._max_payload,
            "lanes": [fairness_lane(key) for key in counts],
            "rooms": list(counts.values()),
        }
        rows = self._tx.all("fairness_candidates", values)
        return {
            fairness_key_of(lane): list(candidates)
            for lane, candidates in groupby(rows, key=lambda row: str(row[2]))
        }

    def _remove_idle(self, keys: Sequence[str]) -> None:
        self._tx.run("fairness_keys_remove", {"queue": self._queue, "fairness_keys": list(keys)})

    def _advance(self, steps: Mapping[str, int]) -> None:
        self._tx.run(
            "fairness_keys_advance",
            {"queue": self._queue, "fairness_keys": list(steps), "steps": list(steps.values())},
        )


class PostgresFairUnpark(FairUnpark[str]):
    """Fairness keys with jobs behind one limit, under the fairness lock; candidates are ctids."""

    def __init__(self, tx: Transaction, queue: QueueName, scope: str) -> None:
        super().__init__(_weights(tx, queue))
        self._tx = tx
        self._lane = {"queue": queue, "scope": scope}
        self._queue = queue
        self._scope = scope

    def _load_keys(self, limit: int) -> list[FairnessKey]:
        return [
            FairnessKey(*row) for row in self._tx.all("limit_fairness_lanes", {**self._lane, "limit": limit})
        ]

    def _load_candidates(self, counts: Mapping[str, int]) -> Mapping[str, Sequence[str]]:
        keys = {limit_fairness_lane(self._scope, key): key for key in counts}
        values = {"queue": self._queue, "lanes": list(keys), "rooms": list(counts.values())}
        found: dict[str, list[str]] = {}
        for ctid, lane in self._tx.all("limit_fairness_candidates", values):
            found.setdefault(keys[lane], []).append(ctid)
        return found

    def _remove_idle(self, keys: Sequence[str]) -> None:
        self._tx.run("limit_fairness_remove", {**self._lane, "fairness_keys": list(keys)})

    def _unpark(self, candidates: Sequence[tuple[str, str]]) -> None:
        ctids = [ctid for _, ctid in candidates]
        self._tx.unparked.append(self._tx.run("limit_fairness_unpark", {"ctids": ctids}))
        mark_pending(self._tx, ((self._queue, key) for key, _ in candidates))

    def _advance(self, steps: Mapping[str, int]) -> None:
        self._tx.run(
            "limit_fairness_advance",
            {**self._lane, "fairness_keys": list(steps), "steps": list(steps.values())},
        )
