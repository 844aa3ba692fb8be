"""The right to run one attempt."""

from __future__ import annotations

from typing import NamedTuple

from forebay.domain.job import JobId


class Lease(NamedTuple):
    """One attempt at one job. With the worker's id it is the fencing token of every write."""

    job_id: JobId
    attempt: int
