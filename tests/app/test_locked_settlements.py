"""A settlement or a progress update that needs what another transaction holds is left undone, and nothing
else is."""

from __future__ import annotations

import pytest

from forebay.domain.job import DEFAULT_QUEUE, Job
from forebay.domain.lease import Lease
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.app.watched_store import Held
from tests.operations.test_settlement_isolation import lines, running, settle_and_claim, states, update_of
from tests.stores.support import complete


def lease_of(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def test_a_progress_update_that_meets_a_lock_is_left_undone_and_so_is_the_settlement_of_its_lease(
    store: Store, reader: Reader
) -> None:
    jobs = running(store, 3)
    held = Held(store)
    held.leases = {lease_of(jobs[1])}
    updates = [update_of(job) for job in jobs]

    answer = settle_and_claim(held.contract, jobs, [complete(job) for job in jobs[:2]], updates=updates)

    assert (answer.settled, answer.refused_updates, answer.busy) == ((jobs[0].id,), (), (lease_of(jobs[1]),))
    assert [lines(reader, job) for job in jobs] == [["hi"], [], ["hi"]]
    assert states(reader, jobs) == ["completed", "running", "running"]


def test_a_lease_whose_progress_update_meets_a_lock_is_not_recovered(store: Store) -> None:
    jobs = running(store, 2)
    held = Held(store)
    held.leases = {lease_of(jobs[0])}

    answer = settle_and_claim(
        held.contract, jobs, [complete(jobs[0])], known=[], updates=[update_of(jobs[0])]
    )

    assert [job.id for job in answer.recovered] == [jobs[1].id]


@pytest.mark.parametrize("has_settlement", [True, False])
def test_a_claim_that_meets_a_lock_after_something_was_written_does_not_say_that_nothing_has_happened(
    store: Store, reader: Reader, has_settlement: bool
) -> None:
    jobs = running(store, 2)
    held = Held(store)
    held.is_claim_held = True
    ends = [complete(jobs[0])] if has_settlement else []

    with pytest.raises(StoreUnavailable) as raised:
        settle_and_claim(
            held.contract,
            jobs,
            ends,
            claims=[QueueClaim(DEFAULT_QUEUE, 1)],
            room=1,
            updates=[update_of(jobs[0])],
        )

    assert type(raised.value) is StoreUnavailable
    assert lines(reader, jobs[0]) == ["hi"]


def test_a_single_settlement_that_meets_a_lock_is_offered_once(store: Store) -> None:
    [job] = running(store, 1)
    held = Held(store)
    held.leases = {lease_of(job)}

    answer = settle_and_claim(held.contract, [job], [complete(job)])

    assert answer == SettleAndClaimResult(busy=(lease_of(job),))
    assert held.calls == ["settle_and_claim"]
