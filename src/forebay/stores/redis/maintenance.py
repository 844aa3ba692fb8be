"""Forgetting what is past its time, in short steps: a server does one thing at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from forebay.domain.history import AUDIT_RETENTION_MS
from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.worker import COMMAND_RETENTION_MS
from forebay.stores.redis.connection import Connection

WORKER_RETENTION_MS: Final = DAY_MS
# How much one script does. A job goes with its body, its places and its history: some 10 us of the server's.
JOBS_AT_ONCE: Final = 100
QUEUES_AT_ONCE: Final = 50
RECORDS_AT_ONCE: Final = 200
RECORDS_PER_CALL: Final = 1_000
# How many jobs are weighed at once, and how often in one call: a longer history is weighed in several.
WEIGHED_AT_ONCE: Final = 200
WEIGHED_PER_CALL: Final = 50

_STATES: Final = ("completed", "cancelled", "dead")


class RedisPruner:
    """Prunes one namespace. What it has learned about the weight of jobs is used until it knows better."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._walk: Iterator[None] | None = None
        self._fitting: dict[str, int] = {}

    def prune(self, limit: int) -> int:
        """Forget up to `limit` final jobs, and what else has become old; answers how many jobs went."""
        self._weigh()
        names = self._queues()
        gone = 0
        for some in _slices(names):
            gone += self._prune_jobs(some, limit - gone)
        self._prune_records(names)
        return gone

    def make_room(self) -> int:
        """Forget the oldest completed and cancelled jobs whatever their age, the same part of every queue, so
        that a small one does not lose all that it has for a large one; answers how many went."""
        names = self._queues()
        history = ((name, state) for name in names for state in ("completed", "cancelled"))
        counts = self._counts()
        jobs = sum(counts[one] for one in history)
        share = min(1.0, JOBS_AT_ONCE / jobs) if jobs else 0.0
        gone = 0
        for some in _slices(names):
            if gone < JOBS_AT_ONCE:
                gone += self._prune_slice(some, JOBS_AT_ONCE - gone, share)
        return gone

    def _prune_jobs(self, names: Sequence[QueueName], limit: int) -> int:
        gone = 0
        while gone < limit:
            most = min(JOBS_AT_ONCE, limit - gone)
            went = self._prune_slice(names, most)
            gone += went
            if went < most:
                break
        return gone

    def _prune_slice(self, names: Sequence[QueueName], limit: int, fraction: float = 0.0) -> int:
        ask = {
            "queues": names,
            "limit": limit,
            "max_kept": self._connection.address.max_kept,
            "fitting": self._fitting,
            "fraction": fraction,
        }
        return int(self._connection.run("prune", ask))

    def _prune_records(self, names: Sequence[QueueName]) -> None:
        for some in _slices(names):
            self._run_repeatedly("prune_queues", {"queues": some})
        times = {
            "audit_kept_ms": AUDIT_RETENTION_MS,
            "commands_kept_ms": COMMAND_RETENTION_MS,
            "workers_kept_ms": WORKER_RETENTION_MS,
        }
        self._run_repeatedly("prune_records", times)

    def _run_repeatedly(self, script: str, params: dict[str, Any]) -> None:
        for _ in range(0, RECORDS_PER_CALL, RECORDS_AT_ONCE):
            if int(self._connection.run(script, {**params, "limit": RECORDS_AT_ONCE})) < RECORDS_AT_ONCE:
                return

    # Weighing: how many of the last final jobs fit into the bytes that history may take. Nothing adds up
    # sizes when jobs end: that would cost every job, and be wrong for ever after one mistake.

    def _weigh(self) -> None:
        """Take the next steps of a walk through all history, or the first of another one."""
        if not self._connection.address.max_bytes_kept:
            return
        walk = self._walk or self._steps()
        steps = sum(1 for _ in islice(walk, WEIGHED_PER_CALL))
        self._walk = walk if steps == WEIGHED_PER_CALL else None

    def _steps(self) -> Iterator[None]:
        for (name, state), jobs in self._counts().items():
            if jobs and state in _STATES:
                yield from self._weigh_one(name, state)

    def _weigh_one(self, name: QueueName, state: str) -> Iterator[None]:
        fitting, room = 0, self._connection.address.max_bytes_kept
        while True:
            ask = {"queue": name, "state": state, "skip": fitting, "limit": WEIGHED_AT_ONCE, "room": room}
            fit, taken, is_over = self._connection.run("job_sizes", ask)
            fitting, room = fitting + fit, room - taken
            yield
            if is_over or fit < WEIGHED_AT_ONCE:
                break
        self._fitting.pop(f"{state}:{name}", None)
        if is_over:
            self._fitting[f"{state}:{name}"] = fitting

    def _queues(self) -> list[QueueName]:
        return sorted(
            QueueName(name.decode()) for name in self._connection.execute("HKEYS", self._key("queues"))
        )

    def _counts(self) -> Counter[tuple[QueueName, str]]:
        stored = self._connection.execute("HGETALL", self._key("counts"))
        counts: Counter[tuple[QueueName, str]] = Counter()
        for field, jobs in zip(stored[::2], stored[1::2], strict=True):
            name, _, state = field.decode().rpartition(" ")
            counts[QueueName(name), state] = int(jobs)
        return counts

    def _key(self, name: str) -> str:
        return f"{self._connection.address.tag}:{name}"


def _slices(names: Sequence[QueueName]) -> Iterator[Sequence[QueueName]]:
    for first in range(0, len(names), QUEUES_AT_ONCE):
        yield names[first : first + QUEUES_AT_ONCE]
