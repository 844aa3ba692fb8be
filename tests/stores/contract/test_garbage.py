"""Calls of the store leave no reference cycles.

The garbage collector looks at objects that have lived for some seconds only when a quarter as many new ones
have come. A cycle keeps the answers of the server until then, and the memory of the process grows in steps.
"""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed, Failed
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cycles import cycles_after
from tests.stores.contract.steps import BOOM, DEFAULT, W1, ended, put, put_many, states


@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("keys", [{}, {FAIRNESS: "a"}])
def test_inserts_claims_and_settlements_leave_no_cycles(
    store: Store, reader: Reader, keys: dict[str, Any], is_limited: bool
) -> None:
    store.save_queue(DEFAULT, {"enqueue_rate": 1_000})
    if is_limited:
        store.save_limit(Limit(scope=key_scope("customer"), concurrency=1))

    def work() -> None:
        ids = put_many(store, 3, limit_keys={"customer": "7", **keys})
        child = put(store, depends_on=dependencies_of(ids))
        for _ in range(12):
            jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 5)], room=5).jobs
            outcomes = [Completed() if job.failures else Failed(BOOM, 0) for job in jobs]
            store.settle_and_claim(W1, [ended(job, how) for job, how in zip(jobs, outcomes, strict=True)])
        assert states(reader, [child]) == [JobState.COMPLETED]

    assert cycles_after(work) == set()


def test_closed_handles_leave_no_cycles(engine: Engine) -> None:
    def work() -> None:
        store, reader = engine.store(), engine.reader()
        put(store)
        assert reader.counts()
        store.close()
        reader.close()

    assert cycles_after(work) == set()
