"""A coordinator's turns: settle, claim, dispatch, do maintenance tasks, and say how long to sleep."""

from __future__ import annotations

import logging

import pytest

from forebay.domain.job import QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError, Completed, Discarded, Failed, Snoozed
from forebay.domain.retry_policy import RetryPolicy
from forebay.maintenance.due_job_promoter import Promoter
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.operations.maintenance_task import MaintenanceTask
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import ExecutorKind
from tests.app.watched_store import Watched
from tests.stores.support import OTHER_WORKER, claim, complete
from tests.worker.rig import Rig

BOOM = AttemptError(type="Boom", message="it broke")


# ------------------------------------------------------------------ settle and claim


@pytest.mark.shows("R-LEASE-11", "R-WORK-17")
def test_a_turn_claims_for_the_free_slots_and_gives_the_jobs_to_the_executor(rig: Rig) -> None:
    ids = rig.insert(5)
    coordinator = rig.coordinator(threads=2)

    coordinator.tick()

    assert [one.job.id for one in rig.threads.given] == ids[:2]
    assert rig.states(ids) == {"running": 2, "pending": 3}


def test_what_has_ended_is_settled_before_more_is_claimed_in_the_same_call(rig: Rig) -> None:
    ids = rig.insert(3)
    watched = Watched(rig.store)
    coordinator = rig.coordinator(threads=1, store=watched.contract)
    coordinator.tick()
    rig.finish_all(Completed(b"7"))

    coordinator.tick()

    assert watched.calls == ["settle_and_claim", "settle_and_claim"]
    assert rig.states(ids) == {"completed": 1, "running": 1, "pending": 1}
    assert rig.job(ids[0]).result == b"7"


@pytest.mark.shows("R-DONE-20")
def test_all_that_has_piled_up_is_settled_by_one_call(rig: Rig) -> None:
    ids = rig.insert(8)
    watched = Watched(rig.store)
    coordinator = rig.coordinator(threads=8, store=watched.contract)
    coordinator.tick()
    rig.finish_all()

    coordinator.tick()

    assert watched.calls == ["settle_and_claim", "settle_and_claim"]
    assert rig.states(ids) == {"completed": 8}
    assert coordinator.is_idle


@pytest.mark.shows("R-WORK-07")
def test_the_jobs_that_ran_last_are_known_by_name(rig: Rig) -> None:
    ids = rig.insert(14)
    coordinator = rig.coordinator(threads=7)

    for _ in range(2):
        coordinator.tick()
        rig.finish_all()
    coordinator.tick()

    assert rig.states(ids) == {"completed": 14}
    assert rig.slots.recent == tuple(ids[-10:])


@pytest.mark.shows("R-RETRY-01", "R-RETRY-06", "R-RETRY-27")
def test_a_failed_job_is_run_again_when_it_is_due_and_dies_after_its_last_retry(rig: Rig) -> None:
    [job] = rig.insert(policy=RetryPolicy(max_retries=2))
    coordinator = rig.coordinator()
    states = []

    for _ in range(3):
        coordinator.tick()
        rig.finish_all(Failed(BOOM))
        pause = coordinator.tick()
        states.append(rig.job(job).state)
        rig.clock.advance(seconds=pause)
        rig.clock.advance(seconds=60)

    assert states == [JobState.RETRYING, JobState.RETRYING, JobState.DEAD]
    assert [one.attempt for one in rig.history(job).attempts] == [1, 2, 3]


@pytest.mark.shows("R-RETRY-27")
def test_a_turn_sleeps_no_longer_than_until_the_next_job_is_due(rig: Rig) -> None:
    rig.insert(delay_ms=300)

    assert rig.coordinator().tick() == pytest.approx(0.3)


@pytest.mark.parametrize("queue", ["calls", "coroutines"])
def test_a_worker_of_two_lanes_wakes_for_the_next_job_of_either(rig: Rig, queue: str) -> None:
    rig.lanes = {"calls": frozenset([ExecutorKind.CALLS]), "coroutines": frozenset([ExecutorKind.COROUTINES])}
    [job] = rig.insert(queue=QueueName(queue), delay_ms=300)
    rig.insert(queue=QueueName(queue), delay_ms=2_000)
    coordinator = rig.coordinator(queues=["calls", "coroutines"])

    def pauses() -> list[float]:
        found = [coordinator.tick()]
        while not found[-1]:
            found.append(coordinator.tick())
        return found

    assert pauses() == [0.0, pytest.approx(0.3)]
    rig.clock.advance(seconds=0.3)
    assert pauses()[-1] == pytest.approx(0.7)  # its maintenance tasks; the past is forgotten
    assert rig.job(job).state is JobState.RUNNING


def test_a_job_of_a_fresh_delay_of_zero_is_claimed_in_the_turn_that_settles_it(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    coordinator.tick()
    rig.finish_all(Failed(BOOM, after_ms=0))

    coordinator.tick()

    assert [one.job.attempt for one in rig.threads.given] == [1, 2]
    assert rig.job(job).state is JobState.RUNNING
    assert len(rig.slots) == 1


def test_a_snoozed_job_counts_no_failure(rig: Rig) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    coordinator.tick()
    rig.finish_all(Snoozed(60_000))

    coordinator.tick()

    assert (rig.job(job).state, rig.job(job).failures) == (JobState.SCHEDULED, 0)


@pytest.mark.shows("R-LEASE-24", "R-LEASE-26", "R-LEASE-45", "R-EDGE-03")
@pytest.mark.parametrize("outcome", [Completed(b"mine"), Failed(BOOM)])
def test_a_settlement_of_a_lost_lease_is_dropped_and_reported(
    rig: Rig, other_store: Store, caplog: pytest.LogCaptureFixture, outcome: Completed | Failed
) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator()
    coordinator.tick()
    [mine] = rig.threads.begin()
    rig.clock.advance(seconds=31)
    [swept] = other_store.sweep(OTHER_WORKER)
    other_store.settle_and_claim(OTHER_WORKER, [complete(swept, b"theirs")])
    rig.threads.finish(mine, outcome)

    with caplog.at_level(logging.WARNING):
        coordinator.tick()

    assert rig.job(job).result == b"theirs"
    assert coordinator.is_idle
    assert [line for line in caplog.messages if "lease lost" in line and job in line]
    assert EventKind.REFUSED in [event.kind for event in rig.history(job).events]


def test_one_settlement_that_cannot_be_stored_does_not_hold_up_the_others(rig: Rig) -> None:
    ids = rig.insert(5, policy=RetryPolicy(max_retries=0))
    coordinator = rig.coordinator(threads=5)
    coordinator.tick()
    ugly = Discarded(AttemptError(type="Boom", message="half of a pair: \ud800"))
    for number, one in enumerate(rig.threads.begin()):
        rig.threads.finish(one, ugly if number == 2 else Completed(b"1"))

    coordinator.tick()

    assert rig.states(ids) == {"completed": 4, "dead": 1}
    assert "cannot hold" in (rig.job(ids[2]).reason or "")
    assert coordinator.is_idle


def test_queues_take_turns_so_that_none_waits_behind_the_others(rig: Rig) -> None:
    rig.insert(6, queue=QueueName("a"))
    rig.insert(6, queue=QueueName("b"))
    coordinator = rig.coordinator(threads=1, queues=["a", "b"])

    for _ in range(6):
        coordinator.tick()
        rig.finish_all()

    assert [one.job.queue for one in rig.threads.given] == ["b", "a", "b", "a", "b", "a"]


def test_coroutines_are_claimed_while_all_threads_are_taken(rig: Rig) -> None:
    rig.lanes = {"calls": frozenset([ExecutorKind.CALLS]), "web": frozenset([ExecutorKind.COROUTINES])}
    rig.insert(3, queue=QueueName("calls"))
    rig.insert(30, queue=QueueName("web"), task="co")
    coordinator = rig.coordinator(threads=2, coroutines=20, queues=["calls", "web"])

    assert coordinator.tick() == 0.0  # the other lane has its turn before the coordinator sleeps
    assert coordinator.tick() > 0.0

    assert (len(rig.threads.given), len(rig.loop.given)) == (2, 20)


# ------------------------------------------------------------------ what starts late


def test_what_could_not_start_within_a_second_is_handed_back_without_a_failure(rig: Rig) -> None:
    ids = rig.insert(2)
    coordinator = rig.coordinator(threads=2)
    coordinator.tick()
    rig.threads.begin(1)
    rig.clock.advance(seconds=0.9)
    coordinator.tick()
    assert rig.states(ids) == {"running": 2}

    rig.clock.advance(seconds=0.1)
    coordinator.is_claiming = False
    coordinator.tick()

    late = rig.job(ids[1])
    assert (late.state, late.failures, late.crashes) == (JobState.PENDING, 0, 0)
    assert not rig.threads.begin()  # its ownership is gone: the executor cannot start it any more


def test_a_job_that_an_executor_has_taken_and_not_begun_is_not_waited_for(rig: Rig) -> None:
    rig.insert(1)
    coordinator = rig.coordinator(threads=1)
    coordinator.tick()
    [one] = rig.threads.given
    assert one.acquire()
    rig.clock.advance(seconds=2)
    coordinator.tick()

    assert coordinator.tick() > 0


def test_a_turn_sleeps_no_longer_than_until_a_waiting_job_is_late(rig: Rig) -> None:
    rig.insert(1)
    coordinator = rig.coordinator(threads=1)

    assert coordinator.tick() == pytest.approx(1.0)


# ------------------------------------------------------------------ maintenance tasks and sleep


class Counting:
    """A maintenance task that counts how often it is done."""

    name = "count"
    every_ms = 1_000
    is_ready = True

    def __init__(self, batches: int = 1) -> None:
        self.batches = batches
        self.runs = 0

    def run(self, store: Store) -> bool:
        self.runs += 1
        return self.runs < self.batches


def test_maintenance_tasks_are_done_at_the_start_and_then_each_second(rig: Rig) -> None:
    task = Counting()
    tasks: list[MaintenanceTask] = [task]
    coordinator = rig.coordinator(tasks=tasks)
    runs = []

    for _ in range(8):
        coordinator.tick()
        runs.append(task.runs)
        rig.clock.advance(seconds=0.25)

    assert runs == [1, 1, 1, 1, 2, 2, 2, 2]


class CountingReader(Counting):
    """A maintenance task that notes when it was done, and how many jobs had been started by then."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self._rig = rig
        self.seen: list[tuple[float, int]] = []

    def run(self, store: Store) -> bool:
        self.seen.append((self._rig.clock.monotonic(), len(self._rig.threads.given)))
        return super().run(store)


def test_maintenance_tasks_wait_for_a_turn_without_jobs_to_start(rig: Rig) -> None:
    rig.insert()
    task = CountingReader(rig)
    coordinator = rig.coordinator(tasks=[task])

    pause = coordinator.tick()
    before = task.runs
    rig.clock.advance(seconds=pause)
    coordinator.tick()

    assert (before, pause, task.runs) == (0, 0.125, 1)


def test_a_worker_that_always_has_jobs_to_start_does_its_maintenance_tasks_a_little_late(rig: Rig) -> None:
    rig.insert(20)
    task = CountingReader(rig)
    coordinator = rig.coordinator(tasks=[task])
    began = rig.clock.monotonic()

    for _ in range(13):
        coordinator.tick()
        rig.clock.advance(seconds=0.125)
        rig.finish_all()
        rig.insert(10)

    assert [at - began for at, _ in task.seen] == [0.25, 1.5]


def test_no_job_starts_before_the_maintenance_tasks_of_its_turn_are_done(rig: Rig) -> None:
    task = CountingReader(rig)
    coordinator = rig.coordinator(tasks=[task])
    rig.insert()
    rig.clock.advance(seconds=0.25)  # so that they do not wait any longer

    coordinator.tick()

    assert [started for _, started in task.seen] == [0]
    assert len(rig.threads.given) == 1


def test_a_wakeup_comes_before_the_maintenance_tasks_that_are_left(rig: Rig) -> None:
    class Waking(Counting):
        name = "wake-up"

        def run(self, store: Store) -> bool:
            rig.inbox.wake()
            return super().run(store)

    first, second = Waking(), Counting()
    coordinator = rig.coordinator(tasks=[first, second])

    coordinator.tick()
    before = second.runs
    rig.clock.advance(seconds=0.125)
    coordinator.tick()

    assert (before, first.runs, second.runs) == (0, 1, 1)


@pytest.mark.shows("R-SWEEP-08")
def test_an_idle_worker_sleeps_until_its_maintenance_tasks_are_due(rig: Rig) -> None:
    coordinator = rig.coordinator(tasks=[Counting()])

    assert coordinator.tick() == pytest.approx(1.0)
    rig.clock.advance(seconds=0.4)
    assert coordinator.tick() == pytest.approx(0.6)


def test_a_maintenance_task_with_more_to_do_is_gone_on_with_at_once(rig: Rig) -> None:
    coordinator = rig.coordinator(tasks=[Counting(batches=100)])

    assert coordinator.tick() == 0.0


@pytest.mark.shows("R-SWEEP-04", "R-SWEEP-06", "R-SWEEP-11")
def test_a_worker_sweeps_soon_after_its_start_and_again_and_again(rig: Rig, other_store: Store) -> None:
    sweeper = WorkerId("sweeper")
    tasks = standard_tasks(sweeper=sweeper, clock=rig.clock, roll=lambda: 1.0)
    coordinator = rig.coordinator(tasks=tasks)
    swept = []

    for _ in range(3):
        [job] = rig.insert(queue=QueueName("elsewhere"))
        claim(other_store, queue=QueueName("elsewhere"), worker=OTHER_WORKER)
        for _ in range(45):
            rig.clock.advance(seconds=1)
            coordinator.tick()
        swept.append((rig.job(job).state, rig.job(job).crashes))
        other_store.cancel([job])

    assert swept == [(JobState.PENDING, 1)] * 3


def test_due_jobs_of_queues_that_no_worker_serves_are_promoted_too(rig: Rig) -> None:
    [job] = rig.insert(queue=QueueName("elsewhere"), delay_ms=500)
    coordinator = rig.coordinator(tasks=[Promoter()])
    coordinator.tick()

    rig.clock.advance(seconds=1)
    coordinator.tick()

    assert rig.job(job).state is JobState.PENDING


@pytest.mark.shows("R-LEASE-09")
def test_an_empty_queue_is_asked_once_for_each_sleep(rig: Rig, clock: ManualClock) -> None:
    watched = Watched(rig.store)
    coordinator = rig.coordinator(store=watched.contract)

    pauses = []
    for _ in range(3):
        pauses.append(coordinator.tick())
        clock.advance(seconds=pauses[-1])

    assert watched.calls == ["settle_and_claim"] * 3
    assert min(pauses) > 0


def test_a_coordinator_that_does_not_claim_settles_and_claims_nothing(rig: Rig) -> None:
    ids = rig.insert(3)
    coordinator = rig.coordinator(threads=1)
    coordinator.tick()
    rig.finish_all()
    coordinator.is_claiming = False

    coordinator.tick()

    assert rig.states(ids) == {"completed": 1, "pending": 2}
    assert claim(rig.store, 1, worker=OTHER_WORKER) != []


def test_wants_name_the_room_there_is(rig: Rig) -> None:
    requested: list[object] = []
    watched = Watched(rig.store, lambda name, args: requested.append(args[2:4]))

    rig.coordinator(threads=3, store=watched.contract).tick()

    assert requested == [([QueueClaim(QueueName("default"), 3)], 3)]
