"""A lease that the store gives a second time, because it has forgotten the first: after a failover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.stores.contract.claims_and_results import SettleAndClaimResult
from forebay.stores.contract.store import Store
from forebay.worker.assigned_job import ExecutorKind
from tests.worker.rig import Rig


class Forgetful:
    """A store that gives some jobs again, under the same attempt, in the answer to its next
    settle-and-claim."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.again: Sequence[Job] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def settle_and_claim(self, *args: Any) -> SettleAndClaimResult:
        answer = self._store.settle_and_claim(*args)
        again, self.again = self.again, ()
        return replace(answer, jobs=(*again, *answer.jobs))


@pytest.fixture
def forgetful(rig: Rig) -> Forgetful:
    return Forgetful(rig.store)


@pytest.mark.shows("R-LEASE-21")
def test_an_attempt_that_runs_here_is_not_started_again_and_leaks_no_slot(
    rig: Rig, forgetful: Forgetful
) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator(threads=4, store=cast(Store, forgetful))
    coordinator.tick()
    [one] = rig.threads.begin()
    one.mark_lost()  # the store has refused to renew what it did not know
    one.context.mark_lease_lost()
    forgetful.again = [one.job]

    rig.clock.advance(seconds=1)
    coordinator.tick()

    assert rig.threads.given == [one]
    assert not one.context.is_lease_lost
    assert one.renew_at < float("inf")
    assert (rig.slots.free(ExecutorKind.CALLS), rig.slots.leases()) == (3, [one.lease])
    rig.threads.finish(one)
    coordinator.tick()
    assert (rig.slots.free(ExecutorKind.CALLS), len(rig.slots)) == (4, 0)
    assert rig.job(job).state is JobState.COMPLETED


def test_an_abandoned_attempt_stays_lost_for_its_code(rig: Rig, forgetful: Forgetful) -> None:
    rig.insert(timeout_ms=1_000)
    coordinator = rig.coordinator(threads=4, store=cast(Store, forgetful))
    coordinator.tick()
    [one] = rig.threads.begin()
    for _ in range(2):
        rig.clock.advance(seconds=1)
        coordinator._interruption_policy.check()

    coordinator._start([one.job], rig.clock.monotonic())

    assert one.abandoned_at is not None
    assert one.context.is_lease_lost


def test_an_attempt_that_waits_for_a_thread_is_started_once(rig: Rig, forgetful: Forgetful) -> None:
    rig.insert()
    coordinator = rig.coordinator(threads=4, store=cast(Store, forgetful))
    coordinator.tick()
    [one] = rig.threads.given
    forgetful.again = [one.job]

    rig.insert()
    coordinator.tick()

    assert [given.job.id for given in rig.threads.given].count(one.job.id) == 1
    assert rig.slots.free(ExecutorKind.CALLS) == 2
    rig.finish_all()
    coordinator.tick()
    assert rig.slots.free(ExecutorKind.CALLS) == 4


def test_an_attempt_whose_outcome_is_on_its_way_is_settled_with_that(rig: Rig, forgetful: Forgetful) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator(threads=4, store=cast(Store, forgetful))
    coordinator.tick()
    [one] = rig.threads.begin()
    forgetful.again = [one.job]
    original = forgetful.settle_and_claim

    def end_meanwhile(*args: Any) -> SettleAndClaimResult:
        answer = original(*args)
        rig.threads.finish(one)
        return answer

    forgetful.settle_and_claim = end_meanwhile  # type: ignore[method-assign]
    rig.clock.advance(seconds=1)
    coordinator.tick()
    forgetful.settle_and_claim = original  # type: ignore[method-assign]
    coordinator.tick()

    assert rig.threads.given == [one]
    assert rig.job(job).state is JobState.COMPLETED
    assert rig.slots.free(ExecutorKind.CALLS) == 4
