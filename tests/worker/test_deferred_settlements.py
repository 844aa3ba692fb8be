"""Settlements that wait for another transaction: their slots, and how they are offered again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from forebay.domain.outcome import Completed
from forebay.errors import StoreBusy
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator import Coordinator
from forebay.worker.deferred_settlements import (
    MAX_OFFERED,
    MAX_WITHOUT_SLOT,
    DeferredSettlements,
    EndedAttempts,
)
from forebay.worker.process_recycler import ThreadHealth
from forebay.worker.slots import Slots
from tests.app.watched_store import Watched
from tests.worker.rig import Rig
from tests.worker.support import an_assignment

THREADS = 300


@pytest.fixture
def slots() -> Slots:
    return Slots(THREADS)


@pytest.fixture
def put_off(slots: Slots, clock: ManualClock) -> DeferredSettlements:
    return DeferredSettlements(slots, clock)


def ended_attempts(slots: Slots, count: int) -> EndedAttempts:
    ended: EndedAttempts = [(an_assignment(id=f"job {number}"), Completed(b"1")) for number in range(count)]
    slots.add(one for one, _ in ended)
    return ended


def keep_all(put_off: DeferredSettlements, ended: EndedAttempts) -> EndedAttempts:
    return put_off.defer_busy(ended, [one.lease for one, _ in ended])


def test_a_settlement_that_waits_gives_back_its_slot_and_stays_leased(
    slots: Slots, put_off: DeferredSettlements
) -> None:
    [(one, _)] = ended = ended_attempts(slots, 1)

    keep_all(put_off, ended)

    assert (slots.free(ExecutorKind.CALLS), slots.leases()) == (THREADS, [one.lease])
    slots.end(one)
    assert slots.free(ExecutorKind.CALLS) == THREADS


def test_no_more_than_a_hundred_settlements_give_back_their_slots(
    slots: Slots, put_off: DeferredSettlements
) -> None:
    ended = ended_attempts(slots, MAX_WITHOUT_SLOT + 7)

    for end in ended:
        keep_all(put_off, [end])

    assert slots.free(ExecutorKind.CALLS) == THREADS - 7
    put_off.defer_busy(ended[:5], [])
    assert slots.free(ExecutorKind.CALLS) == THREADS - 2


def test_an_abandoned_attempt_keeps_its_slot_because_its_code_still_runs(
    slots: Slots, put_off: DeferredSettlements
) -> None:
    [(one, _)] = ended = ended_attempts(slots, 1)
    slots.abandon(one, 1.0)

    keep_all(put_off, ended)

    assert slots.free(ExecutorKind.CALLS) == THREADS - 1


def test_settlements_are_offered_again_a_few_at_a_time_and_take_turns(
    slots: Slots, put_off: DeferredSettlements, clock: ManualClock
) -> None:
    ended = ended_attempts(slots, MAX_OFFERED + 3)
    keep_all(put_off, ended)
    assert put_off.due() == []

    clock.advance(seconds=10)
    first = put_off.due()
    keep_all(put_off, first)
    clock.advance(seconds=10)
    second = put_off.due()

    assert first == ended[:MAX_OFFERED]
    assert second[:3] == ended[MAX_OFFERED:]


def test_the_rest_is_offered_at_once_when_the_first_are_settled(
    slots: Slots, put_off: DeferredSettlements, clock: ManualClock
) -> None:
    ended = ended_attempts(slots, MAX_OFFERED + 3)
    keep_all(put_off, ended)
    clock.advance(seconds=10)

    assert put_off.defer_busy(put_off.due(), []) == ended[:MAX_OFFERED]
    assert put_off.due() == ended[MAX_OFFERED:]
    put_off.defer_busy(put_off.due(), [])
    assert (len(put_off), put_off.due()) == (0, [])


def busy(name: str, args: tuple[Any, ...]) -> None:
    """Another transaction holds what each settlement needs."""
    if name == "settle_and_claim" and len(args) > 1 and args[1]:
        raise StoreBusy("a key is held")


def cancel(rig: Rig, coordinator: Coordinator, one: Assignment) -> None:
    rig.store.cancel([one.job.id], "no need")


def stop(rig: Rig, coordinator: Coordinator, one: Assignment) -> None:
    coordinator.is_claiming = False
    coordinator.interrupt_all()


@pytest.mark.parametrize("ask", [cancel, stop, lambda *_: None], ids=["cancel", "stop", "time limit"])
def test_an_attempt_that_has_ended_is_not_asked_to_stop_and_is_not_stuck(
    rig: Rig, caplog: pytest.LogCaptureFixture, ask: Callable[[Rig, Coordinator, Assignment], None]
) -> None:
    rig.insert(timeout_ms=2_000)
    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, busy).contract)
    coordinator.tick()
    [one] = rig.threads.begin()
    rig.threads.finish(one)
    coordinator.tick()

    with caplog.at_level(logging.ERROR):
        ask(rig, coordinator, one)
        for _ in range(20):
            rig.clock.advance(seconds=1)
            coordinator.tick()

    assert (rig.threads.interrupts, one.is_stuck, caplog.messages) == ([], False, [])
    assert coordinator.unwritten == 1


def test_a_job_that_was_handed_back_in_vain_is_not_asked_to_stop(rig: Rig) -> None:
    rig.insert()
    coordinator = rig.coordinator(threads=1, store=Watched(rig.store, busy).contract)
    coordinator.tick()
    [one] = rig.threads.given
    coordinator.return_unstarted()
    coordinator.tick()

    stop(rig, coordinator, one)

    assert (one.stop_reason, one.is_concluded) == (None, True)
    assert (coordinator.unwritten, coordinator.is_idle) == (0, False)


def test_a_thread_that_was_stuck_counts_no_more_when_its_job_has_ended(clock: ManualClock) -> None:
    slots = Slots(1)
    [(one, _)] = ended = ended_attempts(slots, 1)
    one.is_stuck = True
    before = ThreadHealth(slots).reason()

    keep_all(DeferredSettlements(slots, clock), ended)

    assert before is not None
    assert ThreadHealth(slots).reason() is None
