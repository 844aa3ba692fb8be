"""A store that is away, or whose answers get lost: nothing is dropped and nothing runs twice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from forebay.domain.job import QueueName
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Completed, Failed, Interrupted
from forebay.domain.settlement import decide
from forebay.errors import StoreError, StoreUnavailable
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.stores.contract.store import Store
from forebay.worker.coordinator import Coordinator
from forebay.worker.task_invoker import JobTimeout
from tests.app.watched_store import Watched
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER, claim
from tests.worker.rig import Rig


class Outage:
    """Makes calls fail while it lasts, before or after the store has done its work."""

    def __init__(self, *names: str, error: Callable[[], BaseException] | None = None) -> None:
        self.lasts = False
        self._names = names or ("settle_and_claim",)
        self._error = error or (lambda: StoreUnavailable("the store is away"))

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if self.lasts and name in self._names:
            raise self._error()


def on_bad_ground(rig: Rig, outage: Outage, *, too_late: bool = False, **options: Any) -> Coordinator:
    watched = Watched(rig.store, outage, too_late=too_late)
    return rig.coordinator(store=watched.contract, **options)


before_and_after = pytest.mark.parametrize("too_late", [False, True], ids=["before", "after"])


# ------------------------------------------------------------------ waiting


def test_what_ends_meanwhile_does_not_make_the_wait_longer_and_is_not_logged_each_time(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage()
    coordinator = on_bad_ground(rig, outage)
    coordinator.tick()
    outage.lasts = True
    first = coordinator.tick()

    rest = [coordinator.tick() for _ in range(20)]
    rig.clock.advance(seconds=first + 0.001)
    second = coordinator.tick()

    assert rest == pytest.approx([first] * 20)
    assert second == pytest.approx(2 * first)
    assert len([line for line in caplog.messages if "the store is away" in line]) == 2


# ------------------------------------------------------------------ settlements


@pytest.mark.shows("R-EDGE-66", "R-LEASE-25", "R-LEASE-15")
@before_and_after
@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Completed(b"7"), JobState.COMPLETED),
        (Failed(AttemptError(type="Boom"), after_ms=600_000), JobState.RETRYING),
    ],
    ids=["completed", "failed"],
)
def test_settlements_are_kept_and_offered_again_until_the_store_answers(
    rig: Rig, too_late: bool, outcome: Completed | Failed, state: JobState
) -> None:
    ids = rig.insert(2)
    outage = Outage()
    coordinator = on_bad_ground(rig, outage, too_late=too_late)
    coordinator.tick()
    rig.finish_all(outcome)
    outage.lasts = True
    for _ in range(20):
        assert coordinator.tick() > 0
        rig.clock.advance(seconds=10)
    was_idle = coordinator.is_idle

    outage.lasts = False
    coordinator.tick()
    coordinator.tick()

    assert (was_idle, coordinator.is_idle) == (False, True)
    assert rig.states(ids) == {state.value: 2}
    assert [rig.job(job).failures for job in ids] == [int(state is JobState.RETRYING)] * 2
    assert not [event for job in ids for event in rig.history(job).events]  # repeated is not refused


def test_the_pause_between_two_tries_grows_to_five_seconds_and_starts_again(rig: Rig) -> None:
    outage = Outage()
    coordinator = on_bad_ground(rig, outage)
    outage.lasts = True
    pauses = []
    for _ in range(9):
        pauses.append(coordinator.tick())
        rig.clock.advance(seconds=pauses[-1] + 0.001)

    outage.lasts = False
    coordinator.tick()
    outage.lasts = True

    assert pauses[:3] == pytest.approx([0.1, 0.2, 0.4])
    assert pauses[-1] == pytest.approx(5.0)
    assert coordinator.tick() == pytest.approx(0.1)


@pytest.mark.shows("R-RATE-19")
def test_jobs_go_on_running_and_what_they_return_is_accepted_after_the_outage(rig: Rig) -> None:
    [job] = rig.insert()
    outage = Outage()
    coordinator = on_bad_ground(rig, outage)
    coordinator.tick()
    [one] = rig.threads.begin()
    outage.lasts = True
    coordinator.tick()
    rig.threads.finish(one, Completed(b"7"))
    coordinator.tick()

    outage.lasts = False
    coordinator.tick()

    assert rig.job(job).result == b"7"


def test_what_another_worker_has_taken_over_meanwhile_is_refused(rig: Rig, other_store: Store) -> None:
    [job] = rig.insert()
    outage = Outage()
    coordinator = on_bad_ground(rig, outage)
    coordinator.tick()
    rig.finish_all(Completed(b"mine"))
    outage.lasts = True
    coordinator.tick()
    rig.clock.advance(seconds=60)
    other_store.sweep(OTHER_WORKER)

    outage.lasts = False
    coordinator.tick()

    assert rig.job(job).result is None
    assert [one.kind for one in rig.history(job).events] == [EventKind.SWEPT, EventKind.REFUSED]
    assert not [one for one in rig.slots if one.job.id == job]


def test_time_runs_out_while_the_store_is_away(rig: Rig) -> None:
    rig.insert(timeout_ms=1_000)
    outage = Outage()
    coordinator = on_bad_ground(rig, outage)
    coordinator.tick()
    [one] = rig.threads.begin()
    outage.lasts = True
    for _ in range(6):
        coordinator.tick()
    rig.clock.advance(seconds=0.9)
    assert coordinator.tick() == pytest.approx(0.1)

    rig.clock.advance(seconds=0.1)
    coordinator.tick()

    assert isinstance(one.stopped_by, JobTimeout)


@pytest.mark.parametrize(
    "only", [(), ("acquire_maintenance",)], ids=["wholly away", "maintenance tasks only"]
)
def test_after_an_outage_the_sweep_lets_the_holders_of_leases_come_first(
    rig: Rig, other_store: Store, only: tuple[str, ...]
) -> None:
    outage = Outage(*only)
    tasks = standard_tasks(sweeper=SWEEPER, clock=rig.clock, roll=lambda: 1.0)
    coordinator = on_bad_ground(rig, outage, tasks=tasks)
    for _ in range(15):
        coordinator.tick()
        rig.clock.advance(seconds=1)
    rig.insert(queue=QueueName("elsewhere"))
    [job] = claim(other_store, queue=QueueName("elsewhere"), worker=OTHER_WORKER)
    outage.lasts = True
    for _ in range(40):
        coordinator.tick()
        rig.clock.advance(seconds=1)

    outage.lasts = False
    for _ in range(9):
        coordinator.tick()
        rig.clock.advance(seconds=1)

    lease = Lease(job.id, job.attempt)
    assert other_store.renew(OTHER_WORKER, [lease]).renewed == (lease,)


def test_who_does_not_come_back_after_an_outage_is_swept_in_the_end(rig: Rig, other_store: Store) -> None:
    outage = Outage()
    tasks = standard_tasks(sweeper=SWEEPER, clock=rig.clock, roll=lambda: 1.0)
    coordinator = on_bad_ground(rig, outage, tasks=tasks)
    [job] = rig.insert(queue=QueueName("elsewhere"))
    claim(other_store, queue=QueueName("elsewhere"), worker=OTHER_WORKER)
    for outage.lasts in [False, *[True] * 40, *[False] * 13]:
        coordinator.tick()
        rig.clock.advance(seconds=1)

    assert (rig.job(job).state, rig.job(job).crashes) == (JobState.PENDING, 1)


# ------------------------------------------------------------------ lost answers


@pytest.mark.shows("R-LEASE-25")
def test_jobs_of_a_claim_whose_answer_was_lost_are_recovered_and_run_once(rig: Rig) -> None:
    ids = rig.insert(2)
    outage = Outage()
    coordinator = on_bad_ground(rig, outage, too_late=True)
    outage.lasts = True
    coordinator.tick()
    assert rig.states(ids) == {"running": 2}
    assert rig.threads.given == []

    outage.lasts = False
    for _ in range(3):
        coordinator.tick()
        rig.finish_all()
    coordinator.tick()

    assert sorted(one.job.id for one in rig.threads.given) == sorted(ids)
    assert rig.states(ids) == {"completed": 2}
    assert [rig.job(job).attempt for job in ids] == [1, 1]


@pytest.mark.shows("R-RATE-19")
def test_in_doubt_nothing_new_is_claimed_before_the_old_is_known(rig: Rig) -> None:
    ids = rig.insert(6)
    outage = Outage()
    coordinator = on_bad_ground(rig, outage, too_late=True)
    outage.lasts = True
    for _ in range(3):
        coordinator.tick()

    outage.lasts = False

    assert coordinator.tick() == 0.0  # then it asks at once
    assert rig.states(ids) == {"running": 2, "pending": 4}
    assert len(rig.threads.given) == 2


def test_a_recovered_lease_is_renewed_before_its_job_is_started(rig: Rig) -> None:
    [job] = rig.insert()
    outage = Outage()
    coordinator = on_bad_ground(rig, outage, too_late=True)
    outage.lasts = True
    coordinator.tick()
    rig.clock.advance(seconds=29)

    outage.lasts = False
    coordinator.tick()

    assert rig.job(job).lease_expires_at == rig.clock.now_ms() + 30_000
    [one] = rig.threads.given
    assert one.start_by > rig.clock.monotonic()


def test_a_recovered_job_is_not_started_when_its_lease_cannot_be_renewed(rig: Rig) -> None:
    [job] = rig.insert()
    outage = Outage("settle_and_claim", "renew")
    coordinator = on_bad_ground(rig, outage, too_late=True)
    outage.lasts = True
    coordinator.tick()
    outage = Outage("renew")
    coordinator._store = Watched(rig.store, outage).contract
    outage.lasts = True

    coordinator.tick()
    assert rig.threads.given == []
    outage.lasts = False
    coordinator.tick()

    assert [one.job.id for one in rig.threads.given] == [job]


def test_a_worker_that_stops_hands_back_what_it_recovers(rig: Rig) -> None:
    [job] = rig.insert()
    outage = Outage()
    coordinator = on_bad_ground(rig, outage, too_late=True)
    outage.lasts = True
    coordinator.tick()
    coordinator.is_claiming = False
    was_idle = coordinator.is_idle

    outage.lasts = False
    coordinator.tick()
    coordinator.tick()

    assert (was_idle, coordinator.is_idle) == (False, True)  # at first it may hold something
    assert rig.threads.given == []
    assert (rig.job(job).state, rig.job(job).failures) == (JobState.PENDING, 0)


def test_jobs_claimed_before_a_maintenance_task_found_the_store_away_are_run_once(rig: Rig) -> None:
    ids = rig.insert(2)
    outage = Outage("acquire_maintenance")

    class Nothing:
        name = "nothing"
        every_ms = 1_000
        is_ready = True

        def run(self, store: Store) -> bool:
            return False

    coordinator = on_bad_ground(rig, outage, tasks=[Nothing()])
    outage.lasts = True
    coordinator.tick()
    outage.lasts = False
    coordinator.tick()

    assert [one.job.id for one in rig.threads.given] == ids


def test_the_next_attempt_at_a_job_may_run_here_next_to_the_lost_one(rig: Rig, other_store: Store) -> None:
    [job] = rig.insert()
    coordinator = rig.coordinator(threads=2)
    coordinator.tick()
    [lost] = rig.threads.begin()
    rig.clock.advance(seconds=31)
    [swept] = other_store.sweep(OTHER_WORKER)
    other_store.settle_and_claim(OTHER_WORKER, [decide(swept, Interrupted(), 0.0)])
    coordinator.tick()
    [present] = rig.threads.begin()

    rig.threads.finish(lost, Completed(b"old"))
    coordinator.tick()
    assert rig.slots.leases() == [present.lease]
    rig.threads.finish(present, Completed(b"new"))
    coordinator.tick()

    assert rig.job(job).result == b"new"
    assert coordinator.is_idle


# ------------------------------------------------------------------ worse


@pytest.mark.shows("R-WORK-16")
def test_a_fault_of_our_own_is_logged_and_the_turns_go_on(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    ids = rig.insert(2)
    outage = Outage(error=lambda: ZeroDivisionError("a bug"))
    coordinator = on_bad_ground(rig, outage)
    outage.lasts = True
    with caplog.at_level(logging.ERROR):
        pause = coordinator.tick()

    outage.lasts = False
    for _ in range(3):
        coordinator.tick()
        rig.finish_all()
    coordinator.tick()

    assert pause > 0
    assert "a tick of the coordinator failed" in caplog.text
    assert rig.states(ids) == {"completed": 2}


def test_a_store_that_cannot_be_used_ends_the_turns(rig: Rig) -> None:
    outage = Outage(error=lambda: StoreError("this handle is closed"))
    coordinator = on_bad_ground(rig, outage)
    outage.lasts = True

    with pytest.raises(StoreError):
        coordinator.tick()


def test_the_worker_id_is_on_every_lease(rig: Rig) -> None:
    [job] = rig.insert()
    rig.coordinator().tick()

    assert rig.job(job).worker == WORKER
