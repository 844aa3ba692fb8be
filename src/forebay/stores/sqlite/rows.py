"""Rows of this engine's job columns to jobs; the rest is shared with the other SQL engine."""

from __future__ import annotations

from forebay.domain.job import Job
from forebay.stores.shared.rows import STATES, Row, build_job, options_from_text


def job_from_row(row: Row) -> Job:
    """Return a job from the columns of `job`; rows of live jobs lack the last three."""
    lease = (bool(row[16]), *row[17:21])
    identity = (*row[:4], STATES[row[4]], *row[5:7])
    return build_job(identity, options_from_text(row[7]), (*row[8:16], *lease), row[21:25], row[25], row[26:])
