"""Schedules are kept, and each of their runs is enqueued exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.job import JobId
from forebay.domain.job_history import EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Completed
from forebay.domain.queue import QueueState
from forebay.domain.schedule import (
    CatchUp,
    Overlap,
    Schedule,
    ScheduleDefinition,
    ScheduleRun,
    ScheduleRunStatus,
)
from forebay.domain.schedule_runs import manual_run, plan_advance, plan_runs
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.schedules import FireResult
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import (
    DEFAULT,
    HOUR,
    MAIL,
    MINUTE,
    T0,
    counts_of,
    look,
    put,
    settle,
    start,
    together,
)
from tests.stores.support import everything, new_job


def define(name: str = "tidy", **changes: Any) -> ScheduleDefinition:
    when = {} if changes.keys() & {"cron", "every_ms", "at"} else {"cron": "* * * * *"}
    job = new_job(**changes.pop("job", {}))
    return ScheduleDefinition(name=name, job=job, **{**when, **changes})


def save(store: Store, reader: Reader, clock: ManualClock, **changes: Any) -> Schedule:
    """A new schedule with its first run, as it is stored."""
    fresh = plan_runs(Schedule(definition=define(**changes)), clock.now_ms(), 0.0)
    assert store.save_schedule(fresh)
    return kept(reader, fresh.name)


def kept(reader: Reader, name: str = "tidy") -> Schedule:
    [found] = reader.schedules([name])
    return found


def fire_due(store: Store) -> list[FireResult]:
    """What the schedule enqueuer does."""
    due = store.due_schedules()
    return store.fire_schedules([plan_advance(schedule, due.now, 0.0) for schedule in due.schedules])


def lines(reader: Reader, name: str = "tidy") -> list[tuple[int, ScheduleRunStatus, int]]:
    """Time after the start, status and count of each line of a schedule's history, oldest first."""
    return [(one.planned_at - T0, one.status, one.runs) for one in reversed(reader.schedule_runs(name))]


@pytest.mark.shows("R-SCHED-16")
def test_a_saved_schedule_is_read_as_it_was_written(store: Store, reader: Reader, clock: ManualClock) -> None:
    definition = define(
        name="füll/ß",
        cron="0 9 * * MON-FRI",
        timezone="Europe/Berlin",
        jitter_ms=5_000,
        overlap=Overlap.SKIP,
        catch_up=CatchUp.LATEST,
        start_at=T0,
        end_at=T0 + HOUR,
        job={"queue": MAIL, "priority": 7, "payload": b"\x00\xff", "tags": ("a",), "metadata": {"x": [1]}},
    )
    schedule = Schedule(
        definition=definition,
        is_paused=True,
        next_run_at=T0 + 5,
        enqueued_runs=3,
        skipped_runs=2,
        failed_runs=1,
        last_run_at=4,
    )

    assert store.save_schedule(schedule)

    assert reader.schedules() == [replace(schedule, revision=1, created_at=T0, updated_at=T0)]


def test_a_change_that_was_worked_out_from_an_older_revision_is_not_made(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    first = save(store, reader, clock)
    clock.advance(ms=5)
    assert store.save_schedule(replace(first, is_paused=True, check_at=None))

    assert not store.save_schedule(replace(first, enqueued_runs=99))
    assert not store.save_schedule(replace(first, revision=0))

    now = kept(reader)
    assert (now.revision, now.is_paused, now.enqueued_runs) == (2, True, 0)
    assert (now.created_at, now.updated_at) == (T0, T0 + 5)


def test_a_schedule_that_is_not_there_cannot_be_changed(store: Store, reader: Reader) -> None:
    assert not store.save_schedule(Schedule(definition=define(), revision=3))

    assert reader.schedules() == []


def test_schedules_are_listed_by_name_page_by_page(store: Store, reader: Reader, clock: ManualClock) -> None:
    for name in ("b", "d", "a", "c"):
        save(store, reader, clock, name=name)

    page = [one.name for one in reader.schedules(limit=2)]

    assert page == ["a", "b"]
    assert [one.name for one in reader.schedules(limit=2, after="b")] == ["c", "d"]
    assert [one.name for one in reader.schedules(["d", "x", "a"])] == ["a", "d"]
    assert reader.schedules([]) == []


@pytest.mark.shows("R-SCHED-23")
def test_a_removed_schedule_is_gone_with_its_history_and_its_jobs_stay(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock)
    clock.advance(ms=MINUTE)
    fire_due(store)

    assert store.drop_schedule("tidy", actor="ada") is True
    assert store.drop_schedule("tidy") is False

    assert reader.schedules() == []
    assert reader.schedule_runs("tidy") == []
    assert counts_of(reader).pending == 1
    events = [event for _, event in reader.audit() if event.kind is EventKind.SCHEDULE_CHANGED]
    assert [(event.actor, event.detail) for event in events] == [("ada", "removed tidy"), ("", "saved tidy")]


@pytest.mark.shows("R-TEST-69")
@pytest.mark.shows("R-SCHED-13", "R-SCHED-17", "R-SCHED-19", "R-SCHED-20", "R-SCHED-57", "R-IDEM-08")
def test_a_run_becomes_a_job_when_it_is_due_and_not_before(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, job={"queue": MAIL, "metadata": {"team": "ops"}})

    clock.advance(ms=MINUTE - 1)
    assert store.due_schedules().schedules == ()
    assert store.due_schedules().next_due_ms == 1
    clock.advance(ms=1)
    [fired] = fire_due(store)

    [schedule_run] = fired.runs
    assert schedule_run.job_id is not None
    job = look(reader, schedule_run.job_id)
    assert (job.queue, job.state, job.run_at) == (MAIL, JobState.PENDING, T0 + MINUTE)
    expected = {"team": "ops", "schedule_id": "tidy", "scheduled_for": "2027-01-15T08:01:00Z"}
    assert job.metadata == expected
    assert job.idempotency_key == "schedule tidy 2027-01-15T08:01:00Z"
    at = T0 + MINUTE
    assert reader.schedule_runs("tidy") == [schedule_run]
    assert schedule_run == ScheduleRun(
        planned_at=at, status=ScheduleRunStatus.ENQUEUED, recorded_at=at, job_id=job.id
    )
    now = kept(reader)
    assert (now.next_run_at, now.check_at, now.last_run_at, now.last_job_id) == (
        at + MINUTE,
        at + MINUTE,
        at,
        job.id,
    )
    assert (now.enqueued_runs, now.skipped_runs, now.failed_runs, now.revision) == (1, 0, 0, 2)


@pytest.mark.shows("R-SCHED-37", "R-EDGE-36", "R-EDGE-38")
def test_two_who_have_read_the_same_schedule_fire_it_once(
    store: Store, other_store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock)
    clock.advance(ms=MINUTE)
    due = store.due_schedules()
    move = plan_advance(due.schedules[0], due.now, 0.0)

    first, second, again = (
        store.fire_schedules([move]),
        other_store.fire_schedules([move]),
        store.fire_schedules([move]),
    )

    assert [fired.applied for fired in (*first, *second, *again)] == [True, False, False]
    assert counts_of(reader).pending == 1
    assert len(reader.schedule_runs("tidy")) == 1


@pytest.mark.shows("R-SCHED-55", "R-TEST-50", "R-EDGE-36")
def test_five_who_fire_at_the_same_time_make_one_job_of_each_run(
    engine: Engine, store: Store, reader: Reader, clock: ManualClock
) -> None:
    for number in range(8):
        save(store, reader, clock, name=f"s{number}")
    clock.advance(ms=MINUTE)

    answers = together(engine, [fire_due] * 5)

    assert counts_of(reader).pending == 8
    assert sum(fired.applied for answer in answers for fired in answer) == 8
    assert [one.enqueued_runs for one in reader.schedules()] == [1] * 8


def test_one_move_is_made_once_also_within_one_call(store: Store, reader: Reader, clock: ManualClock) -> None:
    save(store, reader, clock)
    clock.advance(ms=MINUTE)
    due = store.due_schedules()
    move = plan_advance(due.schedules[0], due.now, 0.0)

    assert [fired.applied for fired in store.fire_schedules([move, move])] == [True, False]

    assert counts_of(reader).pending == 1


@pytest.mark.shows("R-SCHED-39", "R-EDGE-30")
def test_a_move_is_not_made_before_its_time_by_the_clock_of_the_store(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    schedule = save(store, reader, clock)

    [fired] = store.fire_schedules([plan_advance(schedule, T0 + MINUTE, 0.0)])

    assert not fired.applied
    assert kept(reader) == schedule
    assert everything(reader, JobQuery()) == []


@pytest.mark.shows("R-EDGE-37", "R-SCHED-35")
def test_what_was_paused_or_removed_after_a_scheduler_read_it_is_not_fired(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    paused = save(store, reader, clock, name="paused")
    save(store, reader, clock, name="removed")
    clock.advance(ms=MINUTE)
    due = store.due_schedules()
    moves = [plan_advance(schedule, due.now, 0.0) for schedule in due.schedules]
    store.save_schedule(replace(paused, is_paused=True, check_at=None))
    store.drop_schedule("removed")

    assert [fired.applied for fired in store.fire_schedules(moves)] == [False, False]

    assert everything(reader, JobQuery()) == []
    assert store.due_schedules().schedules == ()


def test_schedules_are_due_in_the_order_of_their_times(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, name="a", cron="3 * * * *")
    save(store, reader, clock, name="b", cron="1 * * * *")
    save(store, reader, clock, name="c", cron="2 * * * *")
    clock.advance(ms=2 * MINUTE)

    due = store.due_schedules()

    assert (due.now, [one.name for one in due.schedules]) == (T0 + 2 * MINUTE, ["b", "c"])
    assert due.next_due_ms == MINUTE
    assert [one.name for one in store.due_schedules(1).schedules] == ["b"]


@pytest.mark.shows("R-SCHED-19", "R-SCHED-53", "R-TEST-46")
@pytest.mark.shows("R-SCHED-48", "R-SCHED-49", "R-SCHED-51", "R-EDGE-35", "R-TEST-31")
def test_cp4_6_runs_that_were_missed_are_caught_up_within_a_bound(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, catch_up_limit=3)
    clock.advance(ms=10 * MINUTE + 30_000)

    [fired] = fire_due(store)

    assert fired.jobs == 3
    enqueued, skipped = ScheduleRunStatus.ENQUEUED, ScheduleRunStatus.SKIPPED
    assert lines(reader) == [
        (MINUTE, skipped, 7),
        (8 * MINUTE, enqueued, 1),
        (9 * MINUTE, enqueued, 1),
        (10 * MINUTE, enqueued, 1),
    ]
    [line] = [one for one in reader.schedule_runs("tidy") if one.status is skipped]
    assert (line.last_planned_at, line.recorded_at) == (T0 + 7 * MINUTE, clock.now_ms())
    now = kept(reader)
    assert (now.enqueued_runs, now.skipped_runs, now.next_run_at) == (3, 7, T0 + 11 * MINUTE)
    assert fire_due(store) == []


@pytest.mark.shows("R-SCHED-54", "R-SCHED-56", "R-TEST-30", "R-TEST-33", "R-CFG-58")
def test_cp4_5_a_unique_job_that_is_repeated_within_its_window_is_skipped(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, cron="*/30 * * * * *", unique_key="once a minute", unique_ms=MINUTE)

    for _ in range(4):
        clock.advance(ms=30_000)
        fire_due(store)

    assert [status for _, status, _ in lines(reader)] == ["enqueued", "skipped", "enqueued", "skipped"]
    [skipped, _] = [one for one in reader.schedule_runs("tidy") if one.status is ScheduleRunStatus.SKIPPED]
    assert skipped.reason == "its unique key was used within its window"
    assert kept(reader).next_run_at == T0 + 150_000


def test_a_run_is_skipped_while_the_job_of_the_one_before_has_not_ended(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, overlap=Overlap.SKIP)
    clock.advance(ms=MINUTE)
    fire_due(store)
    job = start(store)

    clock.advance(ms=MINUTE)
    fire_due(store)
    settle(store, job, Completed(b"1"))
    clock.advance(ms=MINUTE)
    fire_due(store)

    assert [status for _, status, _ in lines(reader)] == ["enqueued", "skipped", "enqueued"]
    skipped = reader.schedule_runs("tidy")[1]
    assert (skipped.job_id, skipped.reason) == (job.id, "the run before has not ended")
    assert counts_of(reader).pending == 1


def test_one_run_waits_until_the_job_of_the_one_before_has_ended(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, overlap=Overlap.QUEUE)
    clock.advance(ms=MINUTE)
    fire_due(store)
    job = start(store)

    clock.advance(ms=3 * MINUTE)
    [held] = fire_due(store)

    assert (held.applied, held.runs) == (True, ())
    waiting = kept(reader)
    assert (waiting.next_run_at, waiting.check_at) == (T0 + 2 * MINUTE, clock.now_ms() + 1_000)
    assert store.due_schedules().schedules == ()

    settle(store, job, Completed(b"1"))
    clock.advance(ms=1_000)
    fire_due(store)

    enqueued, skipped = ScheduleRunStatus.ENQUEUED, ScheduleRunStatus.SKIPPED
    assert lines(reader) == [(MINUTE, enqueued, 1), (2 * MINUTE, skipped, 2), (4 * MINUTE, enqueued, 1)]
    assert kept(reader).next_run_at == T0 + 5 * MINUTE


@pytest.mark.shows("R-SCHED-33", "R-SCHED-19")
def test_a_job_that_is_refused_is_told_and_stops_no_other_schedule(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(MAIL, state=QueueState.DRAINING)
    store.save_queue(DEFAULT, {"max_length": 1})
    save(store, reader, clock, name="a", job={"queue": MAIL})
    save(store, reader, clock, name="b", job={"priority": 3})
    save(store, reader, clock, name="c")
    clock.advance(ms=MINUTE)

    fired = fire_due(store)

    assert [(one.applied, one.jobs) for one in fired] == [(True, 0), (True, 1), (True, 0)]
    closed, full = reader.schedule_runs("a")[0], reader.schedule_runs("c")[0]
    assert (closed.status, full.status) == (ScheduleRunStatus.ERROR, ScheduleRunStatus.ERROR)
    assert "draining" in closed.reason
    assert "1 pending jobs" in full.reason
    assert [(one.enqueued_runs, one.failed_runs) for one in reader.schedules()] == [(0, 1), (1, 0), (0, 1)]
    assert all(one.next_run_at == T0 + 2 * MINUTE for one in reader.schedules())


@pytest.mark.shows("R-SCHED-06", "R-SCHED-21")
def test_a_schedule_for_one_time_goes_with_its_job(store: Store, reader: Reader, clock: ManualClock) -> None:
    save(store, reader, clock, at=T0 + HOUR)
    clock.advance(ms=3 * HOUR)

    [fired] = fire_due(store)

    assert fired.jobs == 1
    assert reader.schedules() == []
    assert reader.schedule_runs("tidy") == []
    assert store.due_schedules().next_due_ms is None


def test_a_schedule_for_one_time_stays_when_its_job_is_refused(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    store.save_queue(DEFAULT, state=QueueState.DRAINING)
    save(store, reader, clock, at=T0 + HOUR)
    clock.advance(ms=HOUR)

    fire_due(store)

    assert (kept(reader).next_run_at, kept(reader).failed_runs) == (None, 1)
    assert [one.status for one in reader.schedule_runs("tidy")] == [ScheduleRunStatus.ERROR]


def test_a_schedule_that_may_fire_so_often_ends(store: Store, reader: Reader, clock: ManualClock) -> None:
    save(store, reader, clock, max_runs=2)

    for _ in range(4):
        clock.advance(ms=MINUTE)
        fire_due(store)

    assert counts_of(reader).pending == 2
    assert (kept(reader).enqueued_runs, kept(reader).next_run_at, kept(reader).check_at) == (2, None, None)


def test_firing_by_hand_changes_nothing_about_what_comes_next(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    schedule = save(store, reader, clock)
    store.save_schedule(replace(schedule, is_paused=True, check_at=None))
    clock.advance(ms=5)

    [fired] = store.fire_schedules([manual_run(kept(reader), clock.now_ms())])

    now = kept(reader)
    assert fired.jobs == 1
    assert (now.next_run_at, now.check_at, now.is_paused, now.enqueued_runs) == (
        schedule.next_run_at,
        None,
        True,
        1,
    )
    assert lines(reader) == [(5, ScheduleRunStatus.ENQUEUED, 1)]


@pytest.mark.shows("R-SCHED-20")
def test_the_last_hundred_lines_of_the_history_are_kept(
    store: Store, reader: Reader, clock: ManualClock
) -> None:
    save(store, reader, clock, catch_up_limit=1_000)
    save(store, reader, clock, name="other")
    clock.advance(ms=60 * MINUTE)
    fire_due(store)
    clock.advance(ms=60 * MINUTE)
    fire_due(store)

    history = reader.schedule_runs("tidy", limit=1_000)

    assert [one.planned_at for one in history] == [T0 + n * MINUTE for n in range(120, 20, -1)]
    assert len(reader.schedule_runs("tidy", limit=7)) == 7
    assert len(reader.schedule_runs("other")) > 0


def test_the_job_of_a_run_can_be_claimed_at_once(store: Store, reader: Reader, clock: ManualClock) -> None:
    save(store, reader, clock)
    clock.advance(ms=MINUTE)

    fire_due(store)

    assert start(store).metadata["schedule_id"] == "tidy"


def test_a_run_whose_key_is_taken_names_who_has_it(store: Store, reader: Reader, clock: ManualClock) -> None:
    save(store, reader, clock)
    clock.advance(ms=MINUTE)
    before = kept(reader)
    taken = put(store, unique_key="k")
    due = store.due_schedules()
    move = plan_advance(due.schedules[0], due.now, 0.0)
    [run] = move.runs
    keyed = replace(move, runs=(replace(run, job=replace(run.job, unique_key="k")),))

    [fired] = store.fire_schedules([keyed])

    assert [one.job_id for one in fired.runs] == [JobId(taken)]
    assert kept(reader).revision == before.revision + 1
