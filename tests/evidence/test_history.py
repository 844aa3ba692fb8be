"""The checker finds what it is there for: each rule, kept and broken."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evidence.history import Accepted, End, History, Start, exceeded, out_of_order, problems
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope
from forebay.domain.job import JobId, OnFailure, QueueName, WorkerId
from forebay.domain.job_history import Attempt, Timeline
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError
from forebay.domain.schedule import ScheduleRun, ScheduleRunStatus
from forebay.domain.settlement import OutcomeKind
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.support import WORKER, claim, complete, new_job

FIRST = Lease(JobId("one"), 1)


def life(name: str = "one", **changes: Any) -> Timeline:
    """A job that was completed by its first attempt at 100, unless something else is said."""
    engine = MemoryEngine(clock=ManualClock(100))
    store = engine.store()
    store.insert([new_job(id=JobId(name))])
    store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
    timeline = engine.reader().history(JobId(name))
    assert timeline is not None
    return replace(timeline, job=replace(timeline.job, **changes))


def accepted(name: str = "one", **changes: Any) -> Accepted:
    return Accepted(
        **{"id": JobId(name), "at": 0, "due_at": 0, "queue": QueueName("default"), "task": "noop", **changes}
    )


def history(*jobs: Accepted) -> History:
    """Each job was run once, from 50 to 100."""
    seen = History(accepted={job.id: job for job in jobs or (accepted(),)})
    for job_id in seen.accepted:
        run(seen, Lease(job_id, 1), 50, 100)
    return seen


def run(seen: History, lease: Lease, began: int, ended: int, worker: str = WORKER) -> None:
    seen.claimed(lease, began, ended)
    seen.starts.append(Start(lease=lease, worker=WorkerId(worker), at=began))
    seen.ends.append(End(lease=lease, at=ended, is_good=True))


def found(seen: History, *lives: Timeline, **more: Any) -> list[str]:
    return list(problems(seen, {one.job.id: one for one in lives}, **more))


def test_a_job_that_was_run_and_completed_is_no_problem() -> None:
    assert found(history(), life()) == []


def test_a_job_that_is_gone_or_has_not_ended_is_lost() -> None:
    assert found(history()) == ["one was accepted and is gone"]
    assert found(history(), life(state=JobState.PENDING)) == ["one was accepted and is still pending"]


def test_a_deleted_job_is_not_lost() -> None:
    seen = history()
    seen.deleted.add(JobId("one"))

    assert found(seen) == []


def test_an_attempt_that_is_run_twice_is_seen() -> None:
    seen = history()
    run(seen, FIRST, 60, 90)

    assert found(seen, life()) == [f"{FIRST} was run 2 times"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"worker": WorkerId("other")}, f"{FIRST} was finished by other, and {WORKER} has run it"),
        (
            {"attempt": 2},
            f"{Lease(JobId('one'), 2)} is recorded as the finisher, and its handler had not returned",
        ),
        ({"finished_at": 99}, f"{FIRST} is recorded as the finisher, and its handler had not returned"),
        ({"attempt": 0, "state": JobState.DEAD}, "one: attempt 1 was run, and the store knows of 0"),
    ],
)
def test_the_finisher_is_the_attempt_whose_handler_returned(changes: dict[str, Any], problem: str) -> None:
    assert found(history(), life(**changes)) == [problem]


def test_the_finisher_is_not_among_the_failed_attempts() -> None:
    row = Attempt(
        job_id=JobId("one"),
        attempt=1,
        outcome=OutcomeKind.LOST,
        worker=WORKER,
        started_at=50,
        ended_at=90,
        error=AttemptError(type="Lost"),
    )

    assert found(history(), replace(life(), attempts=(row,))) == [
        f"{FIRST} has finished the job and stands among the failed attempts"
    ]


def test_a_start_before_its_time_or_without_a_lease_is_seen() -> None:
    assert found(history(accepted(due_at=60)), life()) == [f"{FIRST} was started 10 ms before it was due"]
    seen = history()
    seen.leases = {Lease(JobId("other"), 1): seen.leases[FIRST]}

    assert found(seen, life()) == [f"{FIRST} was started and no worker has claimed it"]


def test_a_child_starts_after_its_parents_and_not_after_their_failure() -> None:
    seen = History(accepted={JobId("one"): accepted()})
    seen.accepted[JobId("child")] = accepted("child", parents=((JobId("one"), OnFailure.CANCEL),))
    run(seen, FIRST, 10, 20)
    run(seen, Lease(JobId("child"), 1), 50, 100)

    assert found(seen, life(finished_at=50), life("child")) == []
    assert found(seen, life(finished_at=51), life("child")) == [
        "child was started before its parent one had ended"
    ]
    assert found(seen, life(finished_at=50, state=JobState.DEAD), life("child")) == [
        "child was started, and its parent one is dead"
    ]


def test_a_unique_key_has_one_holder_at_a_time() -> None:
    seen = history(accepted(unique_key="k"), accepted("two", unique_key="k", at=100))

    assert found(seen, life(finished_at=100), life("two")) == []
    assert found(seen, life(finished_at=101), life("two")) == [
        "one and two of default were alive together with the unique key 'k'"
    ]


def test_more_leases_than_a_limit_allows_are_seen() -> None:
    seen = history(accepted(limit_keys={"tenant": "a"}), accepted("two", limit_keys={"tenant": "b"}))
    lives = life(), life("two")

    assert found(seen, *lives, limits=[Limit(scope=key_scope("tenant"), concurrency=1)]) == []
    assert found(seen, *lives, limits=[Limit(scope=GLOBAL, concurrency=1)]) == [
        "2 leases were held at once under the limit of 1 for global"
    ]


def test_a_lease_that_has_ended_gives_its_place_away_and_may_be_renewed_all_the_same() -> None:
    seen = history(accepted(), accepted("two"))
    seen.claimed(FIRST, 10, 50)
    seen.renewed(FIRST, 40, 50)
    seen.renewed(FIRST, 80, 120)
    seen.over(FIRST, 100)

    assert found(seen, life(), life("two"), limits=[Limit(scope=GLOBAL, concurrency=1)]) == []


def test_a_claim_may_come_before_a_late_renewal_of_the_same_millisecond() -> None:
    seen = history(accepted(), accepted("two"))
    seen.claimed(FIRST, 10, 20)
    seen.renewed(FIRST, 50, 120)

    assert found(seen, life(), life("two"), limits=[Limit(scope=GLOBAL, concurrency=1)]) == []


def test_jobs_of_a_sequence_run_in_their_order_one_at_a_time() -> None:
    seen = history(accepted(sequence="s"), accepted("two", sequence="s"))
    one, two = life(finished_at=50, seq=1), life("two", seq=2)

    assert list(out_of_order(seen, {one.job.id: one, two.job.id: two})) == []
    one = life(finished_at=51, seq=1)
    assert list(out_of_order(seen, {one.job.id: one, two.job.id: two})) == [
        "two of the sequence s was started before one had ended"
    ]


def test_what_is_handed_back_before_its_start_gives_its_token_to_another_one() -> None:
    seen = history(*(accepted(f"j{number}") for number in range(4)))
    seen.accepted[JobId("back")] = accepted("back")
    seen.claimed(Lease(JobId("back"), 1), 40, 50)
    limit = Limit(scope=GLOBAL, rate=1, burst=3)

    assert list(exceeded(seen, limit)) == []
    seen.over(Lease(JobId("back"), 1), 49)
    assert list(exceeded(seen, limit)) == ["4 jobs of global were started within 0 ms"]


def test_a_rate_lets_more_start_as_time_goes_by() -> None:
    jobs = [accepted(f"j{number}") for number in range(5)]
    limit = Limit(scope=GLOBAL, rate=1, burst=2)

    def starting_at(*times: int) -> list[str]:
        seen = History(accepted={job.id: job for job in jobs})
        for job, at in zip(jobs, times, strict=True):
            run(seen, Lease(job.id, 1), at, at + 100)
        return list(exceeded(seen, limit))

    assert starting_at(0, 0, 1_000, 2_000, 3_000) == []
    assert starting_at(0, 0, 1_000, 1_999, 5_000) == ["4 jobs of global were started within 1999 ms"]


def test_more_starts_than_a_rate_allows_are_seen() -> None:
    jobs = [accepted(f"j{number}") for number in range(4)]
    seen, lives = history(*jobs), [life(job.id) for job in jobs]

    assert found(seen, *lives, limits=[Limit(scope=GLOBAL, rate=1, burst=4)]) == []
    assert found(seen, *lives, limits=[Limit(scope=GLOBAL, rate=1, burst=3)]) == [
        "4 jobs of global were started within 0 ms"
    ]


def test_a_time_of_a_schedule_gives_one_job() -> None:
    fired = ScheduleRun(planned_at=100, status=ScheduleRunStatus.ENQUEUED)
    skipped = ScheduleRun(planned_at=100, status=ScheduleRunStatus.SKIPPED)

    assert found(history(), life(), schedule_runs={"often": [fired, skipped]}) == []
    assert found(history(), life(), schedule_runs={"often": [fired, fired]}) == [
        "often was fired 2 times for 100"
    ]
