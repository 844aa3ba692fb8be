"""Graphs of many jobs and of many kinds: each of them waits, and begins to, as it would alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from forebay.domain.dependencies import PROPAGATION_BATCH
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.domain.job_states import JobState
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DAY,
    HOUR,
    MAIL,
    MINUTE,
    SECOND,
    T0,
    W1,
    claimed,
    look,
    put,
    put_many,
    states,
)
from tests.stores.contract.test_workflows import after, run
from tests.stores.support import claim, complete, new_job

ODD: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "priority": {"priority": 7},
    "queue": {"queue": MAIL},
    "share": {"limit_keys": {"fairness": "acme"}},
    "delay": {"delay_ms": DAY},
    "deadline": {"deadline_at": T0 + 5 * MINUTE},
    "expiry": {"expires_at": T0 + HOUR},
    "tags": {"tags": ("red",)},
}
MANY: Final = 3 * PROPAGATION_BATCH


@pytest.mark.shows("R-DEP-11")
@pytest.mark.parametrize("odd", ODD)
def test_each_of_many_children_begins_to_wait_as_it_would_alone(
    store: Store, reader: Reader, clock: ManualClock, odd: str
) -> None:
    many, few = put(store, id=JobId("many")), put(store, id=JobId("few"))
    ids = [JobId(f"{number:04}") for number in range(MANY)]
    odd_ones = {*ids[99::100], *ids[-PROPAGATION_BATCH - 100 :]}  # some among others, and many that are alike
    store.insert(
        [new_job(id=each, depends_on=after(many), **(ODD[odd] if each in odd_ones else {})) for each in ids]
    )
    plain, alone = put(store, depends_on=after(few)), put(store, depends_on=after(few), **ODD[odd])
    clock.advance(ms=SECOND)

    run(store, many, few)
    while store.promote():
        pass

    as_plain, as_alone = places(reader, [plain, alone])
    assert places(reader, ids) == [as_alone if each in odd_ones else as_plain for each in ids]
    assert reader.health().problems == ()


def places(reader: Reader, ids: Sequence[JobId]) -> list[tuple[object, ...]]:
    return [
        (job.state, job.queue, job.lane, job.rank, job.age_capped, job.ready_at, job.run_at, job.expires_at)
        for job in reader.jobs(ids)
        if job is not None
    ]


@pytest.mark.shows("R-DEP-11")
def test_those_of_many_children_that_wait_for_others_besides_stay_blocked(
    store: Store, reader: Reader
) -> None:
    many, other = put(store, id=JobId("many")), put(store, queue=QueueName("other"))
    put_many(store, MANY - 2, depends_on=after(many))
    # Of the first lot, and of the last.
    joins = [put(store, id=JobId(name), depends_on=after(many, other)) for name in ("0", "z")]

    run(store, many)
    while store.promote():
        pass

    assert [look(reader, join).state for join in joins] == [JobState.BLOCKED] * 2
    assert reader.health().problems == ()
    assert len(claimed(store, 2 * MANY)) == MANY - 2


def stored_first(store: Store) -> list[NewJob]:
    before = put(store)
    return [new_job(depends_on=after(before)), new_job(), new_job(), new_job(depends_on=after(1))]


def stored_last(store: Store) -> list[NewJob]:
    before = put(store)
    return [new_job(), new_job(depends_on=after(1)), *[new_job(depends_on=after(before))] * 2]


def in_sequence(store: Store) -> list[NewJob]:
    return [new_job(), new_job(depends_on=after(1)), *[new_job(sequence="s")] * 3]


@pytest.mark.shows("R-DEP-11")
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("mixed", [stored_first, stored_last, in_sequence])
def test_jobs_of_one_call_may_wait_for_each_other_for_stored_ones_and_for_their_turns(
    store: Store, reader: Reader, mixed: Callable[[Store], list[NewJob]], atomic: bool
) -> None:
    jobs = mixed(store)
    receipts = store.insert(jobs, atomic=atomic)
    assert [receipt.error for receipt in receipts] == [None] * len(jobs)

    ended = 0
    while waiting := claim(store, 9):
        store.settle_and_claim(W1, [complete(job) for job in waiting])
        ended += len(waiting)

    assert set(states(reader, ids_of(receipts))) == {JobState.COMPLETED}
    assert ended >= len(jobs)
    assert reader.health().problems == ()


def ids_of(receipts: Sequence[InsertResult]) -> list[JobId]:
    return [receipt.id for receipt in receipts if receipt.id is not None]
