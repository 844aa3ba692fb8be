"""Gradual revives on every engine: each job is put back at most once, whichever process ticks and whichever
dies."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from forebay.domain.gradual_revive import GradualRevive, GradualRevivePlan, GradualReviveState
from forebay.domain.job import JobId
from forebay.domain.job_history import EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import AttemptError, Completed, Discarded, Outcome
from forebay.domain.stored_document import Document
from forebay.errors import ConfigError, GradualReviveNotFound, IllegalTransition, StoreRefused
from forebay.maintenance.gradual_reviver import GradualReviver
from forebay.operations.failure_groups import failure_groups
from forebay.operations.gradual_revive import (
    advance_gradual_revives,
    find_gradual_revive,
    list_gradual_revives,
    pause_gradual_revive,
    resume_gradual_revive,
    start_gradual_revive,
    stop_gradual_revive,
)
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, W1, ended, events_of, put_many, states, together
from tests.stores.support import new_job

BOOM = Discarded(AttemptError(type="Boom", message="order 17", traceback='File "/a/t.py", line 3, in pay\n'))
BANG = Discarded(AttemptError(type="Bang", message="order 17"))
DONE = Completed(b"1")
ALL = JobQuery()
QUICK = GradualRevivePlan(initial_batch=2, growth_factor=2, every_ms=1_000, max_failure_percent=50)


def run_all(store: Store, outcome: Outcome = DONE) -> int:
    """Claim all that waits and end it; how many that were."""
    jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 100)], room=100).jobs
    store.settle_and_claim(W1, [ended(job, outcome) for job in jobs])
    return len(jobs)


def dead_jobs(store: Store, count: int, outcome: Outcome = BOOM) -> list[JobId]:
    ids = put_many(store, count)
    assert run_all(store, outcome) == count
    return ids


def started(store: Store, reader: Reader, clock: ManualClock, **options: Any) -> GradualRevive:
    clock.advance(ms=1)
    return start_gradual_revive(store, reader, ALL, **{"plan": QUICK, "actor": "ann#r1", **options})


def tick(store: Store, reader: Reader, clock: ManualClock) -> GradualRevive:
    """One tick, a second later."""
    clock.advance(seconds=1)
    advance_gradual_revives(store, reader)
    return list_gradual_revives(reader)[0]


def pending(reader: Reader, ids: Sequence[JobId]) -> int:
    return states(reader, ids).count(JobState.PENDING)


def test_a_gradual_revive_revives_more_and_more_while_the_jobs_do_well(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = dead_jobs(store, 8)
    name = started(store, reader, clock).name

    sizes = []
    for _ in range(3):
        tick(store, reader, clock)
        sizes.append(pending(reader, ids))
        run_all(store)
    gradual = tick(store, reader, clock)

    assert sizes == [2, 4, 2]
    assert (gradual.name, gradual.state, gradual.batches) == (name, GradualReviveState.COMPLETED, 3)
    assert (gradual.revived, gradual.completed_jobs, gradual.dead_jobs, gradual.watched) == (8, 8, 0, ())
    assert set(states(reader, ids)) == {JobState.COMPLETED}
    [revived] = [event for event in events_of(reader, ids[0]) if event.kind is EventKind.REVIVED]
    assert (revived.actor_name, revived.request_id) == ("ann", f"gradual-revive-{name}")
    assert [event.detail for _, event in reader.audit() if event.kind is EventKind.GRADUAL_REVIVE] == [
        f"completed {name}",
        f"started {name}",
    ]


def test_a_gradual_revive_stops_when_the_jobs_die_again_and_leaves_the_others_alone(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = dead_jobs(store, 8)
    started(store, reader, clock)

    tick(store, reader, clock)
    assert run_all(store, BOOM) == 2
    gradual = tick(store, reader, clock)
    tick(store, reader, clock)

    assert (gradual.state, gradual.dead_jobs, gradual.revived) == (GradualReviveState.STOPPED, 2, 2)
    assert gradual.reason == "2 jobs failed again, 2 were in the last batch"
    assert set(states(reader, ids)) == {JobState.DEAD}
    assert sum(job.attempt for job in reader.jobs(ids) if job is not None) == 10
    resume_gradual_revive(store, reader, gradual.name)
    assert tick(store, reader, clock).revived == 6


def test_a_job_that_died_again_is_not_revived_once_more_by_the_same_gradual_revive(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = dead_jobs(store, 3)
    started(
        store, reader, clock, plan=GradualRevivePlan(initial_batch=2, every_ms=1_000, max_failure_percent=100)
    )

    ran = []
    for _ in range(4):
        tick(store, reader, clock)
        ran.append(run_all(store, BOOM))

    assert ran == [2, 1, 0, 0]
    assert [job.attempt for job in reader.jobs(ids) if job is not None] == [2, 2, 2]
    assert list_gradual_revives(reader)[0].state is GradualReviveState.COMPLETED


def test_the_next_batch_waits_until_half_of_the_last_one_has_ended(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = dead_jobs(store, 5)
    started(store, reader, clock)

    waits = [tick(store, reader, clock).batches for _ in range(3)]
    [job] = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs
    store.settle_and_claim(W1, [ended(job, DONE)])
    goes_on = tick(store, reader, clock)

    assert waits == [1, 1, 1]
    assert (goes_on.batches, goes_on.revived, pending(reader, ids)) == (2, 5, 4)


def test_jobs_that_have_not_ended_are_waited_for_when_there_is_nothing_left_to_revive(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    dead_jobs(store, 2)
    started(store, reader, clock)

    tick(store, reader, clock)
    [job] = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 1)], room=1).jobs
    store.settle_and_claim(W1, [ended(job, DONE)])
    gradual = tick(store, reader, clock)
    assert (gradual.state, gradual.is_searched, gradual.removed_jobs, len(gradual.watched)) == (
        GradualReviveState.RUNNING,
        True,
        0,
        1,
    )
    run_all(store)

    assert tick(store, reader, clock).completed_jobs == 2
    assert list_gradual_revives(reader)[0].state is GradualReviveState.COMPLETED


@pytest.mark.shows("R-DLQ-21")
def test_a_group_alone_is_revived_and_the_others_stay(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    bang = dead_jobs(store, 3, BANG)
    boom = dead_jobs(store, 3)
    more = dead_jobs(store, 1, BANG)
    [first, second] = failure_groups(reader, ALL).groups
    assert [(first.message, first.jobs), (second.message, second.jobs)] == [
        ("Bang: order #", 4),
        ("Boom: order #", 3),
    ]
    assert (second.frames, second.example in boom) == (("t.py:pay",), True)
    started(store, reader, clock, group=first.id, plan=GradualRevivePlan(initial_batch=3, every_ms=1_000))

    gradual = tick(store, reader, clock)
    assert (gradual.batches, gradual.size) == (1, 3)
    run_all(store)
    tick(store, reader, clock)
    run_all(store)
    gradual = tick(store, reader, clock)

    assert (gradual.state, gradual.revived) == (GradualReviveState.COMPLETED, 4)
    assert set(states(reader, [*bang, *more])) == {JobState.COMPLETED}
    assert set(states(reader, boom)) == {JobState.DEAD}


def test_groups_say_when_there_are_more_dead_letters_than_they_are_made_of(
    store: Store, reader: Reader
) -> None:
    dead_jobs(store, 3)
    dead_jobs(store, 1, BANG)

    part, whole = failure_groups(reader, ALL, newest=2), failure_groups(reader, ALL, newest=100)

    assert (part.jobs, part.is_complete, [group.jobs for group in part.groups]) == (2, False, [1, 1])
    assert (whole.jobs, whole.is_complete, [group.jobs for group in whole.groups]) == (4, True, [3, 1])
    assert failure_groups(reader, JobQuery(tasks=("other",))).groups == ()
    for wrong in (0, 100_001):
        with pytest.raises(ConfigError, match="newest must be from 1 to 100,000 jobs"):
            failure_groups(reader, ALL, newest=wrong)


def test_a_paused_gradual_revive_revives_nothing_until_it_is_resumed(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = dead_jobs(store, 3)
    name = started(store, reader, clock).name

    pause_gradual_revive(store, reader, name, actor="bob")
    tick(store, reader, clock)
    assert pending(reader, ids) == 0
    resume_gradual_revive(store, reader, name, actor="bob")
    tick(store, reader, clock)
    assert pending(reader, ids) == 2
    stopped = stop_gradual_revive(store, reader, name, actor="bob")
    run_all(store)
    tick(store, reader, clock)

    assert (stopped.state, stopped.reason) == (GradualReviveState.STOPPED, "by hand")
    assert pending(reader, ids) == 0
    with pytest.raises(IllegalTransition):
        pause_gradual_revive(store, reader, name)
    with pytest.raises(GradualReviveNotFound):
        find_gradual_revive(reader, "absent")
    done = [
        (event.actor_name, event.detail)
        for _, event in reader.audit()
        if event.kind is EventKind.GRADUAL_REVIVE
    ]
    assert done[:3] == [("bob", f"stopped {name}"), ("bob", f"resumed {name}"), ("bob", f"paused {name}")]


def test_jobs_that_die_again_during_a_pause_stop_the_gradual_revive_that_is_resumed(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    dead_jobs(store, 5)
    name = started(store, reader, clock).name
    tick(store, reader, clock)
    pause_gradual_revive(store, reader, name)
    run_all(store, BOOM)

    paused = tick(store, reader, clock)
    resume_gradual_revive(store, reader, name)
    gradual = tick(store, reader, clock)

    assert (paused.state, paused.dead_jobs) == (GradualReviveState.PAUSED, 0)  # no tick
    assert (gradual.state, gradual.dead_jobs) == (GradualReviveState.STOPPED, 2)


class Dies(BaseException):
    """The process that ticked is gone."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_written_down_and_not_put_back_is_put_back_by_the_next(
    store: Store, reader: Reader, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    ids = dead_jobs(store, 5)
    started(store, reader, clock)
    revive = store.revive

    def dying(*args: Any, **options: Any) -> Any:
        if when == "after":
            revive(*args, **options)
        raise Dies

    with monkeypatch.context() as patch:
        patch.setattr(store, "revive", dying)
        with pytest.raises(Dies):
            tick(store, reader, clock)
    gradual = tick(store, reader, clock)

    assert (gradual.batches, gradual.size, pending(reader, ids)) == (1, 2, 2)
    run_all(store)
    assert tick(store, reader, clock).completed_jobs == 2


def test_who_was_held_up_after_the_write_puts_no_job_back_that_has_run_and_died_since(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dead_jobs(store, 2)
    started(store, reader, clock, plan=GradualRevivePlan(every_ms=1_000, max_failure_percent=100))
    revive = store.revive

    def held_up(*args: Any, **options: Any) -> Any:
        # Meanwhile another one takes a turn, and the jobs run and die.
        tick(other_store, reader, clock)
        assert run_all(other_store, BOOM) == 2
        clock.advance(seconds=1)
        return revive(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store, "revive", held_up)
        tick(store, reader, clock)
    gradual = tick(store, reader, clock)

    assert states(reader, ids) == [JobState.DEAD] * 2
    assert [job.attempt for job in reader.jobs(ids) if job is not None] == [2, 2]
    assert (gradual.revived, gradual.dead_jobs, gradual.refused) == (2, 2, 0)


def test_two_schedulers_that_take_every_turn_at_once_revive_each_job_once(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock
) -> None:
    ids = dead_jobs(store, 12)
    started(store, reader, clock, plan=GradualRevivePlan(initial_batch=3, growth_factor=1, every_ms=1_000))

    def at_once(handle: Store) -> None:
        with closing(GradualReviver(engine.reader, clock)) as task:
            task.run(handle)

    for _ in range(6):
        clock.advance(seconds=1)
        together(engine, [at_once, at_once])
        assert pending(reader, ids) <= 3
        run_all(store)

    gradual = list_gradual_revives(reader)[0]
    assert (gradual.state, gradual.batches, gradual.revived) == (GradualReviveState.COMPLETED, 4, 12)
    assert [job.attempt for job in reader.jobs(ids) if job is not None] == [2] * 12
    for job_id in ids:
        kinds = [event.kind for event in events_of(reader, job_id)]
        assert kinds.count(EventKind.REVIVED) == 1


def test_a_job_that_cannot_be_put_back_is_counted_and_left(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.insert([new_job(unique_key="k")])
    run_all(store, BOOM)
    store.insert([new_job(unique_key="k", delay_ms=3_600_000)])
    dead_jobs(store, 1)
    started(store, reader, clock)

    tick(store, reader, clock)
    run_all(store)
    tick(store, reader, clock)
    gradual = tick(store, reader, clock)

    assert (gradual.state, gradual.revived, gradual.refused) == (GradualReviveState.COMPLETED, 1, 1)


def test_where_nothing_is_dead_a_gradual_revive_is_completed_at_once(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    dead_jobs(store, 1, BANG)
    started(store, reader, clock, group="0" * 16)

    gradual = tick(store, reader, clock)

    assert (gradual.state, gradual.scanned, gradual.revived) == (GradualReviveState.COMPLETED, 1, 0)


def test_two_gradual_revives_for_the_same_jobs_are_one_too_many(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    dead_jobs(store, 1)
    first = started(store, reader, clock)

    with pytest.raises(IllegalTransition, match=f"gradual revive {first.name} is running"):
        started(store, reader, clock)

    stop_gradual_revive(store, reader, first.name)
    second = started(store, reader, clock)
    with pytest.raises(IllegalTransition, match=f"gradual revive {second.name} is running"):
        resume_gradual_revive(store, reader, first.name)
    assert [gradual.name for gradual in list_gradual_revives(reader)] == [second.name, first.name]


def test_few_gradual_revives_that_have_ended_are_kept_and_only_so_many_are_open(
    store: Store, reader: Reader, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.operations.gradual_revive.MAX_FINISHED_REVIVES", 2)
    monkeypatch.setattr("forebay.operations.gradual_revive.MAX_OPEN", 2)
    names = []
    for _ in range(4):
        names.append(started(store, reader, clock).name)
        stop_gradual_revive(store, reader, names[-1])

    start_group = partial(started, store, reader, clock)
    start_group(group="0" * 16)
    start_group(group="1" * 16)
    with pytest.raises(IllegalTransition, match="2 gradual revives already"):
        start_group(group="2" * 16)

    assert [one.name for one in list_gradual_revives(reader) if not one.is_open] == [names[3]]


def test_conditions_that_cannot_be_written_down_are_refused(store: Store, reader: Reader) -> None:
    with pytest.raises(ConfigError, match="at most 16,000 bytes"):
        start_gradual_revive(store, reader, JobQuery(text="x" * 16_000))
    with pytest.raises(ConfigError, match="no failure group"):
        start_gradual_revive(store, reader, ALL, group="nonsense")


def test_a_gradual_revive_that_cannot_be_read_holds_up_no_other(
    store: Store, reader: Reader, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ids = dead_jobs(store, 2)
    store.save_document(Document(kind="gradual_revive", name="0", body='{"of": "a later release"}'))
    started(store, reader, clock)

    tick(store, reader, clock)

    assert pending(reader, ids) == 2
    assert "gradual revive 0 cannot be read" in caplog.text


def test_a_gradual_revive_that_goes_wrong_holds_up_no_other(
    store: Store,
    reader: Reader,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = dead_jobs(store, 2)
    wrong = started(store, reader, clock, group="0" * 16).name
    started(store, reader, clock)
    save = store.save_document

    def failing(document: Document, **options: Any) -> bool:
        if document.name == wrong:
            raise StoreRefused("too long")
        return save(document, **options)

    monkeypatch.setattr(store, "save_document", failing)
    tick(store, reader, clock)

    assert pending(reader, ids) == 2
    assert f"gradual revive {wrong} cannot continue" in caplog.text
