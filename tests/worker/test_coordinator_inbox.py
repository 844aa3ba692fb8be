"""Nothing that is put into the inbox is slept over."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic

from forebay.domain.job import JobId
from forebay.domain.outcome import Completed
from forebay.stores.contract.claims_and_results import PendingCancel
from forebay.worker.coordinator_inbox import Inbox
from tests.worker.support import DEADLINE, an_assignment


def test_outcomes_come_in_the_order_in_which_they_were_put_and_once() -> None:
    inbox = Inbox()
    first, second = an_assignment(), an_assignment()

    inbox.put(first, Completed(b"1"))
    inbox.put(second, Completed(b"2"))

    assert inbox.drain() == [(first, Completed(b"1")), (second, Completed(b"2"))]
    assert inbox.drain() == []


def test_an_outcome_that_is_put_while_the_coordinator_goes_to_sleep_is_never_slept_over() -> None:
    # Each outcome is put as soon as the one before was seen, which is when its reader is about to sleep
    # again. One that is slept over would cost the whole minute.
    inbox = Inbox()
    rounds = 1_000
    seen = Event()

    def put_all() -> None:
        for _ in range(rounds):
            inbox.put(an_assignment(), Completed())
            assert seen.wait(DEADLINE)
            seen.clear()

    producer = Thread(target=put_all, daemon=True)
    began = monotonic()
    producer.start()
    found = 0
    while found < rounds:
        found += len(inbox.drain())
        if found:
            seen.set()
        inbox.wait(1_000.0 if found < rounds else 0.0)
        assert monotonic() - began < DEADLINE

    producer.join(DEADLINE)
    assert found == rounds


def test_a_wakeup_during_a_tick_ends_the_next_sleep_at_once() -> None:
    inbox = Inbox()
    inbox.wake()
    began = monotonic()

    inbox.wait(1_000.0)

    assert monotonic() - began < DEADLINE


def test_a_wakeup_counts_once() -> None:
    inbox = Inbox()
    inbox.wake()
    inbox.wait(1_000.0)
    began = monotonic()

    inbox.wait(0.05)

    assert monotonic() - began >= 0.05


def test_requests_to_cancel_wake_the_coordinator_and_come_once() -> None:
    inbox = Inbox()
    cancel = PendingCancel(JobId("1"), "no need")
    began = monotonic()

    inbox.add_cancels([cancel])
    inbox.wait(1_000.0)

    assert monotonic() - began < DEADLINE
    assert inbox.take_cancels() == [cancel]
    assert inbox.take_cancels() == []


def test_a_negative_pause_is_none() -> None:
    Inbox().wait(-1.0)
