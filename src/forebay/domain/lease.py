"""Lease: the right to run one attempt."""

from __future__ import annotations

from typing import Final, NamedTuple

from forebay.domain.job import JobId

# Workers renew no later than this, however long the lease is. After a step of the store's clock, sweepers
# leave leases alone for that long: a lease with rarer renewals could be taken from a living worker.
LONGEST_RENEWAL_MS: Final = 10_000


class Lease(NamedTuple):
    """One attempt at one job. With the worker's id it is the fencing token of every write."""

    job_id: JobId
    attempt: int


def renewal_ms(lease_ms: float) -> float:
    """Return the time between two renewals: a third of the lease, and at most ten seconds."""
    return min(lease_ms / 3, LONGEST_RENEWAL_MS)
