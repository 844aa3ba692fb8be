"""Renewals that fail or hang are seen, counted and said; nothing is lost by that alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from forebay import Forebay, current_job
from forebay.app.job_context import RenewalStatus
from forebay.domain.worker import DEFAULT_HEARTBEAT_MS
from forebay.errors import StoreUnavailable
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.command_execution import Control
from forebay.worker.lease_renewal_health import HANGS_SECONDS
from forebay.worker.worker import Worker
from tests.app.watched_engine import WatchedEngine
from tests.stores.support import OTHER_WORKER, WORKER
from tests.worker.support import DEADLINE, eventually, no_thread_stays
from tests.worker.test_command_execution import Stub
from tests.worker.test_lease_renewal import RenewalRig, rig

__all__ = ["rig"]


def away() -> None:
    raise StoreUnavailable("the store is away")


def fail(rig: RenewalRig, times: int = 1) -> None:
    rig.trouble = away
    for _ in range(times):
        with pytest.raises(StoreUnavailable):
            rig.renewal.renew_due()
    rig.trouble = None


@contextmanager
def hanging(rig: RenewalRig) -> Iterator[Event]:
    """A renewal that is stuck in the store until the event, or the end of the block."""
    reached, go_on = Event(), Event()

    def hang() -> None:
        reached.set()
        assert go_on.wait(DEADLINE)

    rig.trouble = hang
    caller = Thread(target=rig.renewal.renew_due, daemon=True)
    caller.start()
    assert reached.wait(DEADLINE)
    try:
        yield go_on
    finally:
        go_on.set()
        caller.join(DEADLINE)
        rig.trouble = None


# ------------------------------------------------------------------ failing


@pytest.mark.shows("R-LEASE-39", "R-LEASE-44")
def test_failures_in_a_row_are_counted_and_a_success_starts_again_from_nothing(
    rig: RenewalRig, store: Store, clock: ManualClock
) -> None:
    rig.hold(store)
    clock.advance(seconds=10)
    fail(rig, times=3)
    failed = rig.renewal.renewals

    clock.advance(seconds=1)
    rig.renewal.renew_due()

    assert (failed.failures, failed.hangs_for) == (3, None)
    assert rig.renewal.renewals.failures == 0
    assert rig.renewal.renewals.succeeded_at == clock.now_ms()


@pytest.mark.shows("R-LEASE-39", "R-LEASE-44")
def test_a_worker_without_leases_counts_its_heartbeats(rig: RenewalRig, clock: ManualClock) -> None:
    clock.advance(seconds=10)
    fail(rig, times=2)
    failed = rig.renewal.renewals.failures

    rig.renewal.renew_due()

    assert (failed, rig.renewal.renewals.failures) == (2, 0)


def test_a_look_for_commands_that_fails_is_counted_too(rig: RenewalRig, clock: ManualClock) -> None:
    rig.renewal._control = Control(Stub(), rig.slots)
    fail(rig)
    failed = rig.renewal.renewals.failures

    clock.advance(seconds=1)
    rig.renewal.renew_due()

    assert (failed, rig.renewal.renewals.failures) == (1, 0)


@pytest.mark.shows("R-LEASE-29", "R-EDGE-05", "R-LEASE-42", "R-LEASE-39")
def test_a_job_is_told_that_its_lease_is_in_doubt_and_when_it_is_not_any_more(
    rig: RenewalRig, store: Store, clock: ManualClock
) -> None:
    one, fresh = rig.hold(store), rig.hold(store)
    clock.advance(seconds=10)
    fresh.mark_renewed(clock.monotonic())
    fail(rig, times=2)
    in_doubt = (one.context.is_lease_in_doubt, one.context.renewals, fresh.context.is_lease_in_doubt)

    rig.renewal.renew_due()

    assert in_doubt == (True, RenewalStatus(failures=2), False)
    assert not one.context.is_lease_in_doubt
    assert one.context.renewals == RenewalStatus(renewed_at=clock.now_ms())
    assert not one.context.is_lease_lost


@pytest.mark.shows("R-LEASE-29", "R-WORK-26")
def test_a_job_knows_who_holds_it_since_when_and_why_it_is_lost(
    rig: RenewalRig, store: Store, other_store: Store, clock: ManualClock
) -> None:
    began = clock.now_ms()
    one = rig.hold(store, lease_ms=5_000)
    context = one.context
    assert (context.id, context.fencing_token, context.claimed_at) == (one.job.id, (1, WORKER), began)
    assert (context.renewals, context.is_lease_lost) == (RenewalStatus(), False)
    clock.advance(seconds=2)
    rig.renewal.renew_due()
    renewed_at = clock.now_ms()
    clock.advance(seconds=10)
    other_store.sweep(OTHER_WORKER)

    rig.renewal.renew_due()

    assert context.is_lease_lost
    assert context.renewals.renewed_at == renewed_at
    assert context.renewals.lost_because
    assert not context.is_lease_in_doubt


def test_a_heartbeat_that_fails_puts_no_lease_in_doubt_that_was_just_renewed(
    rig: RenewalRig, store: Store, clock: ManualClock
) -> None:
    one = rig.hold(store)
    clock.advance(seconds=10)
    [watched] = rig.engine.stores
    watched._trouble = lambda name, args: away() if name == "heartbeat" else None
    with pytest.raises(StoreUnavailable):
        rig.renewal.renew_due()
    watched._trouble = None

    assert rig.renewal.renewals.failures == 1
    assert not one.context.is_lease_in_doubt


@pytest.mark.shows("R-RATE-19")
def test_a_store_in_trouble_is_asked_more_rarely_until_it_answers(
    rig: RenewalRig, clock: ManualClock
) -> None:
    pauses: list[float] = []

    class Played(Event):
        """A stop that notes the pauses instead of waiting, and comes after ten of them."""

        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            rig.trouble = away if len(pauses) <= 6 else None
            clock.advance(seconds=DEFAULT_HEARTBEAT_MS / 1_000)
            return len(pauses) == 10

    rig.renewal._stop.set()
    rig.renewal._thread.join(DEADLINE)
    rig.renewal._store = rig.renewal._engine.store()  # the thread has closed its own
    rig.renewal._stop = Played()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forebay.worker.lease_renewal.TICK_SECONDS", 0.25)
        rig.renewal._run()

    assert pauses == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0, 0.25, 0.25, 0.25]


# ------------------------------------------------------------------ hanging


@pytest.mark.shows("R-LEASE-46", "R-LEASE-39", "R-EDGE-05")
def test_a_renewal_that_hangs_is_seen_and_counted_for_each_five_seconds(
    rig: RenewalRig, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    one = rig.hold(store)
    clock.advance(seconds=10)

    with hanging(rig):
        clock.advance(seconds=HANGS_SECONDS - 0.1)
        rig.renewal._monitor.check_hanging()
        early = rig.renewal.renewals.failures
        # From here on it is the worker's own watcher that looks.
        clock.advance(seconds=0.1)
        eventually(lambda: rig.renewal.renewals.failures == 1)
        was_in_doubt = one.context.is_lease_in_doubt
        assert (rig.renewal.renewals.hangs_for or 0.0) >= HANGS_SECONDS
        clock.advance(seconds=HANGS_SECONDS)
        eventually(lambda: rig.renewal.renewals.failures == 2)
        eventually(lambda: "has not answered a renewal for 10 s (2 in a row)" in caplog.text)

    after = rig.renewal.renewals
    assert (early, after.failures, after.hangs_for) == (0, 0, None)
    assert was_in_doubt
    assert not one.context.is_lease_in_doubt
    assert not one.context.is_lease_lost


def test_a_call_that_hangs_and_then_fails_is_not_counted_once_more(
    rig: RenewalRig, store: Store, clock: ManualClock
) -> None:
    rig.hold(store)
    clock.advance(seconds=10)
    reached, go_on = Event(), Event()

    def hang_and_fail() -> None:
        reached.set()
        assert go_on.wait(DEADLINE)
        away()

    def call() -> None:
        with pytest.raises(StoreUnavailable):
            rig.renewal.renew_due()

    rig.trouble = hang_and_fail
    caller = Thread(target=call, daemon=True)
    caller.start()
    assert reached.wait(DEADLINE)
    clock.advance(seconds=HANGS_SECONDS)
    eventually(lambda: rig.renewal.renewals.failures == 1)
    go_on.set()
    caller.join(DEADLINE)

    assert rig.renewal.renewals.failures == 1
    assert rig.renewal.renewals.hangs_for is None


# ------------------------------------------------------------------ in a worker


@pytest.mark.shows("R-LEASE-39", "R-LEASE-44", "R-LEASE-29")
def test_the_state_of_a_worker_shows_its_failures_and_its_jobs_go_on(app: Forebay) -> None:
    was_in_doubt, go_on = Event(), Event()
    is_away = Event()

    def trouble(name: str, args: object) -> None:
        if is_away.is_set() and name in ("renew", "heartbeat"):
            away()

    @app.task(name="work", lease=3.0)
    def work() -> list[bool]:
        eventually(lambda: current_job().is_lease_in_doubt)
        was_in_doubt.set()
        assert go_on.wait(DEADLINE)
        eventually(lambda: not current_job().is_lease_in_doubt)
        return [current_job().is_lease_in_doubt, current_job().is_lease_lost]

    worker = Worker(WatchedEngine(app.engine, trouble).contract, app.registry, queues=["default"])
    with no_thread_stays():
        worker.start()
        try:
            is_away.set()
            job = work.enqueue()
            assert was_in_doubt.wait(DEADLINE)
            eventually(lambda: worker.renewals.failures >= 2)
            is_away.clear()
            go_on.set()
            assert job.result(DEADLINE) == [False, False]
            eventually(lambda: worker.renewals.failures == 0)
        finally:
            is_away.clear()
            worker.stop()
