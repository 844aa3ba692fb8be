"""Faults at the store, on command."""

from __future__ import annotations

import doctest
from collections.abc import Iterator

import pytest

from forebay import Forebay
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError, StoreUnavailable
from forebay.testing import Fault, Killed, Trial, fault_injection


@pytest.fixture
def app() -> Forebay:
    return Forebay("memory://")


@pytest.fixture
def trial(app: Forebay) -> Iterator[Trial]:
    app.task(name="work")(lambda: None)
    with Trial(app) as trial:
        yield trial


def test_a_store_that_is_not_reached_has_stored_nothing(app: Forebay, trial: Trial) -> None:
    trial.faults.plan("insert", Fault.AWAY, times=2)

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            app.enqueue("work")
    app.enqueue("work")

    assert len(trial.jobs()) == 1
    assert trial.faults.left == 0


def test_an_answer_that_is_lost_has_stored_it_all_the_same(app: Forebay, trial: Trial) -> None:
    trial.faults.plan("insert", "answer lost")

    with pytest.raises(StoreUnavailable, match="answer was lost"):
        app.enqueue("work")

    trial.assert_enqueued("work", count=1)


@pytest.mark.parametrize("fault", [Fault.AWAY, Fault.BUSY, Fault.LOST])
def test_a_worker_tries_again_until_the_store_answers(fault: Fault, app: Forebay, trial: Trial) -> None:
    job = app.enqueue("work")
    trial.faults.plan("settle_and_claim", fault, times=3)

    assert trial.drain() == 1

    assert job.refresh().state is JobState.COMPLETED
    assert (job.refresh().attempt, trial.faults.left) == (1, 0)


def test_a_lock_that_is_soon_let_go_of_is_waited_for(app: Forebay, trial: Trial) -> None:
    trial.faults.plan("insert", Fault.BUSY, times=2)

    app.enqueue("work")

    trial.assert_enqueued("work", count=1)
    assert trial.faults.left == 0


@pytest.mark.parametrize("fault", [Fault.KILLED, Fault.KILLED_AFTER])
def test_a_worker_that_is_killed_in_a_call_leaves_what_the_store_has(
    fault: Fault, app: Forebay, trial: Trial
) -> None:
    job = app.enqueue("work")
    trial.faults.plan("settle_and_claim", fault)

    assert trial.drain() == 0
    assert job.refresh().state is (JobState.RUNNING if fault is Fault.KILLED_AFTER else JobState.PENDING)
    assert trial.recover() == 1
    assert job.refresh().state is JobState.COMPLETED


def test_a_producer_is_killed_where_it_enqueues(app: Forebay, trial: Trial) -> None:
    trial.faults.plan("insert", Fault.KILLED_AFTER)

    with pytest.raises(Killed):
        app.enqueue("work")

    assert len(trial.jobs()) == 1


def test_while_the_store_is_away_no_call_reaches_it_and_none_waits_for_ever(
    app: Forebay, trial: Trial
) -> None:
    job = app.enqueue("work")
    trial.faults.is_away = True

    with pytest.raises(StoreUnavailable):
        app.enqueue("work")
    with pytest.raises(StoreUnavailable, match="away for a minute"):
        trial.drain()
    trial.faults.is_away = False

    assert trial.drain() == 1
    assert job.refresh().state is JobState.COMPLETED


def test_only_operations_of_a_store_can_be_planned(trial: Trial) -> None:
    with pytest.raises(ConfigError, match="'enqueue' is no operation of a store"):
        trial.faults.plan("enqueue", Fault.AWAY)


def test_its_example_is_true() -> None:
    result = doctest.testmod(fault_injection)

    assert (result.failed, result.attempted > 0) == (0, True)
