"""Schedules as programs declare, save, look at and change them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from forebay import ConfigError, Forebay, InvalidJob, PayloadError, QueueClosed
from forebay.app.schedules import MAX_TRIES, Schedules, save_declared
from forebay.domain.queue import QueueState
from forebay.domain.schedule import CatchUp, Overlap, Schedule, ScheduleRunStatus
from forebay.domain.schedule_runs import plan_runs
from forebay.errors import ScheduleNotFound, StoreUnavailable, UnknownTask
from forebay.testing.manual_clock import ManualClock
from tests.clocks import FollowedClock
from tests.stores.contract.steps import DEFAULT, HOUR, MINUTE, T0

START = datetime(2027, 1, 15, 8, tzinfo=UTC)


@pytest.fixture
def plain(clock: FollowedClock) -> Iterator[Forebay]:
    """An app in memory: what is not about stores is tried on one."""
    with Forebay("memory://", clock=clock) as app:
        app.task(name="tidy", priority=3, expires=60)(tidy)
        yield app


def tidy(what: str = "all") -> None:
    pass


def fired(app: Forebay) -> list[Any]:
    """All jobs there are, oldest first."""
    page = app.search()
    return [app.client.job(one.id) for one in reversed(page.jobs)]


@pytest.mark.shows("R-SCHED-16", "R-SCHED-18", "R-SCHED-22", "R-SCHED-25")
def test_a_saved_schedule_makes_jobs_with_its_arguments_and_the_options_of_its_task(
    app: Forebay, clock: ManualClock
) -> None:
    app.task(name="tidy", priority=3, retries=7)(tidy)
    app.schedules.save("t", "tidy", ["cache"], cron="*/5 * * * *", options={"priority": 9})

    clock.advance(ms=5 * MINUTE)
    assert app.schedules.fire_due() == 1

    [job] = fired(app)
    assert (job.task, job.priority, job.policy.max_retries) == ("tidy", 9, 7)
    schedule = app.schedules.get("t")
    assert schedule is not None
    assert (schedule.last_job_id, schedule.next_run_at) == (job.id, T0 + 10 * MINUTE)
    [line] = app.schedules.history("t")
    assert (line.status, line.job_id) == (ScheduleRunStatus.ENQUEUED, job.id)


@pytest.mark.shows("R-TEST-26", "R-SCHED-01", "R-SCHED-28")
def test_cp4_1_a_schedule_for_one_time_makes_its_job_then_and_not_before(
    app: Forebay, clock: ManualClock
) -> None:
    task = app.task(name="tidy")(tidy)
    app.schedules.save("once", task, at=START + timedelta(hours=1))

    clock.advance(ms=HOUR - 1)
    assert app.schedules.fire_due() == 0
    clock.advance(ms=1)
    assert app.schedules.fire_due() == 1

    assert app.schedules.get("once") is None
    assert len(fired(app)) == 1


@pytest.mark.shows("R-TEST-32", "R-SCHED-24", "R-SCHED-35", "R-TEST-46")
def test_cp4_7_a_paused_schedule_makes_nothing_and_goes_on_from_now(app: Forebay, clock: ManualClock) -> None:
    app.task(name="tidy")(tidy)
    app.schedules.save("t", "tidy", cron="* * * * *")

    assert app.schedules.pause("t") is True
    clock.advance(ms=HOUR)
    assert app.schedules.fire_due() == 0
    assert app.schedules.resume("t") is True
    assert app.schedules.fire_due() == 0
    clock.advance(ms=MINUTE)
    assert app.schedules.fire_due() == 1

    [job] = fired(app)
    assert job.metadata["scheduled_for"] == "2027-01-15T09:01:00Z"
    assert app.schedules.pause("absent") is False
    assert app.schedules.resume("absent") is False


@pytest.mark.parametrize(
    ("args", "when", "error", "word"),
    [
        (["x", "y"], {"cron": "@daily"}, PayloadError, "cannot be called"),
        ([], {}, ConfigError, "exactly one"),
        ([], {"cron": "0 0 31 2 *"}, ValueError, "no date ever matches"),
        ([], {"cron": "@daily", "timezone": "Mars/Olympus"}, ConfigError, "no time zone"),
        ([], {"cron": "@daily", "colour": "red"}, ConfigError, "no option 'colour'"),
        ([], {"cron": "@daily", "overlap": "replace"}, ConfigError, "allow, skip, queue"),
        ([], {"cron": "@daily", "catch_up": "some"}, ConfigError, "all, latest, none"),
        ([], {"every": 0.5}, InvalidJob, "every must be from 1"),
        ([], {"at": START}, InvalidJob, "lies in the past"),
        ([], {"at": "tomorrow"}, InvalidJob, "must be a datetime"),
        ([], {"cron": "@daily", "end": START}, ConfigError, "never run again"),
    ],
)
@pytest.mark.shows("R-SCHED-11", "R-SCHED-21", "R-ENQ-37")
def test_what_cannot_be_meant_is_refused_before_anything_is_stored(
    plain: Forebay, args: list[Any], when: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error) as caught:
        plain.schedules.save("t", "tidy", args, **when)

    assert word in str(caught.value)
    assert plain.schedules.list() == []


def test_a_schedule_of_an_unknown_task_is_refused(plain: Forebay) -> None:
    with pytest.raises(UnknownTask, match="its workers could not run the jobs"):
        plain.schedules.save("t", "absent.task", cron="@daily")
    with pytest.raises(ConfigError, match="for a task"):
        plain.schedules.save("t", tidy, cron="@daily")  # type: ignore[arg-type]  # a function, not its task


@pytest.mark.shows("R-SCHED-07")
def test_a_time_without_a_zone_is_meant_in_that_of_the_schedule(plain: Forebay) -> None:
    nine = datetime.fromisoformat("2027-07-01 09:00")

    saved = plain.schedules.save("t", "tidy", at=nine, timezone="America/New_York")

    assert saved.next_run_at == round(nine.replace(tzinfo=ZoneInfo("America/New_York")).timestamp() * 1_000)
    with pytest.raises(InvalidJob, match="no time zone"):
        plain.schedules.save("u", "tidy", at=nine)


def test_times_that_count_from_the_call_count_from_the_run(plain: Forebay, clock: ManualClock) -> None:
    plain.schedules.save("t", "tidy", every=timedelta(minutes=1))
    clock.advance(ms=MINUTE + 500)

    plain.schedules.fire_due()

    assert fired(plain)[0].expires_at == T0 + 2 * MINUTE


@pytest.mark.shows("R-SCHED-27")
def test_a_change_of_the_times_counts_from_now_and_any_other_leaves_them(
    plain: Forebay, clock: ManualClock
) -> None:
    plain.schedules.save("t", "tidy", cron="0 * * * *")
    clock.advance(ms=2 * HOUR)  # no scheduler fires

    same = plain.schedules.update("t", jitter=5, overlap="skip", catch_up="latest")
    other = plain.schedules.update("t", every=90)

    assert (same.next_run_at, same.definition.overlap) == (T0 + HOUR, Overlap.SKIP)
    assert (other.next_run_at, other.definition.cron) == (T0 + 2 * HOUR + 90_000, None)
    assert other.definition.catch_up is CatchUp.LATEST
    with pytest.raises(ScheduleNotFound, match="no schedule 'absent'"):
        plain.schedules.update("absent", every=90)


def test_saving_again_changes_what_is_said_and_keeps_what_was_done(
    plain: Forebay, clock: ManualClock
) -> None:
    plain.schedules.save("t", "tidy", cron="* * * * *")
    clock.advance(ms=MINUTE)
    plain.schedules.fire_due()
    plain.schedules.pause("t")

    saved = plain.schedules.save("t", "tidy", ["logs"], cron="* * * * *")

    assert (saved.enqueued_runs, saved.is_paused, saved.next_run_at, saved.check_at) == (
        1,
        True,
        T0 + 2 * MINUTE,
        None,
    )


@pytest.mark.shows("R-SCHED-26", "R-SCHED-23", "R-CFG-59")
def test_schedules_are_listed_and_removed(plain: Forebay) -> None:
    plain.task(name="other")(tidy)
    for name in ("b", "a"):
        plain.schedules.save(name, "tidy", cron="@daily")
    plain.schedules.save("c", "other", cron="@daily")
    plain.schedules.pause("a")

    assert [one.name for one in plain.schedules.list()] == ["a", "b", "c"]
    assert [one.name for one in plain.schedules.list(enabled_only=True)] == ["b", "c"]
    assert [one.name for one in plain.schedules.list(task="tidy")] == ["a", "b"]
    assert plain.schedules.remove("a") is True
    assert plain.schedules.remove("a") is False
    assert plain.schedules.get("a") is None


def test_a_preview_shows_the_next_runs(plain: Forebay) -> None:
    plain.schedules.save("t", "tidy", cron="0 9 * * *", timezone="America/New_York")

    runs = plain.schedules.preview("t", 2)

    assert runs == [datetime(2027, 1, 15, 14, tzinfo=UTC), datetime(2027, 1, 16, 14, tzinfo=UTC)]
    with pytest.raises(ScheduleNotFound):
        plain.schedules.preview("absent")


def test_a_schedule_can_be_fired_by_hand(plain: Forebay) -> None:
    before = plain.schedules.save("t", "tidy", cron="@daily", overlap="skip")

    first, second = plain.schedules.fire("t"), plain.schedules.fire("t")

    assert (first.is_new, second.is_new, first.id == second.id) == (True, False, True)
    after = plain.schedules.get("t")
    assert after is not None
    assert (after.next_run_at, after.enqueued_runs, after.skipped_runs) == (before.next_run_at, 1, 1)
    with pytest.raises(ScheduleNotFound):
        plain.schedules.fire("absent")


def test_firing_by_hand_into_a_closed_queue_says_why_not(plain: Forebay) -> None:
    plain.client.write(lambda store: store.save_queue(DEFAULT, state=QueueState.DRAINING))
    plain.schedules.save("t", "tidy", cron="@daily")

    with pytest.raises(QueueClosed, match="draining"):
        plain.schedules.fire("t")


@pytest.mark.shows("R-SCHED-29")
def test_next_runs_are_worked_out_again_on_request(plain: Forebay) -> None:
    plain.schedules.save("t", "tidy", cron="@daily")
    plain.schedules.save("u", "tidy", cron="@daily")
    plain.schedules.save("paused", "tidy", cron="@daily")
    plain.schedules.pause("paused")
    wrong = plain.schedules.get("t")
    assert wrong is not None
    plain.client.write(lambda store: store.save_schedule(replace(wrong, next_run_at=T0 + 5, check_at=T0 + 5)))

    assert plain.schedules.recompute() == 1

    after = plain.schedules.get("t")
    assert after is not None
    assert after.next_run_at == T0 + 16 * HOUR


def test_a_run_that_waits_is_not_lost_when_next_runs_are_worked_out_again(
    plain: Forebay, clock: ManualClock
) -> None:
    plain.schedules.save("queued", "tidy", every=60, overlap="queue")
    clock.advance(ms=MINUTE)
    assert plain.schedules.fire_due() == 1
    clock.advance(ms=MINUTE)
    assert plain.schedules.fire_due() == 0
    waiting = plain.schedules.get("queued")
    assert waiting is not None
    assert waiting.next_run_at == T0 + 2 * MINUTE
    assert (waiting.check_at or 0) > T0 + 2 * MINUTE

    assert plain.schedules.recompute() == 0

    assert plain.schedules.get("queued") == waiting


def test_one_who_is_always_too_late_says_so(plain: Forebay, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Schedule] = []
    schedules = plain.schedules

    def refused(schedule: Schedule) -> bool:
        tries.append(schedule)
        return False

    monkeypatch.setattr(schedules, "_save", refused)

    with pytest.raises(StoreUnavailable, match="changed by other clients"):
        schedules.save("t", "tidy", cron="@daily")

    assert len(tries) == MAX_TRIES


# ------------------------------------------------------------------ for coroutines


def test_everything_has_a_twin_for_coroutines_with_the_same_parameters() -> None:
    members = dict(inspect.getmembers(Schedules, inspect.isfunction))
    blocking = {name for name in members if not name.startswith("_") and not name.endswith("_async")}

    assert {f"{name}_async" for name in blocking} == {name for name in members if name.endswith("_async")}
    for name in blocking:
        awaited = members[f"{name}_async"]
        assert inspect.iscoroutinefunction(awaited), name
        assert inspect.signature(awaited).parameters == inspect.signature(members[name]).parameters, name


def test_coroutines_save_look_at_and_change_schedules(app: Forebay, clock: ManualClock) -> None:
    task = app.task(name="tidy")(tidy)

    async def use() -> None:
        schedules = app.schedules
        saved = await schedules.save_async("t", task, ["cache"], cron="* * * * *")
        assert (await schedules.save_definition_async(saved.definition)).revision == saved.revision
        assert (await schedules.update_async("t", jitter=5)).definition.jitter_ms == 5_000
        assert await schedules.pause_async("t")
        assert await schedules.list_async(enabled_only=True) == []
        assert await schedules.resume_async("t")
        assert (await schedules.fire_async("t")).is_new
        assert await schedules.preview_async("t", 1) == [START + timedelta(minutes=1)]
        assert len(await schedules.history_async("t")) == 1
        clock.advance(ms=MINUTE + 5_000)
        assert await schedules.fire_due_async() == 1
        assert await schedules.recompute_async() == 0
        assert await schedules.remove_async("t")
        assert await schedules.get_async("t") is None

    asyncio.run(use())


# ------------------------------------------------------------------ declared in code


def declared(app: Forebay) -> int:
    """What a worker does when it starts."""
    return app.client.write(
        lambda store: app.client.read(
            lambda reader: save_declared(store, reader, app.registry.schedules.values(), lambda: 0.0)
        )
    )


def test_a_declared_schedule_is_stored_when_a_worker_starts(app: Forebay) -> None:
    @app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin", args=["cache"], overlap="skip")
    @app.task(name="tidy")
    def clean(what: str) -> None:
        pass

    app.every(timedelta(hours=2), name="often", kwargs={"what": "logs"})(clean)
    assert app.schedules.list() == []

    assert (declared(app), declared(app)) == (2, 0)

    [often, daily] = app.schedules.list()
    assert (often.name, often.definition.every_ms) == ("often", 2 * HOUR)
    assert (daily.name, daily.definition.cron) == ("tidy", "0 9 * * MON-FRI")
    assert daily.definition.is_declared
    assert daily.revision == 1


def test_the_code_decides_what_a_schedule_does_and_the_operator_whether(
    plain: Forebay, clock: ManualClock
) -> None:
    task = plain.registry["tidy"]
    plain.cron("0 * * * *", name="t")(task)
    declared(plain)
    plain.schedules.pause("t")
    plain.registry.schedules.clear()
    plain.cron("30 * * * *", name="t")(task)

    assert declared(plain) == 1

    [schedule] = plain.schedules.list()
    assert (schedule.is_paused, schedule.definition.cron) == (True, "30 * * * *")
    assert (schedule.next_run_at, schedule.check_at) == (T0 + HOUR // 2, None)


def test_two_programs_that_declare_at_once_agree(plain: Forebay) -> None:
    plain.every(60, name="t")(plain.registry["tidy"])

    class Late:
        """A reader that has looked just before another client saved."""

        def __init__(self) -> None:
            self.looks = 0

        def schedules(self, names: list[str], *, limit: int) -> list[Schedule]:
            self.looks += 1
            found = plain.schedules.list()
            if self.looks == 1:
                other.save_schedule(plan_runs(Schedule(definition=plain.registry.schedules["t"]), T0, 0.0))
            return found

        def now(self) -> int:
            return T0

    late: Any = Late()
    other = plain.engine.store()
    saved = plain.client.write(
        lambda store: save_declared(store, late, plain.registry.schedules.values(), lambda: 0.0)
    )

    assert (saved, late.looks) == (0, 2)
    assert plain.schedules.list()[0].revision == 1


def test_two_schedules_of_one_name_are_an_error(plain: Forebay) -> None:
    task = plain.registry["tidy"]
    plain.cron("@daily")(task)

    with pytest.raises(ConfigError, match="two schedules are called 'tidy'"):
        plain.cron("@weekly")(task)


def test_a_function_that_is_no_task_cannot_be_scheduled(plain: Forebay) -> None:
    with pytest.raises(ConfigError, match="put @app"):
        plain.cron("@daily")(tidy)  # type: ignore[type-var]  # what an untyped program could do


def test_a_declared_line_that_is_wrong_is_refused_where_it_stands(plain: Forebay) -> None:
    with pytest.raises(ValueError, match="no date ever matches"):
        plain.cron("0 0 30 2 *")(plain.registry["tidy"])
