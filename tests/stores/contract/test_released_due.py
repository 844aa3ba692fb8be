"""When a job that is released in a settle-and-claim is due."""

from __future__ import annotations

import pytest

from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import OnFailure
from forebay.domain.job_states import JobState
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, W1
from tests.stores.support import new_job


@pytest.mark.parametrize("room", [0, 5])
def test_a_settle_and_claim_knows_when_the_job_is_due_that_an_expiry_in_it_releases(
    store: Store, reader: Reader, clock: ManualClock, room: int
) -> None:
    [parent] = store.insert([new_job(delay_ms=1, expires_at=clock.now_ms())])
    assert parent.id is not None
    [child] = store.insert([new_job(depends_on=dependencies_of([parent.id], OnFailure.IGNORE), delay_ms=50)])
    assert child.id is not None

    answer = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 5)], room=room)

    assert answer.next_due_ms == 50
    [job] = reader.jobs([child.id])
    assert job is not None
    assert job.state is JobState.SCHEDULED
