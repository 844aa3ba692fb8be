"""The sweep settles lost attempts, and knows when to hold back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from forebay.domain.job import DEFAULT_QUEUE, Job, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.queue_counts import Counts
from forebay.domain.retry_policy import RetryPolicy
from forebay.errors import StoreBusy, StoreRefused, StoreUnavailable
from forebay.maintenance.lease_sweeper import Sweeper
from forebay.operations.maintenance_task import run_due_tasks
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.clock_readings import ClockReading
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment
from tests.app.watched_store import Watched
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER, claim, complete, new_job

LEASE = 30_000
RENEWAL = 10_000
MARGIN = 2_000  # for a renewal that comes late
HOLD_BACK = RENEWAL + MARGIN
HOLD_BACK_AFTER_STEP = LEASE + MARGIN


def sweeping(store: Store, clock: ManualClock, own: ManualClock | None = None, **settings: Any) -> Sweeper:
    """A sweeper that has connected long ago, and has just read the store's clock. It may have its own."""
    wanted: dict[str, Any] = {"sweeper": SWEEPER, "clock": own or clock, "roll": lambda: 0.0} | settings
    task = Sweeper(**wanted)
    task.run(store)
    clock.advance(ms=LEASE)
    if own is not None:
        own.advance(ms=LEASE)
    task.run(store)
    return task


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
    task = sweeping(store, clock)
    [job] = lose(store, clock)

    assert not task.run(store)

    swept = look(reader, job)
    assert (swept.state, swept.attempt, swept.failures, swept.crashes) == (JobState.PENDING, 1, 0, 1)
    assert [error.type for error in swept.errors] == ["Lost"]


def test_the_history_names_the_worker_that_was_lost(store: Store, reader: Reader, clock: ManualClock) -> None:
    task = sweeping(store, clock)
    [job] = lose(store, clock)

    task.run(store)

    timeline = reader.history(job.id)
    assert timeline is not None
    assert [(one.attempt, one.outcome, one.worker) for one in timeline.attempts] == [(1, "lost", WORKER)]
    assert [(one.kind, one.detail) for one in timeline.events] == [(EventKind.SWEPT, WORKER)]


@pytest.mark.shows("R-EDGE-06")
def test_a_job_whose_lease_is_renewed_is_left_alone(store: Store, reader: Reader, clock: ManualClock) -> None:
    task = sweeping(store, clock)
    store.insert([new_job()])
    [job] = claim(store)

    for _ in range(10):
        clock.advance(ms=RENEWAL)
        store.renew(WORKER, [Lease(job.id, job.attempt)])
        task.run(store)

    assert look(reader, job).state is JobState.RUNNING


@pytest.mark.shows("R-SWEEP-14", "R-EDGE-11", "R-BUG-10")
def test_a_job_that_kills_its_worker_every_time_is_dead_in_the_end(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    task = sweeping(store, clock)
    [job] = lose(store, clock, policy=RetryPolicy(max_crashes=2))
    seen = []

    for _ in range(3):
        task.run(store)
        seen.append(look(reader, job).state.value)
        clock.advance(ms=LEASE)
        claim(store)
        clock.advance(ms=LEASE)

    assert seen == ["pending", "retrying", "dead"]
    assert str(look(reader, job).reason).startswith("lost 3 times")


@pytest.mark.shows("R-EDGE-03", "R-EDGE-04")
def test_the_old_holder_comes_too_late(store: Store, reader: Reader, clock: ManualClock) -> None:
    task = sweeping(store, clock)
    [job] = lose(store, clock)
    task.run(store)

    answer = store.settle_and_claim(WORKER, [complete(job)])

    assert (answer.settled, answer.repeated) == ((), ())
    assert [one.lease.job_id for one in answer.refused] == [job.id]
    assert look(reader, job).state is JobState.PENDING


def test_a_swept_job_that_was_to_be_cancelled_is_cancelled(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    task = sweeping(store, clock)
    [job] = lose(store, clock)
    store.cancel([job.id], "not needed")

    task.run(store)

    assert (look(reader, job).state, look(reader, job).reason) == (JobState.CANCELLED, "not needed")


def test_a_sweep_takes_a_batch_at_a_time(store: Store, reader: Reader, clock: ManualClock) -> None:
    task = sweeping(store, clock, batch=10)
    lose(store, clock, 25)

    assert [task.run(store) for _ in range(3)] == [True, True, False]
    assert reader.counts() == {"default": Counts(pending=25)}


@pytest.mark.shows("R-SWEEP-03")
def test_two_sweepers_settle_each_lost_attempt_once(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock
) -> None:
    one = sweeping(store, clock, batch=3)
    other = sweeping(store, clock, batch=3, sweeper=WorkerId("other sweeper"))
    jobs = lose(store, clock, 10)

    while one.run(store) or other.run(other_store):
        pass

    assert [look(reader, job).crashes for job in jobs] == [1] * 10


def test_chance_comes_from_outside(store: Store, reader: Reader, clock: ManualClock) -> None:
    task = sweeping(store, clock, roll=lambda: 1.0)
    [job] = lose(store, clock)
    task.run(store)
    claim(store)
    clock.advance(ms=LEASE)

    task.run(store)

    again = look(reader, job)
    assert (again.state, again.run_at - clock.now_ms()) == (JobState.RETRYING, 1_100)


# ------------------------------------------------------------------ holding back


class Bounds:
    """A store that notes up to which time it is swept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.ended_by: list[int | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def sweep(self, *args: Any, ended_by: int | None = None, **options: Any) -> list[Job]:
        self.ended_by.append(ended_by)
        return self._store.sweep(*args, ended_by=ended_by, **options)


def bound(store: Store, task: Sweeper) -> int | None:
    """Up to which time a tick of the sweeper sweeps."""
    bounds = Bounds(store)
    task.run(cast(Store, bounds))
    return next(iter(bounds.ended_by), None)


def swept(store: Store, task: Sweeper) -> bool:
    """Whether a tick of the sweeper takes over what ends this moment."""
    return bound(store, task) == store.read_clock().now


def run_each_second(store: Store, task: Sweeper, moved: Sequence[ManualClock], seconds: float) -> None:
    """Let the sweeper have a turn each second, for this long."""
    for _ in range(int(seconds)):
        for one in moved:
            one.advance(ms=1_000)
        task.run(store)


def test_it_waits_a_little_longer_than_a_renewal_interval_after_its_first_turn(
    store: Store, clock: ManualClock
) -> None:
    task = Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0)
    clock.advance(ms=HOLD_BACK)  # as long as it has not read the store's clock it would not see a step

    early = swept(store, task)
    clock.advance(ms=HOLD_BACK - 1)
    nearly = swept(store, task)
    clock.advance(ms=1)

    assert (early, nearly) == (False, False)
    assert swept(store, task)


@pytest.mark.shows("R-EDGE-31")
def test_a_sweeper_that_starts_after_a_step_ahead_leaves_a_job_to_a_holder_that_renews_a_little_late(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    [job] = claim(store)
    clock.set(clock.now_ms() + 60_000)
    fresh = Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0)

    fresh.run(store)
    run_each_second(
        store, fresh, (clock,), (RENEWAL + MARGIN) / 1_000 - 1
    )  # a worker looks at its leases at times

    assert look(reader, job).worker == WORKER


@pytest.mark.shows("R-EDGE-31")
@pytest.mark.parametrize("seconds", [36, 90, 3_600])
def test_a_sweeper_that_starts_after_a_step_ahead_leaves_a_long_lease_to_its_holder_until_it_renews(
    store: Store, reader: Reader, clock: ManualClock, seconds: int
) -> None:
    store.insert([new_job()])
    [job] = store.settle_and_claim(
        WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1, seconds * 1_000)], room=1
    ).jobs
    interval = Assignment(job, clock.monotonic()).renew_at - clock.monotonic()
    clock.set(clock.now_ms() + 4_000_000)
    fresh = Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0)

    fresh.run(store)
    run_each_second(store, fresh, (clock,), interval)

    assert look(reader, job).worker == WORKER


def test_it_waits_again_when_its_owner_has_connected_again(store: Store, clock: ManualClock) -> None:
    task = sweeping(store, clock)

    task.on_connected()

    assert not swept(store, task)
    clock.advance(ms=HOLD_BACK)
    assert swept(store, task)


@pytest.mark.parametrize("step", [-3_600_000, -60_000, -1_100, 1_100, 60_000, 3_600_000])
def test_after_a_step_of_the_stores_clock_it_waits_a_little_longer_than_a_lease(
    store: Store, clock: ManualClock, step: int
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    clock.set(clock.now_ms() + step)

    after_the_step = swept(store, task)
    clock.advance(ms=HOLD_BACK_AFTER_STEP - 1)
    own.advance(ms=HOLD_BACK_AFTER_STEP - 1)
    nearly = swept(store, task)
    clock.advance(ms=1)
    own.advance(ms=1)

    assert (after_the_step, nearly) == (False, False)
    assert swept(store, task)


@pytest.mark.parametrize("step", [-3_600_000, 3_600_000])
def test_a_step_of_its_own_wall_clock_is_none_of_the_stores(
    store: Store, clock: ManualClock, step: int
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)

    own.set(own.now_ms() + step)

    assert swept(store, task)


@pytest.mark.parametrize("step", [-990, -1, 1, 990])
def test_a_small_correction_of_the_clock_is_no_step(store: Store, clock: ManualClock, step: int) -> None:
    task = sweeping(store, clock)
    clock.set(clock.now_ms() + step)

    assert swept(store, task)


def test_a_clock_that_is_corrected_slowly_has_not_stepped(store: Store, clock: ManualClock) -> None:
    task = sweeping(store, clock)

    for _ in range(10):
        clock.advance(ms=1_000)
        clock.set(clock.now_ms() + 500)
        assert swept(store, task)


def test_a_clock_that_drifts_while_others_sweep_has_not_stepped(store: Store, clock: ManualClock) -> None:
    task = sweeping(store, clock)

    clock.advance(seconds=3_600)
    clock.set(clock.now_ms() + 2_500)

    assert swept(store, task)


def test_a_step_during_a_slow_reading_takes_no_lease_that_has_not_ended_before_it(
    store: Store, clock: ManualClock
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)

    class Slow(Bounds):
        def read_clock(self, *, record: bool = False) -> ClockReading:
            clock.set(clock.now_ms() + 4_000)
            reading = self._store.read_clock(record=record)
            own.advance(ms=5_000)
            clock.advance(ms=5_000)
            return reading

    slow = Slow(store)
    before = clock.now_ms()
    task.run(cast(Store, slow))

    # The call took long enough to hide the step; but by the clock as it was, five seconds have passed.
    assert slow.ended_by == [before + 4_000]
    assert not swept(store, task)


@pytest.mark.shows("R-EDGE-31")
def test_a_step_ahead_takes_no_healthy_job_away(store: Store, reader: Reader, clock: ManualClock) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    store.insert([new_job()])
    [job] = claim(store)
    clock.set(clock.now_ms() + 3_600_000)

    run_due_tasks(store, [task])
    store.renew(WORKER, [Lease(job.id, job.attempt)])
    for moved in (clock, own):
        moved.advance(ms=LEASE - 1)
    run_due_tasks(store, [task])

    assert look(reader, job).state is JobState.RUNNING


@pytest.mark.shows("R-EDGE-31")
def test_a_step_between_its_reading_and_its_sweep_takes_no_healthy_job_away(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    store.insert([new_job()])
    [job] = claim(store)

    class Stepped(Bounds):
        def sweep(self, *args: Any, ended_by: int | None = None, **options: Any) -> list[Job]:
            clock.set(clock.now_ms() + 3_600_000)
            return super().sweep(*args, ended_by=ended_by, **options)

    task.run(cast(Store, Stepped(store)))

    assert look(reader, job).worker == WORKER


def test_after_a_step_ahead_a_job_whose_worker_died_before_it_is_put_back_after_a_lease(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    [job] = lose(store, clock)
    own.advance(ms=LEASE)
    clock.set(clock.now_ms() + 60_000)

    task.run(store)
    for moved in (clock, own):
        moved.advance(ms=HOLD_BACK_AFTER_STEP)
    task.run(store)

    assert look(reader, job).state is JobState.PENDING


@pytest.mark.shows("R-EDGE-31")
@pytest.mark.parametrize("steps", [(4_000_000,), (4_000_000, 4_000_000), (-60_000, 4_000_000)])
@pytest.mark.parametrize("seconds", [12, 36, 90, 3_600])
def test_after_a_step_ahead_a_lease_is_left_to_its_holder_until_it_renews(
    store: Store, reader: Reader, clock: ManualClock, seconds: int, steps: tuple[int, ...]
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    store.insert([new_job()])
    [job] = store.settle_and_claim(
        WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1, seconds * 1_000)], room=1
    ).jobs

    # The sweeper has a turn each second until the holder renews.
    interval = Assignment(job, own.monotonic()).renew_at - own.monotonic()
    for step in steps:
        clock.set(clock.now_ms() + step)
        run_each_second(store, task, (clock, own), interval / len(steps))

    assert look(reader, job).worker == WORKER
    renewed = store.renew(WORKER, [Lease(job.id, job.attempt)], seconds * 1_000)
    assert [one.job_id for one in renewed.renewed] == [job.id]


def test_after_a_step_ahead_what_had_ended_before_it_is_taken_over_meanwhile(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    [job] = lose(store, clock)
    own.advance(ms=LEASE)
    clock.set(clock.now_ms() + 60_000)
    task.run(store)

    run_each_second(store, task, (clock, own), LEASE / 2_000)

    assert look(reader, job).state is JobState.PENDING


@pytest.mark.parametrize("awake", [0.1, 5, 40])
def test_a_program_that_is_frozen_between_its_turns_takes_over_what_a_dead_one_held(
    store: Store, reader: Reader, clock: ManualClock, awake: float
) -> None:
    own = ManualClock()
    task = sweeping(store, clock, own)
    [job] = lose(store, clock)

    states = []
    for _ in range(4):
        clock.advance(seconds=300)
        own.advance(seconds=awake)  # its monotonic clock stands still while it is frozen
        task.run(store)
        states.append(look(reader, job).state)

    assert states[-1] is JobState.PENDING


def test_while_it_holds_back_others_may_sweep(store: Store, other_store: Store, clock: ManualClock) -> None:
    fresh = Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0)
    other = sweeping(other_store, clock, sweeper=WorkerId("other sweeper"))
    theirs = Watched(other_store)

    run_due_tasks(store, [fresh])
    run_due_tasks(theirs.contract, [other])

    assert theirs.calls == ["acquire_maintenance", "read_clock", "sweep"]


# ------------------------------------------------------------------ programs that live for a moment


def short_lived(store: Store, clock: ManualClock) -> None:
    """A program that starts, has one turn and ends."""
    Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0).run(store)


def test_programs_that_live_for_a_moment_put_back_what_a_dead_one_held(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    [job] = lose(store, clock)

    states = []
    for _ in range(6):
        short_lived(store, clock)
        states.append(look(reader, job).state.value)
        clock.advance(seconds=2.5)

    # The first sees that the lease has ended; twelve seconds later its holder has had time to renew.
    assert states == ["running"] * 5 + ["pending"]


@pytest.mark.shows("R-EDGE-31")
@pytest.mark.parametrize("step", [60_000, 3_600_000])
def test_a_program_that_starts_after_a_step_ahead_takes_no_healthy_job_away(
    store: Store, reader: Reader, clock: ManualClock, step: int
) -> None:
    store.insert([new_job()])
    [job] = claim(store)
    short_lived(store, clock)
    clock.set(clock.now_ms() + step)

    short_lived(store, clock)
    clock.advance(ms=HOLD_BACK - 1)
    short_lived(store, clock)
    store.renew(WORKER, [Lease(job.id, job.attempt)])
    clock.advance(ms=1)
    short_lived(store, clock)

    assert look(reader, job).worker == WORKER


def test_a_program_that_starts_after_an_outage_lets_holders_renew_first(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job()])
    [job] = claim(store)
    short_lived(store, clock)
    clock.advance(ms=2 * LEASE)  # the store is away

    short_lived(store, clock)
    clock.advance(ms=HOLD_BACK - 1)
    short_lived(store, clock)

    assert look(reader, job).worker == WORKER


# ------------------------------------------------------------------ when the store goes away


def away(*names: str) -> Any:
    """Trouble: these calls do not reach the store."""

    def go_away(name: str, args: tuple[Any, ...]) -> None:
        if name in names:
            raise StoreUnavailable("away")

    return go_away


def test_after_an_outage_the_holders_come_first(store: Store, clock: ManualClock) -> None:
    task = sweeping(store, clock)
    with pytest.raises(StoreUnavailable):
        task.run(Watched(store, away("sweep")).contract)

    back_again = swept(store, task)
    clock.advance(ms=HOLD_BACK)

    assert not back_again
    assert swept(store, task)


@pytest.mark.parametrize("method", ["read_clock", "sweep"])
def test_a_transaction_that_holds_up_a_sweep_is_no_outage(
    store: Store, clock: ManualClock, method: str
) -> None:
    task = sweeping(store, clock)

    def hold_up(name: str, args: tuple[Any, ...]) -> None:
        if name == method:
            raise StoreBusy("another transaction holds a job")

    with pytest.raises(StoreBusy):
        task.run(Watched(store, hold_up).contract)

    assert swept(store, task)


@pytest.mark.parametrize("too_late", [False, True], ids=["not done", "done, answer lost"])
def test_what_was_taken_over_is_settled_after_the_outage(
    store: Store, reader: Reader, clock: ManualClock, too_late: bool
) -> None:
    task = sweeping(store, clock)
    [job] = lose(store, clock)
    with pytest.raises(StoreUnavailable):
        task.run(Watched(store, away("settle_and_claim"), too_late=too_late).contract)

    task.run(store)
    clock.advance(ms=HOLD_BACK)
    task.run(store)

    assert (look(reader, job).state, look(reader, job).crashes) == (JobState.PENDING, 1)


def test_a_sweeper_that_dies_is_swept_in_turn(store: Store, reader: Reader, clock: ManualClock) -> None:
    first, second = sweeping(store, clock), sweeping(store, clock, sweeper=OTHER_WORKER)
    [job] = lose(store, clock)
    with pytest.raises(StoreUnavailable):
        first.run(Watched(store, away("settle_and_claim")).contract)
    assert look(reader, job).state is JobState.RUNNING

    clock.advance(ms=LEASE)
    second.run(store)

    assert (look(reader, job).state, look(reader, job).crashes) == (JobState.PENDING, 1)


def test_a_loss_that_the_store_cannot_hold_is_a_failed_attempt(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    task = sweeping(store, clock)
    [job] = lose(store, clock)

    def refuse_lost(name: str, args: tuple[Any, ...]) -> None:
        if name == "settle_and_claim" and any(end.outcome == "lost" for end in args[1]):
            raise StoreRefused("no")

    task.run(Watched(store, refuse_lost).contract)

    failed = look(reader, job)
    assert (failed.state, failed.failures, failed.errors[0].type) == (JobState.RETRYING, 1, "StoreRefused")


# ------------------------------------------------------------------ workers known to be dead


def test_a_sweeper_of_the_dead_is_ready_at_once_and_has_turns_of_its_own(
    store: Store, clock: ManualClock
) -> None:
    task = Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0, only_dead=True)

    assert task.is_ready
    assert task.name != sweeping(store, clock).name


def test_a_sweeper_of_the_dead_leaves_leases_that_have_merely_ended(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    task = Sweeper(sweeper=SWEEPER, clock=clock, roll=lambda: 0.0, only_dead=True)
    [job] = lose(store, clock)

    task.run(store)

    assert look(reader, job).state is JobState.RUNNING
    assert look(reader, job).worker == WORKER
