"""The sweep settles lost attempts, and knows when to hold back."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.app.duty import run_due
from forebay.domain.history import EventKind
from forebay.domain.job import Job, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState
from forebay.domain.query import Counts
from forebay.domain.retry import RetryPolicy
from forebay.errors import StoreRefused, StoreUnavailable
from forebay.scheduler.sweeping import Sweeping
from forebay.stores.protocol import Reader, Store
from forebay.testing.clock import ManualClock
from tests.app.watching import Watched
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER, claim, complete, new_job

LEASE = 30_000
RENEWAL = 10_000


def sweeping(clock: ManualClock, **settings: Any) -> Sweeping:
    """A sweeper that connected long ago."""
    wanted: dict[str, Any] = {"sweeper": SWEEPER, "clock": clock, "roll": lambda: 0.0} | settings
    duty = Sweeping(**wanted)
    clock.advance(ms=LEASE)
    return duty


def lose(store: Store, clock: ManualClock, count: int = 1, **fields: Any) -> list[Job]:
    """Jobs whose lease has just ended."""
    store.insert([new_job(**fields)] * count)
    jobs = claim(store, count)
    clock.advance(ms=LEASE)
    return jobs


def look(reader: Reader, job: Job) -> Job:
    [found] = reader.jobs([job.id])
    assert found is not None
    return found


# ------------------------------------------------------------------ what it does


@pytest.mark.shows("R-SWEEP-01", "R-SWEEP-20")
def test_a_job_whose_lease_has_ended_is_put_back(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock)

    assert not duty.run(store)

    swept = look(reader, job)
    assert (swept.state, swept.attempt, swept.failures, swept.crashes) == (JobState.PENDING, 1, 0, 1)
    assert [error.type for error in swept.errors] == ["Lost"]


def test_the_history_names_the_worker_that_was_lost(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock)

    duty.run(store)

    timeline = reader.history(job.id)
    assert timeline is not None
    assert [(one.attempt, one.ending, one.worker) for one in timeline.attempts] == [(1, "lost", WORKER)]
    assert [(one.kind, one.detail) for one in timeline.events] == [(EventKind.SWEPT, WORKER)]


@pytest.mark.shows("R-EDGE-06")
def test_a_job_whose_lease_is_renewed_is_left_alone(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock)
    store.insert([new_job()])
    [job] = claim(store)

    for _ in range(10):
        clock.advance(ms=RENEWAL)
        store.renew(WORKER, [Lease(job.id, job.attempt)])
        duty.run(store)

    assert look(reader, job).state is JobState.RUNNING


@pytest.mark.shows("R-SWEEP-14", "R-EDGE-11", "R-BUG-10")
def test_a_job_that_kills_its_worker_every_time_is_dead_in_the_end(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock, policy=RetryPolicy(max_crashes=2))
    seen = []

    for _ in range(3):
        duty.run(store)
        seen.append(look(reader, job).state.value)
        clock.advance(ms=LEASE)
        claim(store)
        clock.advance(ms=LEASE)

    assert seen == ["pending", "retrying", "dead"]
    assert str(look(reader, job).reason).startswith("lost 3 times")


@pytest.mark.shows("R-EDGE-03", "R-EDGE-04")
def test_the_old_holder_comes_too_late(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock)
    duty.run(store)

    answer = store.exchange(WORKER, [complete(job)])

    assert (answer.settled, answer.repeated) == ((), ())
    assert [one.lease.job_id for one in answer.refused] == [job.id]
    assert look(reader, job).state is JobState.PENDING


def test_a_swept_job_that_was_to_be_cancelled_is_cancelled(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock)
    store.cancel([job.id], "not needed")

    duty.run(store)

    assert (look(reader, job).state, look(reader, job).reason) == (JobState.CANCELLED, "not needed")


def test_a_sweep_takes_a_batch_at_a_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock, batch=10)
    lose(store, clock, 25)

    assert [duty.run(store) for _ in range(3)] == [True, True, False]
    assert reader.counts() == {"default": Counts(pending=25)}


@pytest.mark.shows("R-SWEEP-03")
def test_two_sweepers_settle_each_lost_attempt_once(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock
) -> None:
    one = sweeping(clock, batch=3)
    other = sweeping(clock, batch=3, sweeper=WorkerId("other sweeper"))
    jobs = lose(store, clock, 10)

    while one.run(store) or other.run(other_store):
        pass

    assert [look(reader, job).crashes for job in jobs] == [1] * 10


def test_chance_comes_from_outside(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock, roll=lambda: 1.0)
    [job] = lose(store, clock)
    duty.run(store)
    claim(store)
    clock.advance(ms=LEASE)

    duty.run(store)

    again = look(reader, job)
    assert (again.state, again.run_at - clock.now_ms()) == (JobState.RETRYING, 1_100)


# ------------------------------------------------------------------ holding back


def swept(store: Store, duty: Sweeping) -> bool:
    """Whether a turn of the duty reaches the store's sweep."""
    watched = Watched(store)
    duty.run(watched.seam)
    return "sweep" in watched.calls


def test_it_waits_one_renewal_interval_after_it_connected(store: Store, clock: ManualClock) -> None:
    duty = Sweeping(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0)

    early = (duty.is_ready, swept(store, duty))
    clock.advance(ms=RENEWAL - 1)
    nearly = (duty.is_ready, swept(store, duty))
    clock.advance(ms=1)

    assert (early, nearly) == ((False, False), (False, False))
    assert (duty.is_ready, swept(store, duty)) == (True, True)


def test_it_waits_again_when_its_owner_has_connected_again(store: Store, clock: ManualClock) -> None:
    duty = sweeping(clock)

    duty.connected()

    assert not duty.is_ready
    clock.advance(ms=RENEWAL)
    assert duty.is_ready


@pytest.mark.parametrize("jump", [-3_600_000, -1_001, 1_001, 3_600_000])
def test_after_a_jump_of_the_clock_it_waits_for_a_whole_lease(
    store: Store, clock: ManualClock, jump: int
) -> None:
    duty = sweeping(clock)
    clock.set(clock.now_ms() + jump)

    after_the_jump = swept(store, duty)
    clock.advance(ms=LEASE - 1)
    nearly = swept(store, duty)
    clock.advance(ms=1)

    assert (after_the_jump, nearly) == (False, False)
    assert swept(store, duty)


@pytest.mark.parametrize("jump", [-1_000, -1, 1, 1_000])
def test_a_small_correction_of_the_clock_is_no_jump(store: Store, clock: ManualClock, jump: int) -> None:
    duty = sweeping(clock)
    clock.set(clock.now_ms() + jump)

    assert swept(store, duty)


def test_a_clock_that_is_corrected_slowly_has_not_jumped(store: Store, clock: ManualClock) -> None:
    duty = sweeping(clock)

    for _ in range(10):
        clock.advance(ms=1_000)
        clock.set(clock.now_ms() + 500)
        assert duty.is_ready


def test_a_jump_ahead_takes_no_healthy_job_away(store: Store, reader: Reader, clock: ManualClock) -> None:
    duty = sweeping(clock)
    store.insert([new_job()])
    [job] = claim(store)
    clock.set(clock.now_ms() + 3_600_000)

    run_due(store, [duty])
    store.renew(WORKER, [Lease(job.id, job.attempt)])
    clock.advance(ms=LEASE - 1)
    run_due(store, [duty])

    assert look(reader, job).state is JobState.RUNNING


def test_while_it_holds_back_others_may_sweep(store: Store, other_store: Store, clock: ManualClock) -> None:
    fresh = Sweeping(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0)
    ours, theirs = Watched(store), Watched(other_store)

    run_due(ours.seam, [fresh])
    run_due(theirs.seam, [sweeping(clock, sweeper=WorkerId("other sweeper"))])

    assert (ours.calls, theirs.calls) == ([], ["take_duty", "sweep"])


# ------------------------------------------------------------------ when the store goes away


def away(*names: str) -> Any:
    """Trouble: these calls do not reach the store."""

    def go_away(name: str, args: tuple[Any, ...]) -> None:
        if name in names:
            raise StoreUnavailable("away")

    return go_away


def test_after_an_outage_the_holders_come_first(store: Store, clock: ManualClock) -> None:
    duty = sweeping(clock)
    with pytest.raises(StoreUnavailable):
        duty.run(Watched(store, away("sweep")).seam)

    back_again = swept(store, duty)
    clock.advance(ms=RENEWAL)

    assert not back_again
    assert swept(store, duty)


@pytest.mark.parametrize("too_late", [False, True], ids=["not done", "done, answer lost"])
def test_what_was_taken_over_is_settled_after_the_outage(
    store: Store, reader: Reader, clock: ManualClock, too_late: bool
) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock)
    with pytest.raises(StoreUnavailable):
        duty.run(Watched(store, away("exchange"), too_late=too_late).seam)

    duty.run(store)
    clock.advance(ms=RENEWAL)
    duty.run(store)

    assert (look(reader, job).state, look(reader, job).crashes) == (JobState.PENDING, 1)


def test_a_sweeper_that_dies_is_swept_in_turn(store: Store, reader: Reader, clock: ManualClock) -> None:
    first, second = sweeping(clock), sweeping(clock, sweeper=OTHER_WORKER)
    [job] = lose(store, clock)
    with pytest.raises(StoreUnavailable):
        first.run(Watched(store, away("exchange")).seam)
    assert look(reader, job).state is JobState.RUNNING

    clock.advance(ms=LEASE)
    second.run(store)

    assert (look(reader, job).state, look(reader, job).crashes) == (JobState.PENDING, 1)


def test_a_loss_that_the_store_cannot_hold_is_a_failed_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    duty = sweeping(clock)
    [job] = lose(store, clock)

    def refuse_lost(name: str, args: tuple[Any, ...]) -> None:
        if name == "exchange" and any(end.ending == "lost" for end in args[1]):
            raise StoreRefused("no")

    duty.run(Watched(store, refuse_lost).seam)

    failed = look(reader, job)
    assert (failed.state, failed.failures, failed.errors[0].type) == (JobState.RETRYING, 1, "StoreRefused")


# ------------------------------------------------------------------ workers known to be dead


def test_a_sweeper_of_the_dead_is_ready_at_once_and_has_turns_of_its_own(clock: ManualClock) -> None:
    duty = Sweeping(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0, only_dead=True)

    assert duty.is_ready
    assert duty.name != sweeping(clock).name


def test_a_sweeper_of_the_dead_leaves_leases_that_have_merely_ended(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    duty = Sweeping(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0, only_dead=True)
    [job] = lose(store, clock)

    duty.run(store)

    assert look(reader, job).state is JobState.RUNNING
    assert look(reader, job).worker == WORKER
