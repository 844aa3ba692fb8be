"""Rows to jobs, as the columns stand here; the rest is shared by the engines on SQL."""

from __future__ import annotations

from forebay.domain.job import Job
from forebay.stores.shared.rows import STATES, Row, build_job, options_from_text


def job_from_row(row: Row) -> Job:
    """A job from the columns of `job`; live rows lack the last three."""
    lease = (bool(row[16]), *row[17:21])
    head = (*row[:4], STATES[row[4]], *row[5:7])
    return build_job(head, options_from_text(row[7]), (*row[8:16], *lease), row[21:25], row[25], row[26:])
