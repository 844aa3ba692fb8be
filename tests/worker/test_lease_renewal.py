"""Leases are kept as long as their jobs run, and a lost one is noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forebay.domain.job_states import JobState
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS, WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment
from forebay.worker.lease_renewal import TICK_SECONDS, LeaseRenewal, unclosed_stores
from forebay.worker.slots import Slots
from tests.app.watched_engine import WatchedEngine
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER, claim, new_job
from tests.worker.support import eventually, no_thread_stays


class RenewalRig:
    """A renewal whose ticks the test plays itself, and what it has told."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.slots = Slots(4)
        self.cancels: list[PendingCancel] = []
        self.trouble: Callable[[], None] | None = None
        self.engine = WatchedEngine(engine, self._trouble)
        self.clock = clock
        self.renewal = LeaseRenewal(
            engine=self.engine.contract,
            worker=WorkerInfo(id=WORKER),
            slots=self.slots,
            clock=clock,
            on_cancels=self.cancels.extend,
        )

    def _trouble(self, name: str, args: tuple[Any, ...]) -> None:
        if self.trouble is not None:
            self.trouble()

    def hold(self, store: Store, **changes: Any) -> Assignment:
        store.insert([new_job(**changes)])
        [job] = claim(store)
        one = Assignment(job, self.clock.monotonic())
        self.slots.add([one])
        return one


@pytest.fixture
def rig(engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[RenewalRig]:
    monkeypatch.setattr("forebay.worker.lease_renewal.TICK_SECONDS", 3_600.0)
    rig = RenewalRig(engine, clock)
    with no_thread_stays():
        rig.renewal.start()
        yield rig
        rig.trouble = None
        rig.renewal.stop()


def lease_end(reader: Reader, one: Assignment) -> int:
    [job] = reader.jobs([one.job.id])
    assert job is not None
    return job.lease_expires_at or 0


# ------------------------------------------------------------------ renewing


@pytest.mark.shows("R-LEASE-35", "R-LEASE-36", "R-LEASE-18", "R-CFG-70")
def test_a_lease_is_renewed_after_a_third_of_its_length_and_not_before(
    rig: RenewalRig, store: Store, reader: Reader, clock: ManualClock
) -> None:
    one = rig.hold(store)
    end = lease_end(reader, one)
    clock.advance(seconds=9.9)
    rig.renewal.renew_due()
    assert lease_end(reader, one) == end

    clock.advance(seconds=0.1)
    rig.renewal.renew_due()

    assert lease_end(reader, one) == clock.now_ms() + 30_000


@pytest.mark.shows("R-LEASE-48", "R-EDGE-06")
def test_a_job_may_run_much_longer_than_its_lease(
    rig: RenewalRig, store: Store, other_store: Store, clock: ManualClock
) -> None:
    one = rig.hold(store, lease_ms=2_000)

    for _ in range(60):
        clock.advance(seconds=0.5)
        rig.renewal.renew_due()
        assert other_store.sweep(OTHER_WORKER) == []

    assert not one.context.is_lease_lost


@pytest.mark.shows("R-LEASE-23", "R-LEASE-42")
def test_a_job_is_told_when_its_lease_is_lost(
    rig: RenewalRig, store: Store, other_store: Store, clock: ManualClock
) -> None:
    lost, present = rig.hold(store, lease_ms=5_000), rig.hold(store)
    clock.advance(seconds=10)
    assert [job.id for job in other_store.sweep(OTHER_WORKER)] == [lost.job.id]

    rig.renewal.renew_due()

    assert (lost.context.is_lease_lost, present.context.is_lease_lost) == (True, False)


def test_a_lost_job_that_has_not_started_is_never_started_and_not_asked_about_again(
    rig: RenewalRig, store: Store, other_store: Store, clock: ManualClock
) -> None:
    lost, present = rig.hold(store, lease_ms=5_000), rig.hold(store)
    clock.advance(seconds=10)
    other_store.sweep(OTHER_WORKER)
    rig.renewal.renew_due()
    [watched] = rig.engine.stores
    watched.calls.clear()

    clock.advance(seconds=5)
    rig.renewal.renew_due()

    assert (lost.start_by < clock.monotonic(), present.start_by > clock.monotonic()) == (True, True)
    assert "renew" not in watched.calls


@pytest.mark.shows("R-LEASE-42", "R-EDGE-05")
def test_a_store_that_is_away_is_no_lost_lease(rig: RenewalRig, store: Store, clock: ManualClock) -> None:
    one = rig.hold(store)
    clock.advance(seconds=15)

    def away() -> None:
        raise StoreUnavailable("the store is away")

    rig.trouble = away
    with pytest.raises(StoreUnavailable):
        rig.renewal.renew_due()
    assert not one.context.is_lease_lost

    rig.trouble = None
    rig.renewal.renew_due()
    assert not one.context.is_lease_lost
    assert one.renew_at > clock.monotonic()


def test_requests_to_cancel_come_with_the_answer(rig: RenewalRig, store: Store, clock: ManualClock) -> None:
    one = rig.hold(store)
    store.cancel([one.job.id], "no need")
    clock.advance(seconds=10)

    rig.renewal.renew_due()

    assert rig.cancels == [PendingCancel(one.job.id, "no need")]


def test_nothing_is_asked_of_the_store_when_no_lease_is_due(
    rig: RenewalRig, store: Store, clock: ManualClock
) -> None:
    rig.hold(store)
    [watched] = rig.engine.stores
    watched.calls.clear()

    for _ in range(9):
        clock.advance(seconds=1)
        rig.renewal.renew_due()

    assert watched.calls == []


# ------------------------------------------------------------------ being alive


@pytest.mark.shows("R-LEASE-37")
def test_a_worker_sends_heartbeats_at_its_start_and_every_ten_seconds_until_it_is_forgotten(
    rig: RenewalRig, reader: Reader, clock: ManualClock
) -> None:
    [info] = reader.workers()
    assert info.heartbeat_at == clock.now_ms()

    clock.advance(seconds=DEFAULT_HEARTBEAT_MS / 1_000)
    rig.renewal.renew_due()
    [info] = reader.workers()
    assert info.heartbeat_at == clock.now_ms()

    rig.renewal.stop()
    assert reader.workers() == []


def test_a_job_that_did_not_stop_keeps_its_lease_until_that_ends(
    rig: RenewalRig, store: Store, reader: Reader, clock: ManualClock
) -> None:
    rig.hold(store)

    rig.renewal.stop()

    assert reader.workers() == []
    assert store.sweep(SWEEPER) == []
    clock.advance(seconds=60)
    assert len(store.sweep(SWEEPER)) == 1


def test_leases_come_before_the_heartbeat(rig: RenewalRig, store: Store, clock: ManualClock) -> None:
    rig.hold(store)
    clock.advance(seconds=10)
    [watched] = rig.engine.stores
    watched.calls.clear()

    rig.renewal.renew_due()

    assert watched.calls == ["renew", "heartbeat"]


# ------------------------------------------------------------------ life cycle


@pytest.mark.shows("R-LEASE-49")
def test_stopping_is_prompt_and_may_be_repeated(rig: RenewalRig) -> None:
    # The fixture's ticks are an hour apart: a stop that waited for one would run into the test's limit.
    rig.renewal.stop()
    rig.renewal.stop()


def test_stopping_before_the_start_is_fine(engine: Engine, clock: ManualClock) -> None:
    RenewalRig(engine, clock).renewal.stop()


def test_a_stop_while_the_store_is_away_closes_the_handle(rig: RenewalRig, reader: Reader) -> None:
    def away() -> None:
        raise StoreUnavailable("the store is away")

    rig.trouble = away
    [watched] = rig.engine.stores
    watched._trouble = lambda name, args: away() if name != "close" else None

    rig.renewal.stop()

    assert watched.calls[-1] == "close"
    assert len(reader.workers()) == 1


def test_a_stop_while_the_store_is_away_shows_no_death_of_a_worker_whose_jobs_still_run(
    rig: RenewalRig, store: Store, reader: Reader, clock: ManualClock
) -> None:
    one = rig.hold(store)
    assert one.acquire()
    one.started_at = clock.monotonic()

    def away() -> None:
        raise StoreUnavailable("the store is away")

    rig.trouble = away
    rig.renewal.stop()

    assert store.sweep(SWEEPER, only_dead=True) == []
    [watched] = rig.engine.stores
    assert watched.calls[-1] == "remove_worker"
    assert unclosed_stores.pop() is watched
    rig.trouble = None
    watched.contract.close()


def test_a_start_that_fails_leaves_no_handle_open(engine: Engine, clock: ManualClock) -> None:
    rig = RenewalRig(engine, clock)

    def away() -> None:
        rig.trouble = None
        raise StoreUnavailable("the store is away")

    rig.trouble = away
    with no_thread_stays(), pytest.raises(StoreUnavailable):
        rig.renewal.start()

    [watched] = rig.engine.stores
    assert watched.calls == ["heartbeat", "close"]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ZeroDivisionError("a bug")])
def test_the_thread_survives_errors_and_goes_on_renewing(
    engine: Engine, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    rig = RenewalRig(engine, clock)
    assert TICK_SECONDS <= 0.25
    failed = 0

    def trouble() -> None:
        nonlocal failed
        failed += 1
        if failed <= 2:
            raise error

    with no_thread_stays(), caplog.at_level(logging.WARNING):
        rig.renewal.start()
        one = rig.hold(store)
        rig.trouble = trouble
        clock.advance(seconds=10)
        eventually(lambda: one.renew_at > clock.monotonic())
        rig.trouble = None
        rig.renewal.stop()

    assert failed >= 3
    assert "leases" in caplog.text
    assert not one.context.is_lease_lost
    assert one.job.state is JobState.RUNNING
