"""A lease is one attempt at one job."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId
from forebay.domain.lease import Lease, renewal_ms


def test_leases_on_two_attempts_of_a_job_differ() -> None:
    assert Lease(JobId("a"), 1) != Lease(JobId("a"), 2)


def test_leases_can_be_compared_and_put_in_sets() -> None:
    assert {Lease(JobId("a"), 1), Lease(JobId("a"), 1)} == {Lease(JobId("a"), 1)}


@pytest.mark.parametrize(
    ("lease_ms", "interval"), [(3_000, 1_000), (30_000, 10_000), (36_000, 10_000), (86_400_000, 10_000)]
)
def test_a_lease_is_renewed_after_a_third_of_it_and_no_later_than_after_ten_seconds(
    lease_ms: int, interval: int
) -> None:
    assert renewal_ms(lease_ms) == interval
