"""Rows to jobs, as the columns stand here; the rest is shared by the engines on SQL."""

from __future__ import annotations

from typing import Final

from forebay.domain.job import Job, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.stores.rows import PLAIN, STATES, Row, job_of, options_from_text

_RUNNING: Final = JobState.RUNNING


def job_from_row(row: Row) -> Job:
    """A job from the columns of `job`; live rows lack the last three."""
    lease = (bool(row[16]), *row[17:21])
    head = (*row[:4], STATES[row[4]], *row[5:7])
    return job_of(head, options_from_text(row[7]), (*row[8:16], *lease), row[21:25], row[25], row[26:])


def claimed_job(row: Row, worker: WorkerId, now: int) -> Job:
    """A job from the columns that `claim` returns; what the claim itself has set is known here."""
    options = PLAIN if row[6] is None else options_from_text(row[6])
    head = (*row[:4], _RUNNING, *row[4:6])
    middle = (*row[7:11], now, *row[11:14], bool(row[14]), None, worker, now, row[15])
    return job_of(head, options, middle, row[16:20], row[20], ())
