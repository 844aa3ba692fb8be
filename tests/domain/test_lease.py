"""A lease is one attempt at one job."""

from __future__ import annotations

from forebay.domain.job import JobId
from forebay.domain.lease import Lease


def test_leases_on_two_attempts_of_a_job_differ() -> None:
    assert Lease(JobId("a"), 1) != Lease(JobId("a"), 2)


def test_leases_can_be_compared_and_put_in_sets() -> None:
    assert {Lease(JobId("a"), 1), Lease(JobId("a"), 1)} == {Lease(JobId("a"), 1)}
