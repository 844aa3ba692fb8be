"""Pruning of a namespace, in short steps: a server runs one script at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_history import AUDIT_RETENTION_MS
from forebay.domain.worker_command import COMMAND_RETENTION_MS
from forebay.stores.redis.connection import Connection

WORKER_RETENTION_MS: Final = DAY_MS
# Size of one step. Removing a job with its body, indexes and history takes the server some 10 us.
JOBS_AT_ONCE: Final = 100
QUEUES_AT_ONCE: Final = 50
RECORDS_AT_ONCE: Final = 200
RECORDS_PER_CALL: Final = 1_000
# Jobs measured by one script, and scripts in one call: a longer history is measured in several calls.
MEASURED_AT_ONCE: Final = 200
MEASURED_PER_CALL: Final = 50

_STATES: Final = ("completed", "cancelled", "dead")


class RedisPruner:
    """Pruner of one namespace. It uses the measured sizes of jobs until the next measurement is complete."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._scan: Iterator[None] | None = None
        self._fitting: dict[str, int] = {}

    def prune(self, limit: int) -> int:
        """Remove up to `limit` final jobs and other old records; return the number of jobs removed."""
        self._measure()
        names = self._queues()
        removed = 0
        for part in _slices(names):
            removed += self._prune_jobs(part, limit - removed)
        self._prune_records(names)
        return removed

    def make_room(self) -> int:
        """Remove the oldest completed and cancelled jobs whatever their age; return their number.

        Every queue loses the same fraction, so that a small queue is not emptied for a large one."""
        names = self._queues()
        entries = ((name, state) for name in names for state in ("completed", "cancelled"))
        counts = self._counts()
        jobs = sum(counts[entry] for entry in entries)
        fraction = min(1.0, JOBS_AT_ONCE / jobs) if jobs else 0.0
        removed = 0
        for part in _slices(names):
            if removed < JOBS_AT_ONCE:
                removed += self._prune_slice(part, JOBS_AT_ONCE - removed, fraction)
        return removed

    def _prune_jobs(self, names: Sequence[QueueName], limit: int) -> int:
        removed = 0
        while removed < limit:
            step = min(JOBS_AT_ONCE, limit - removed)
            pruned = self._prune_slice(names, step)
            removed += pruned
            if pruned < step:
                break
        return removed

    def _prune_slice(self, names: Sequence[QueueName], limit: int, fraction: float = 0.0) -> int:
        params = {
            "queues": names,
            "limit": limit,
            "max_finished": self._connection.address.max_finished,
            "fitting": self._fitting,
            "fraction": fraction,
        }
        return int(self._connection.run("prune", params))

    def _prune_records(self, names: Sequence[QueueName]) -> None:
        for part in _slices(names):
            self._run_repeatedly("prune_queues", {"queues": part})
        params = {
            "audit_retention_ms": AUDIT_RETENTION_MS,
            "commands_retention_ms": COMMAND_RETENTION_MS,
            "workers_retention_ms": WORKER_RETENTION_MS,
        }
        self._run_repeatedly("prune_records", params)

    def _run_repeatedly(self, script: str, params: dict[str, Any]) -> None:
        for _ in range(0, RECORDS_PER_CALL, RECORDS_AT_ONCE):
            if int(self._connection.run(script, {**params, "limit": RECORDS_AT_ONCE})) < RECORDS_AT_ONCE:
                return

    # Measuring: how many of the last final jobs fit into the bytes that history may take. Sizes are not added
    # up when jobs end: that would cost every job, and stay wrong after one mistake.

    def _measure(self) -> None:
        """Take the next steps of a scan of all history, or the first steps of a new scan."""
        if not self._connection.address.max_finished_bytes:
            return
        scan = self._scan or self._measure_all()
        steps = sum(1 for _ in islice(scan, MEASURED_PER_CALL))
        self._scan = scan if steps == MEASURED_PER_CALL else None

    def _measure_all(self) -> Iterator[None]:
        for (name, state), jobs in self._counts().items():
            if jobs and state in _STATES:
                yield from self._measure_state(name, state)

    def _measure_state(self, name: QueueName, state: str) -> Iterator[None]:
        fitting, room = 0, self._connection.address.max_finished_bytes
        while True:
            params = {"queue": name, "state": state, "skip": fitting, "limit": MEASURED_AT_ONCE, "room": room}
            fits, size, is_full = self._connection.run("job_sizes", params)
            fitting, room = fitting + fits, room - size
            yield
            if is_full or fits < MEASURED_AT_ONCE:
                break
        self._fitting.pop(f"{state}:{name}", None)
        if is_full:
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
