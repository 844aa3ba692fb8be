"""What a clock that is set back or forward must not do."""

from __future__ import annotations

import pytest

from forebay.domain.job import WorkerId
from forebay.domain.outcome import Snoozed
from forebay.domain.retry import MAX_DELAY_MS
from forebay.domain.settlement import decide
from forebay.stores.protocol import Reader, Store
from forebay.testing.clock import ManualClock
from tests.stores.contract.steps import look, put
from tests.stores.support import claim

HOUR = 3_600_000


@pytest.mark.shows("R-EDGE-31")
def test_a_clock_set_back_does_not_hold_up_duties(store: Store, clock: ManualClock) -> None:
    store.take_duty("sweep", 1_000)

    clock.set(clock.now_ms() - HOUR)

    assert store.take_duty("sweep", 1_000)
    assert not store.take_duty("sweep", 1_000)


def test_a_duty_that_has_more_to_do_can_be_taken_again_at_once(store: Store) -> None:
    store.take_duty("prune", 10_000)

    store.take_duty("prune", 0)

    assert store.take_duty("prune", 10_000)


def test_jobs_that_came_while_the_clock_was_ahead_hold_up_no_later_ones(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    now = clock.now_ms()
    clock.set(now + 30 * 24 * HOUR)
    put(store)
    clock.set(now)
    old = put(store)

    clock.set(now + 90 * 24 * HOUR)
    while store.rescore():
        pass

    assert look(reader, old).capped


def test_a_delay_without_end_is_cut_to_a_year(store: Store, reader: Reader, clock: ManualClock) -> None:
    put(store)
    [job] = claim(store)

    store.exchange(WorkerId(job.worker or ""), [decide(job, Snoozed(2**62), 0.0)])

    assert look(reader, job.id).run_at == clock.now_ms() + MAX_DELAY_MS
