"""Run numbers: attempts that were claimed and never began do not count as runs."""

from __future__ import annotations

import pytest

from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lane import task_lane
from forebay.domain.outcome import Completed, Discarded, Failed, Interrupted, Lost, Outcome, Parked, Snoozed
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    BOOM,
    DEFAULT,
    HOUR,
    SWEEPER,
    UNKNOWN,
    W1,
    W2,
    ended,
    look,
    put,
    put_many,
    record,
    settle,
    start,
    started,
)
from tests.stores.support import new_job

LANE = task_lane(new_job().task)
HANDED_BACK = Interrupted(started=False)
UNSTARTED: list[Outcome] = [HANDED_BACK, Parked(LANE, "not here"), Lost("died", started=False)]
BEGUN: list[Outcome] = [Failed(BOOM, 0), Snoozed(0), Interrupted(), Lost("died"), Parked(LANE, started=True)]


def numbers(job: Job) -> tuple[int, int]:
    return job.attempt, job.run_number


def claim(store: Store) -> Job:
    """Claim the one job, wherever it waits."""
    [job] = store.settle_and_claim(W2, claims=[QueueClaim(DEFAULT, 1, lanes=frozenset({LANE}))], room=1).jobs
    return job


def hand_back(store: Store, times: int = 1) -> None:
    """Claim the one job and hand it back unstarted, so many times."""
    for _ in range(times):
        settle(store, start(store), HANDED_BACK)


@pytest.mark.parametrize("outcome", UNSTARTED)
def test_an_attempt_that_did_not_begin_has_no_run_number(
    store: Store, reader: Reader, outcome: Outcome
) -> None:
    job = started(store)
    assert numbers(job) == (1, 1)

    settle(store, job, outcome)

    assert numbers(look(reader, job.id)) == (1, 0)
    again = claim(store)
    assert numbers(again) == numbers(look(reader, job.id)) == (2, 1)


@pytest.mark.parametrize("outcome", BEGUN)
def test_an_attempt_that_has_begun_counts_as_a_run(store: Store, reader: Reader, outcome: Outcome) -> None:
    job = started(store)

    settle(store, job, outcome)

    assert numbers(look(reader, job.id)) == (1, 1)
    assert numbers(claim(store)) == (2, 2)


def test_unstarted_attempts_add_up_and_later_ends_keep_their_count(store: Store, reader: Reader) -> None:
    job_id = put(store)
    hand_back(store, 2)
    settle(store, start(store), Failed(BOOM, 0))
    hand_back(store)
    last = start(store)
    assert numbers(last) == (5, 2)

    settle(store, last, Completed(b"1"))

    done = look(reader, job_id)
    assert (done.state, numbers(done)) == (JobState.COMPLETED, (5, 2))


def test_a_repeated_hand_back_counts_once(store: Store, reader: Reader) -> None:
    job = started(store)

    answers = [settle(store, job, HANDED_BACK) for _ in range(2)]

    assert [answer.repeated for answer in answers] == [(), (job.id,)]
    assert numbers(look(reader, job.id)) == (1, 0)


def test_a_hand_back_by_another_worker_changes_no_run_number(store: Store, reader: Reader) -> None:
    job = started(store)

    assert settle(store, job, HANDED_BACK, W2).refused

    assert numbers(look(reader, job.id)) == (1, 1)


def test_jobs_that_go_back_together_count_each_for_itself(store: Store, reader: Reader) -> None:
    ids = put_many(store, 3)
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 3)], room=3).jobs
    outcomes: list[Outcome] = [HANDED_BACK, Completed(b"1"), HANDED_BACK]

    store.settle_and_claim(W1, [ended(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])

    assert [numbers(look(reader, job.id)) for job in jobs] == [(1, 0), (1, 1), (1, 0)]
    assert {job.id for job in jobs} == set(ids)


def test_a_job_that_goes_back_and_is_claimed_in_one_call_has_its_new_run_number(store: Store) -> None:
    job = started(store)

    answer = store.settle_and_claim(W1, [ended(job, HANDED_BACK)], [QueueClaim(DEFAULT, 1)], room=1)

    assert [numbers(one) for one in answer.jobs] == [(2, 1)]


def test_a_cancelled_job_that_never_began_has_no_run(store: Store, reader: Reader) -> None:
    job = started(store)
    store.cancel([job.id], "not needed")

    settle(store, job, HANDED_BACK)

    cancelled = look(reader, job.id)
    assert (cancelled.state, numbers(cancelled)) == (JobState.CANCELLED, (1, 0))


def test_a_sweeper_that_does_not_know_better_counts_the_attempt_as_a_run(
    store: Store, clock: ManualClock
) -> None:
    put(store)
    hand_back(store)
    start(store)
    clock.advance(ms=HOUR)

    [swept] = store.sweep(SWEEPER)
    assert numbers(swept) == (2, 1)
    settle(store, swept, Lost("its worker died"), SWEEPER)

    assert numbers(start(store)) == (3, 2)


def test_a_lease_that_is_found_again_has_its_run_number(store: Store) -> None:
    put(store)
    hand_back(store)
    start(store)

    [found] = store.settle_and_claim(W1, known=[]).recovered

    assert numbers(found) == (2, 1)


def test_what_a_job_was_given_survives_the_count(store: Store, reader: Reader) -> None:
    job_id = put(store, metadata={"a": "\x00", "unstarted": 7}, tags=("t",), cost=2, timeout_ms=None)
    before = record(reader, job_id)
    assert before is not None
    given = ("metadata", "tags", "cost", "timeout_ms", "policy", "limit_keys", "correlation_id")

    hand_back(store, 2)

    after = record(reader, job_id)
    assert after is not None
    assert {name: after[name] for name in given} == {name: before[name] for name in given}
    assert after["unstarted"] == 2


def test_new_metadata_and_the_count_leave_each_other_alone(store: Store, reader: Reader) -> None:
    job_id = put(store)
    hand_back(store)
    store.update_job(job_id, JobUpdate(metadata={"while": "waiting"}))
    job = start(store)
    store.update_job(job_id, JobUpdate(metadata={"then": "running"}))

    settle(store, job, HANDED_BACK)

    after = look(reader, job_id)
    assert (after.metadata, numbers(after)) == ({"while": "waiting", "then": "running"}, (2, 0))


def test_a_revived_job_goes_on_counting_its_runs(store: Store) -> None:
    job_id = put(store)
    hand_back(store)
    settle(store, start(store), Discarded(BOOM))

    store.revive([job_id])

    assert numbers(start(store)) == (3, 2)


def moved(source: Engine, target: Engine, outcome: Outcome | None) -> tuple[Job, Job]:
    """A job that was handed back once, may have ended then, and moves: as it was and as it is."""
    store, reader, new_store, new_reader = source.store(), source.reader(), target.store(), target.reader()
    job_id = put(store)
    hand_back(store)
    if outcome is not None:
        settle(store, start(store), outcome)
    [whole] = reader.export_jobs([job_id])
    assert whole is not None
    assert new_store.import_jobs([whole]) == [True]
    after = look(new_reader, job_id)
    for handle in (store, reader, new_store, new_reader):
        handle.close()
    return whole.job, after


@pytest.mark.parametrize("outcome", [None, Completed(b"1"), Discarded(BOOM)])
@pytest.mark.parametrize("is_source", [True, False])
def test_a_job_that_moves_to_another_store_takes_its_run_number_along(
    engine: Engine, clock: ManualClock, outcome: Outcome | None, is_source: bool
) -> None:
    other = MemoryEngine(clock=clock)

    before, after = moved(engine, other, outcome) if is_source else moved(other, engine, outcome)

    assert numbers(after) == numbers(before)
    assert after.unstarted == 1


def test_a_job_with_the_id_of_one_that_is_gone_counts_from_the_start(store: Store) -> None:
    put(store, id=UNKNOWN)
    hand_back(store)
    store.delete([UNKNOWN])

    put(store, id=UNKNOWN)

    assert numbers(start(store)) == (1, 1)
