"""Rows to jobs, as the columns stand here; the rest is shared by the engines on SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forebay.domain.job import Job, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.stores.rows import STATES, Row, job_of, json_text, options_from_text

_RUNNING: Final = JobState.RUNNING


def job_from_row(row: Row) -> Job:
    """A job from the columns of `job`; live rows lack the last three."""
    head = (*row[:4], STATES[row[4]], *row[5:7])
    return job_of(head, options_from_text(row[7]), row[8:21], row[21:25], row[25], row[26:])


def claimed_job(
    row: Sequence[Any], worker: WorkerId, now: int, wanted_lease_ms: int | None, queue_lease_ms: int
) -> Job:
    """A job from the columns that `heads` returns, as it is once this worker has claimed it."""
    options = options_from_text(row[6])
    lease_ms = wanted_lease_ms or options.lease_ms or queue_lease_ms
    head = (*row[:4], _RUNNING, *row[4:6])
    attempt, failures, crashes, created_at, ready_at, run_at, rank, capped = row[7:15]
    times = (created_at, now, ready_at, run_at)
    middle = (attempt + 1, failures, crashes, *times, rank, capped, None, worker, now, now + lease_ms)
    return job_of(head, options, middle, (*row[15:18], None), row[18], ())


def options_text_with(text: str | None, metadata: dict[str, Any]) -> str:
    """Stored settings with other metadata; what else is there stays, it may come from a newer program."""
    try:
        options = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        options = {}
    return json_text({**options, "metadata": metadata})
