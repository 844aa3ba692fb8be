"""A batch of settlements does not die of one member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.job import Job, JobId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Failed
from forebay.domain.progress import LogLine, Progress, ProgressUpdate
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreError, StoreRefused, StoreUnavailable, StoreUnusable
from forebay.operations.settlement_isolation import failed_settlement, settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import QueueClaim, SettleAndClaimResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.app.watched_store import Trouble, Watched
from tests.domain.sample_jobs import a_job
from tests.stores.support import OTHER_WORKER, WORKER, claim, complete, new_job

HALF = "half a character: \ud800"


def running(store: Store, count: int, **fields: Any) -> list[Job]:
    store.insert([new_job(**fields)] * count)
    return claim(store, count)


def bad(job: Job) -> Settlement:
    """A failure whose message cannot be written as UTF-8."""
    return decide(job, Failed(AttemptError(type="Boom", message=HALF, traceback=HALF)), 0.0)


def ended(jobs: Sequence[Job], culprits: set[int]) -> list[Settlement]:
    return [bad(job) if number in culprits else complete(job) for number, job in enumerate(jobs)]


def settle_and_claim(
    store: Store, jobs: Sequence[Job], settlements: Sequence[Settlement], **more: Any
) -> SettleAndClaimResult:
    by_id = {job.id: job for job in jobs}
    return settle_and_claim_isolating(
        store,
        WORKER,
        settlements,
        fallback=lambda end, error: failed_settlement(by_id[end.job_id], end, error, 0.0),
        **more,
    )


def states(reader: Reader, jobs: Sequence[Job]) -> list[JobState]:
    return [job.state for job in reader.jobs([job.id for job in jobs]) if job is not None]


def look(reader: Reader, job_id: JobId) -> Job:
    [job] = reader.jobs([job_id])
    assert job is not None
    return job


CULPRITS = [
    pytest.param({50}, id="one in the middle"),
    pytest.param({0}, id="the first"),
    pytest.param({99}, id="the last"),
    pytest.param({0, 99}, id="first and last"),
    pytest.param({41, 42}, id="two neighbours"),
    pytest.param(set(range(100)), id="all"),
]


@pytest.mark.parametrize("culprits", CULPRITS)
def test_what_the_store_cannot_hold_is_a_failed_attempt_and_the_others_are_settled(
    store: Store, reader: Reader, culprits: set[int]
) -> None:
    jobs = running(store, 100)

    answer = settle_and_claim(store, jobs, ended(jobs, culprits))

    assert answer.settled == tuple(job.id for job in jobs)
    assert (answer.repeated, answer.refused) == ((), ())
    assert states(reader, jobs) == ["retrying" if n in culprits else "completed" for n in range(100)]


def test_the_failed_attempt_has_the_reason_and_what_it_had_said(store: Store, reader: Reader) -> None:
    jobs = running(store, 3)

    settle_and_claim(store, jobs, ended(jobs, {1}))

    failed = look(reader, jobs[1].id)
    [error] = failed.errors
    assert (failed.failures, error.attempt, error.type) == (1, 1, "StoreRefused")
    assert error.message.startswith("the attempt was failed, but the store cannot hold that: ")
    assert error.traceback == "Boom: half a character: \\ud800\nhalf a character: \\ud800"


def test_the_failed_attempt_is_in_the_history(store: Store, reader: Reader) -> None:
    [job] = running(store, 1)

    settle_and_claim(store, [job], [bad(job)])

    timeline = reader.history(job.id)
    assert timeline is not None
    assert [(one.attempt, one.outcome, one.worker) for one in timeline.attempts] == [(1, "failed", WORKER)]


def test_without_retries_the_culprit_is_dead(store: Store, reader: Reader) -> None:
    jobs = running(store, 2, policy=RetryPolicy(max_retries=0))

    settle_and_claim(store, jobs, ended(jobs, {0}))

    assert states(reader, jobs) == ["dead", "completed"]


@pytest.mark.parametrize(("size", "most"), [(1, 4), (2, 5), (100, 17), (1_000, 23)])
def test_one_culprit_costs_few_transactions(store: Store, size: int, most: int) -> None:
    jobs = running(store, size)
    watched = Watched(store)

    settle_and_claim(watched.contract, jobs, ended(jobs, {size // 3}))

    assert len(watched.calls) <= most


def test_without_a_culprit_it_is_one_settle_and_claim(store: Store) -> None:
    jobs = running(store, 10)
    watched = Watched(store)

    answer = settle_and_claim(watched.contract, jobs, ended(jobs, set()))

    assert len(answer.settled) == 10
    assert watched.calls == ["settle_and_claim"]


@pytest.mark.parametrize("culprits", [set(), {2}])
def test_the_claim_happens_once(store: Store, culprits: set[int]) -> None:
    jobs = running(store, 5)
    store.insert([new_job()] * 10)

    answer = settle_and_claim(
        store, jobs, ended(jobs, culprits), claims=[QueueClaim(jobs[0].queue, 10)], room=4
    )

    assert len(answer.settled) == 5
    assert [job.attempt for job in answer.jobs] == [1, 1, 1, 1]


@pytest.mark.parametrize("count", [1, 2])
def test_no_settlement_is_blamed_for_a_claim_that_is_refused(
    store: Store, reader: Reader, count: int
) -> None:
    def refuse_claims(name: str, values: tuple[Any, ...]) -> None:
        if len(values) > 2 and values[2]:
            raise StoreRefused("a job that waits cannot be read")

    jobs = running(store, count)
    claims = [QueueClaim(jobs[0].queue, 1)]

    with pytest.raises(StoreRefused):
        settle_and_claim(
            Watched(store, refuse_claims).contract, jobs, ended(jobs, set()), claims=claims, room=1
        )

    assert states(reader, jobs) == ["completed"] * count


# ------------------------------------------------------------------ follow-ups


def test_a_follow_up_that_cannot_be_stored_fails_only_its_parent(store: Store, reader: Reader) -> None:
    taken = JobId("taken")
    store.insert([new_job(id=taken, delay_ms=60_000)])
    jobs = running(store, 3)
    ends = [
        replace(complete(job), follow_ups=(new_job(id=follow_up),))
        for job, follow_up in zip(jobs, ("fine", taken, "also-fine"), strict=True)
    ]

    settle_and_claim(store, jobs, ends)

    assert states(reader, jobs) == ["completed", "retrying", "completed"]
    assert [job is not None for job in reader.jobs([JobId("fine"), JobId("also-fine")])] == [True, True]
    assert look(reader, taken).parent_id is None


def test_a_follow_up_whose_key_is_taken_fails_no_other_settlement(store: Store, reader: Reader) -> None:
    store.insert([new_job(unique_key="k", delay_ms=60_000)])
    [job] = running(store, 1)

    answer = settle_and_claim(store, [job], [replace(complete(job), follow_ups=(new_job(unique_key="k"),))])

    assert answer.settled == (job.id,)
    timeline = reader.history(job.id)
    assert timeline is not None
    assert [event.kind for event in timeline.events] == [EventKind.FOLLOW_UP_SKIPPED]


# ------------------------------------------------------------------ what else may happen


def test_repeated_and_refused_are_answered_with_a_culprit_in_the_batch(store: Store) -> None:
    jobs = running(store, 4)
    lost = claim(store, 1) or running(store, 1)
    settle_and_claim(store, jobs[:1], [complete(jobs[0])])
    settlements = [*ended(jobs, {2}), replace(complete(lost[0]), attempt=9)]

    answer = settle_and_claim(store, [*jobs, *lost], settlements)

    assert answer.repeated == (jobs[0].id,)
    assert answer.settled == tuple(job.id for job in jobs[1:])
    assert [(one.lease, one.reason) for one in answer.refused] == [(Lease(lost[0].id, 9), "other attempt")]


def test_a_culprit_whose_lease_was_lost_is_refused(store: Store, other_store: Store) -> None:
    jobs = running(store, 2)
    other_store.cancel([jobs[0].id], force=True)

    answer = settle_and_claim(store, jobs, ended(jobs, {0}))

    assert answer.settled == (jobs[1].id,)
    assert [(one.lease.job_id, one.reason) for one in answer.refused] == [(jobs[0].id, "other state")]


def test_a_fallback_that_is_refused_too_is_reported_and_not_tried_again(store: Store, reader: Reader) -> None:
    jobs = running(store, 4)

    answer = settle_and_claim_isolating(store, WORKER, ended(jobs, {1}), fallback=lambda end, _: bad(jobs[1]))

    assert answer.settled == (jobs[0].id, jobs[2].id, jobs[3].id)
    [refusal] = answer.refused
    assert refusal.lease == Lease(jobs[1].id, 1)
    assert refusal.reason
    assert states(reader, jobs) == ["completed", "running", "completed", "completed"]


def test_what_was_refused_twice_is_not_recovered(store: Store) -> None:
    jobs = running(store, 2)

    answer = settle_and_claim_isolating(
        store, WORKER, ended(jobs, {1}), known=[], fallback=lambda end, _: bad(jobs[1])
    )

    assert answer.recovered == ()


def test_unknown_leases_are_recovered_with_a_culprit_in_the_batch(store: Store) -> None:
    jobs = running(store, 3)

    answer = settle_and_claim(store, jobs, ended(jobs[:2], {1}), known=[])

    assert [job.id for job in answer.recovered] == [jobs[2].id]


def test_requests_to_cancel_arrive_with_a_culprit_in_the_batch(store: Store, other_store: Store) -> None:
    jobs = running(store, 3)
    other_store.cancel([jobs[2].id], "not needed")

    answer = settle_and_claim(store, jobs, ended(jobs[:2], {1}))

    assert [(one.job_id, one.reason) for one in answer.cancels] == [(jobs[2].id, "not needed")]


def test_a_refusal_that_no_settlement_has_caused_passes_through(store: Store) -> None:
    def refuse(name: str, args: tuple[Any, ...]) -> None:
        raise StoreRefused("no")

    with pytest.raises(StoreRefused, match="no"):
        settle_and_claim(Watched(store, refuse).contract, [], [], claims=[])


def spoiled(*jobs: Job) -> Trouble:
    """A bug that shows whenever one of these jobs is settled as completed."""
    ids = {job.id for job in jobs}

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        if any(end.job_id in ids and end.outcome == "completed" for end in args[1]):
            raise ZeroDivisionError("a bug")

    return trouble


@pytest.mark.parametrize("culprits", [{0}, {7}, {3, 4}, set(range(8))])
def test_a_fault_of_our_own_in_one_settlement_is_a_failed_attempt_and_the_others_are_settled(
    store: Store, reader: Reader, culprits: set[int]
) -> None:
    jobs = running(store, 8)
    watched = Watched(store, spoiled(*[jobs[n] for n in culprits]))

    answer = settle_and_claim(watched.contract, jobs, ended(jobs, set()))

    assert answer.settled == tuple(job.id for job in jobs)
    assert states(reader, jobs) == ["retrying" if n in culprits else "completed" for n in range(8)]
    [error] = look(reader, jobs[min(culprits)].id).errors
    assert (error.type, error.message.endswith(": a bug")) == ("ZeroDivisionError", True)


def test_a_fault_in_what_stands_in_for_a_settlement_is_reported_and_the_others_are_settled(
    store: Store, reader: Reader
) -> None:
    jobs = running(store, 3)

    def fallback(end: Settlement, error: Exception) -> Settlement:
        raise KeyError(end.job_id)

    answer = settle_and_claim_isolating(
        Watched(store, spoiled(jobs[1])).contract, WORKER, ended(jobs, set()), fallback=fallback
    )

    assert [one.lease for one in answer.refused] == [Lease(jobs[1].id, 1)]
    assert states(reader, jobs) == ["completed", "running", "completed"]


def test_a_fault_that_no_settlement_has_caused_passes_through_and_ends_none(
    store: Store, reader: Reader
) -> None:
    jobs = running(store, 3)

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        settle_and_claim(Watched(store, trouble).contract, jobs, ended(jobs, set()))

    assert states(reader, jobs) == ["running"] * 3


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreUnusable, StoreError])
def test_a_store_that_cannot_be_used_is_no_fault_of_a_settlement(store: Store, kind: type[Exception]) -> None:
    jobs = running(store, 4)

    def trouble(name: str, args: tuple[Any, ...]) -> None:
        if args[1]:
            raise kind("no")

    watched = Watched(store, trouble)
    with pytest.raises(kind):
        settle_and_claim(watched.contract, jobs, ended(jobs, set()))

    assert watched.calls == ["settle_and_claim"]


# It takes nine calls, of which four are refused because of the culprit and five have an answer to lose.
@pytest.mark.parametrize(
    ("too_late", "good_calls"), [*((False, n) for n in range(9)), *((True, n) for n in range(5))]
)
def test_after_an_outage_in_the_middle_the_same_settlements_end_well(
    store: Store, reader: Reader, too_late: bool, good_calls: int
) -> None:
    jobs = running(store, 8)
    settlements = ended(jobs, {3})
    calls_left = iter(range(good_calls))

    def go_away(name: str, args: tuple[Any, ...]) -> None:
        if next(calls_left, None) is None:
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        settle_and_claim(Watched(store, go_away, too_late=too_late).contract, jobs, settlements)
    answer = settle_and_claim(store, jobs, settlements)

    assert sorted([*answer.settled, *answer.repeated]) == [job.id for job in jobs]
    assert answer.refused == ()
    assert states(reader, jobs) == ["retrying" if n == 3 else "completed" for n in range(8)]
    assert look(reader, jobs[3].id).failures == 1


def test_another_worker_cannot_use_it_to_settle_what_is_not_its_own(store: Store, reader: Reader) -> None:
    [job] = running(store, 1)

    answer = settle_and_claim_isolating(
        store,
        OTHER_WORKER,
        [complete(job)],
        fallback=lambda end, error: failed_settlement(job, end, error, 0.0),
    )

    assert [one.reason for one in answer.refused] == ["other worker"]
    assert states(reader, [job]) == ["running"]


# ------------------------------------------------------------------ failed_settlement


def test_a_success_that_cannot_be_stored_is_a_failure() -> None:
    job = a_job()

    end = failed_settlement(job, decide(job, Completed(b"1"), 0.0), StoreRefused("too large \ud800"), 0.0)

    assert (end.state, end.failures, end.result, end.follow_ups) == (JobState.RETRYING, 1, None, ())
    assert end.error == AttemptError(
        type="StoreRefused",
        message="the attempt was completed, but the store cannot hold that: too large \\ud800",
    )


# ------------------------------------------------------------------ notes


def update_of(job: Job, text: str = "hi") -> ProgressUpdate:
    line = LogLine(at=1, level="INFO", text=text)
    return ProgressUpdate(lease=Lease(job.id, job.attempt), progress=Progress(done=1), lines=(line,))


def lines(reader: Reader, job: Job) -> list[str]:
    return [line.text for line in reader.progress(job.id).lines]


def test_progress_go_along_with_the_settlements(store: Store, reader: Reader) -> None:
    jobs = running(store, 3)

    answer = settle_and_claim(store, jobs, [complete(jobs[0])], updates=[update_of(job) for job in jobs])

    assert (len(answer.settled), answer.refused_updates) == (1, ())
    assert [lines(reader, job) for job in jobs] == [["hi"]] * 3


def test_progress_are_kept_once_when_a_batch_is_split(store: Store, reader: Reader) -> None:
    jobs = running(store, 8)
    stranger = replace(update_of(jobs[0]), lease=Lease(jobs[0].id, 7))

    answer = settle_and_claim(store, jobs, ended(jobs, {3}), updates=[*map(update_of, jobs), stranger])

    assert len(answer.settled) == 8
    assert [lines(reader, job) for job in jobs] == [["hi"]] * 8
    assert [refusal.lease for refusal in answer.refused_updates] == [stranger.lease]


@pytest.mark.parametrize("error", [StoreRefused("too odd"), RuntimeError("a fault of ours")])
def test_a_progress_update_that_cannot_be_kept_is_dropped_alone(
    store: Store, reader: Reader, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = running(store, 3)

    class Picky(Watched):
        def __getattr__(self, name: str) -> Any:
            call = super().__getattr__(name)

            def checked(*args: Any, **more: Any) -> Any:
                given: Sequence[ProgressUpdate] = args[5] if len(args) > 5 else more.get("updates", ())
                if any(update.lines[0].text == "bad" for update in given):
                    raise error
                return call(*args, **more)

            return checked

    updates = [update_of(jobs[0]), update_of(jobs[1], "bad"), update_of(jobs[2])]
    answer = settle_and_claim(Picky(store).contract, jobs, [complete(jobs[0])], updates=updates)

    assert [lines(reader, job) for job in jobs] == [["hi"], [], ["hi"]]
    assert answer.settled == (jobs[0].id,)
    assert states(reader, jobs) == [JobState.COMPLETED, JobState.RUNNING, JobState.RUNNING]
    [refusal] = answer.refused_updates
    assert refusal.lease == updates[1].lease
    assert "the store cannot hold its progress" in refusal.reason
    errors_seen = [
        record.levelname
        for record in caplog.records
        if record.name == "forebay.operations.settlement_isolation"
    ]
    assert errors_seen == ["ERROR"]


def test_an_outage_between_two_progress_is_an_outage(store: Store) -> None:
    jobs = running(store, 2)
    errors = [StoreRefused("too odd"), StoreUnavailable("away")]

    def trouble(name: str, _: object) -> None:
        if errors:
            raise errors.pop(0)

    with pytest.raises(StoreUnavailable):
        settle_and_claim(Watched(store, trouble).contract, jobs, [], updates=[update_of(job) for job in jobs])
