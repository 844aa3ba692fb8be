"""Heaps of jobs, each ordered by one number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from forebay.domain.job import Job, JobId, WorkerId
from forebay.domain.rank import QueueRank, Scoring, effective_priority

_SLACK: Final = 64


class StoredJob(NamedTuple):
    """Job with values that only the engine knows: the worker that its lease was swept from, and the serial
    number of its end."""

    job: Job
    rescore_at: int | None = None
    swept_from: WorkerId | None = None
    end_number: int = 0


HeapKey = Callable[[StoredJob], int | None]


class JobHeap:
    """Heap by (key, seq). Entries are never taken out early. An entry whose job has another key by now, or
    none, is dropped when it comes first: so a change of a job costs O(log n), and undoing it needs no
    care."""

    def __init__(self, jobs: Mapping[JobId, StoredJob], key: HeapKey) -> None:
        self._jobs = jobs
        self._key = key
        self._heap: list[tuple[int, int, JobId]] = []

    def add(self, record: StoredJob, old: StoredJob | None) -> None:
        """Add the entry of a changed job; `old` is the job before the change."""
        entry = self._build_entry(record)
        if entry is None or (old is not None and self._build_entry(old) == entry):
            return
        heappush(self._heap, entry)
        # Outdated entries far from the head come first late or never; this bounds their number.
        if len(self._heap) > 2 * len(self._jobs) + _SLACK:
            self._heap = [entry for entry in set(self._heap) if self._find_current(entry) is not None]
            heapify(self._heap)

    def first(self, fits: Callable[[StoredJob], bool] = lambda _: True) -> StoredJob | None:
        """Return the first job that fits. It stays in the heap, and so do those passed over."""
        skipped = []
        first = None
        while self._heap and first is None:
            record = self._find_current(self._heap[0])
            if record is not None and fits(record):
                first = record
            elif record is not None:
                skipped.append(heappop(self._heap))
            else:
                heappop(self._heap)
        for entry in skipped:
            heappush(self._heap, entry)
        return first

    def find_missing(self, records: Iterable[StoredJob]) -> list[StoredJob]:
        """Return which of these jobs belong into the heap and are missing."""
        known = {None, *self._heap}
        return [record for record in records if self._build_entry(record) not in known]

    def _build_entry(self, record: StoredJob) -> tuple[int, int, JobId] | None:
        key = self._key(record)
        return None if key is None else (key, record.job.seq, record.job.id)

    def _find_current(self, entry: tuple[int, int, JobId]) -> StoredJob | None:
        record = self._jobs.get(entry[2])
        return record if record is not None and self._build_entry(record) == entry else None


def claim_order(scoring: Scoring, job: Job, now: int) -> tuple[int, int]:
    """Return the sort key of a pending job among those of its queue: lowest first."""
    return -effective_priority(scoring, QueueRank(job.age_capped, job.rank, None), now), job.seq


def is_in_time(job: Job, now: int) -> bool:
    """Return whether a waiting job may still be started."""
    return job.expires_at is None or job.expires_at > now
