"""A worker process whose supervisor does not renew renews for itself, and stops when that is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forebay.domain.job_states import JobState
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment
from forebay.worker.lease_table import LeaseTable
from forebay.worker.slots import Slots
from forebay.worker.supervisor.standby_renewal import RELIEVED_SECONDS, StandbyRenewal
from tests.app.watched_engine import WatchedEngine
from tests.stores.support import SWEEPER, WORKER, claim, new_job
from tests.worker.support import eventually, no_thread_stays

SUPERVISOR = 4711


class Scene:
    """A standby renewal, and the supervisor's hand on its page."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.slots = Slots(4)
        self.cancels: list[PendingCancel] = []
        self.calls: list[str] = []
        self.trouble: Callable[[str], None] = lambda name: None
        self.clock = clock
        self.page = LeaseTable.create(10)
        self.standby = StandbyRenewal(
            engine=WatchedEngine(engine, self._watch).contract,
            lease_table=self.page,
            slots=self.slots,
            clock=clock,
            on_cancels=self.cancels.extend,
            report=lambda: WorkerInfo(id=WORKER),
            supervisor=SUPERVISOR,
        )
        self.pass_time(1.0, is_kept=True)  # 0 on the page means that no supervisor has marked it

    def _watch(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls.append(name)
        self.trouble(name)

    def hold(self, store: Store, **changes: Any) -> Assignment:
        store.insert([new_job(**changes)])
        [job] = claim(store)
        one = Assignment(job, self.clock.monotonic())
        self.slots.add([one])
        return one

    def pass_time(self, seconds: float, *, is_kept: bool) -> None:
        self.clock.advance(seconds=seconds)
        if is_kept:
            self.page.mark_renewed(self.clock.monotonic())


@pytest.fixture
def scene(engine: Engine, clock: ManualClock) -> Iterator[Scene]:
    scene = Scene(engine, clock)
    with no_thread_stays():
        yield scene
        scene.trouble = lambda name: None
        scene.standby.stop()
    scene.page.close()


def lease_end(reader: Reader, one: Assignment) -> int:
    [job] = reader.jobs([one.job.id])
    assert job is not None
    return job.lease_expires_at or 0


def test_a_lease_that_was_not_renewed_for_two_thirds_is_renewed(
    scene: Scene, store: Store, reader: Reader
) -> None:
    one = scene.hold(store)
    end = lease_end(reader, one)
    scene.pass_time(19.9, is_kept=True)
    scene.standby.start_if_needed()
    assert not scene.standby.is_active

    scene.pass_time(0.1, is_kept=False)
    scene.standby.start_if_needed()

    eventually(lambda: lease_end(reader, one) > end)
    assert scene.standby.renewals.failures == 0


def test_nothing_is_asked_of_the_store_while_the_supervisor_renews(scene: Scene, store: Store) -> None:
    one = scene.hold(store)
    for _ in range(5):
        scene.pass_time(10.0, is_kept=True)
        one.mark_renewed(scene.clock.monotonic())
        scene.standby.start_if_needed()

    assert scene.calls == []
    assert not scene.standby.is_active


def test_it_ends_when_the_supervisor_renews_again(scene: Scene, store: Store) -> None:
    one = scene.hold(store)
    scene.pass_time(20.0, is_kept=False)
    scene.standby.start_if_needed()
    eventually(lambda: one.start_by > scene.clock.monotonic())

    scene.pass_time(RELIEVED_SECONDS, is_kept=True)

    eventually(lambda: not scene.standby.is_active)


def test_a_worker_without_heartbeats_of_its_supervisor_sends_its_own_and_names_its_supervisor(
    scene: Scene, reader: Reader
) -> None:
    scene.pass_time(6.0, is_kept=False)
    scene.standby.start_if_needed()
    assert not scene.standby.is_active

    scene.pass_time(1.0, is_kept=False)
    scene.standby.start_if_needed()

    [info] = eventually(reader.workers)
    assert (info.id, info.supervisor) == (WORKER, SUPERVISOR)


def test_a_heartbeat_of_a_supervised_process_leaves_the_lock_of_its_supervisor_alone(
    scene: Scene, store: Store, engine: Engine
) -> None:
    one = scene.hold(store)
    scene.pass_time(20.0, is_kept=False)
    scene.standby.start_if_needed()
    eventually(lambda: "heartbeat" in scene.calls and one.start_by > scene.clock.monotonic())
    scene.standby.stop()

    assert store.sweep(SWEEPER, 10, only_dead=True) == []


def test_a_lease_that_was_lost_is_told_to_the_job_and_not_asked_for_again(scene: Scene, store: Store) -> None:
    one = scene.hold(store)
    scene.pass_time(31.0, is_kept=False)
    [swept] = store.sweep(SWEEPER, 10)
    assert swept.state is JobState.RUNNING

    scene.standby.start_if_needed()

    eventually(lambda: one.context.is_lease_lost)
    scene.pass_time(RELIEVED_SECONDS, is_kept=True)
    eventually(lambda: not scene.standby.is_active)
    assert scene.calls.count("renew") == 1


def test_requests_to_cancel_come_with_the_answer(scene: Scene, store: Store) -> None:
    one = scene.hold(store)
    store.cancel([one.job.id], "not needed")
    scene.pass_time(20.0, is_kept=False)

    scene.standby.start_if_needed()

    eventually(lambda: [cancel.job_id for cancel in scene.cancels] == [one.job.id])


def test_a_store_that_is_away_leaves_the_lease_in_doubt_until_it_answers(scene: Scene, store: Store) -> None:
    def away(name: str) -> None:
        raise StoreUnavailable("away")

    one = scene.hold(store)
    scene.trouble = away
    scene.pass_time(20.0, is_kept=False)
    scene.standby.start_if_needed()
    eventually(lambda: one.context.is_lease_in_doubt)
    assert not one.context.is_lease_lost

    scene.trouble = lambda name: None

    eventually(lambda: not one.context.is_lease_in_doubt)
    assert one.start_by > scene.clock.monotonic()


def test_a_fault_of_our_own_does_not_end_the_thread(scene: Scene, store: Store) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("broken")

    one = scene.hold(store)
    scene.trouble = broken
    scene.pass_time(20.0, is_kept=False)
    scene.standby.start_if_needed()
    eventually(lambda: scene.standby.renewals.failures)

    scene.trouble = lambda name: None

    eventually(lambda: one.start_by > scene.clock.monotonic())


def test_under_a_supervisor_that_marks_no_time_leases_are_renewed_and_no_heartbeats_are_sent(
    scene: Scene, store: Store
) -> None:
    scene.page.mark_renewed(0.0)
    one = scene.hold(store)
    scene.pass_time(20.0, is_kept=False)

    scene.standby.start_if_needed()

    eventually(lambda: one.start_by > scene.clock.monotonic())
    eventually(lambda: not scene.standby.is_active)
    assert "heartbeat" not in scene.calls
