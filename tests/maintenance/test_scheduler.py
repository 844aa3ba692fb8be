"""A scheduler that runs alone, and the maintenance task that workers run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from socket import gethostname
from typing import Any, cast

import pytest

from forebay.domain.job import NewJob
from forebay.domain.schedule import Schedule, ScheduleDefinition, ScheduleRunStatus
from forebay.domain.schedule_runs import POSTPONE_MS, plan_runs
from forebay.errors import ConfigError, StoreBusy, StoreRefused, StoreUnavailable
from forebay.maintenance.schedule_enqueuer import ScheduleEnqueuer
from forebay.maintenance.scheduler import OUTAGE_SECONDS, Scheduler
from forebay.payload.codec import encode_call
from forebay.payload.encryption_keys import EncryptionKeys
from forebay.payload.engine_wrapper import wrap_engine
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import MINUTE, T0, counts_of
from tests.worker.support import DEADLINE, eventually


class Wrapped:
    """A store that does something before each call."""

    def __init__(self, store: Store, before: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._store = store
        self._before = before

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(name, args)
            return getattr(self._store, name)(*args, **kwargs)

        return call

    @property
    def contract(self) -> Store:
        return cast(Store, self)


@pytest.fixture
def memory(clock: ManualClock) -> MemoryEngine:
    return MemoryEngine(clock=clock)


def save(store: Store, name: str = "t", **changes: Any) -> None:
    when = changes or {"cron": "* * * * *"}
    definition = ScheduleDefinition(name=name, job=NewJob(task="t"), **when)
    assert store.save_schedule(plan_runs(Schedule(definition=definition), T0, 0.0))


def scheduler(engine: Engine, clock: ManualClock, **changes: Any) -> Scheduler:
    return Scheduler(engine, clock=clock, roll=lambda: 0.0, **changes)


@pytest.mark.shows("R-SCHED-31", "R-CFG-56")
def test_it_sleeps_until_the_next_run_and_at_most_a_minute(memory: MemoryEngine, clock: ManualClock) -> None:
    store, one = memory.store(), scheduler(memory, clock)

    assert one.tick(store) == 60.0
    save(store, "far", cron="0 0 * * *")
    assert one.tick(store) == 60.0
    save(store, "near", every_ms=5_000)
    clock.advance(ms=1_500)
    assert one.tick(store) == 3.5
    clock.advance(ms=3_500)
    assert (one.tick(store), one.fired) == (5.0, 1)


@pytest.mark.shows("R-SCHED-32", "R-SCHED-36")
def test_what_a_turn_takes_is_not_slept_and_too_much_is_told(
    memory: MemoryEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory.store()
    seconds = 15.0

    def work(name: str, args: tuple[Any, ...]) -> None:
        if name == "due_schedules" and args != (1,):
            clock.advance(seconds=seconds)

    slow = Wrapped(store, work).contract
    one = scheduler(memory, clock)

    assert one.tick(slow) == 45.0
    assert caplog.messages == []
    seconds = 70.0
    assert one.tick(slow) == 0.0
    assert "falls behind" in caplog.text


@pytest.mark.shows("R-SCHED-31", "R-CFG-57", "R-SCHED-28")
def test_it_fires_all_that_is_due_in_batches(memory: MemoryEngine, clock: ManualClock) -> None:
    store, batches = memory.store(), []
    for number in range(7):
        save(store, f"s{number}")
    clock.advance(ms=MINUTE)
    watched = Wrapped(
        store, lambda name, args: batches.append(len(args[0])) if name == "fire_schedules" else None
    )
    one = scheduler(memory, clock, batch=3)

    assert one.tick(watched.contract) == 60.0

    assert (batches, one.fired) == ([3, 3, 1], 7)


@pytest.mark.shows("R-SCHED-30", "R-SCHED-39")
def test_it_starts_fires_is_woken_and_stops(engine: Engine, store: Store, reader: Reader) -> None:
    # By its own clock it would sleep for a minute; the store's clock stands still, and what is due is due.
    declared = ScheduleDefinition(name="declared", job=NewJob(task="t"), cron="* * * * *", is_declared=True)
    one = Scheduler(engine, [declared])
    one.stop()  # before the start is fine

    one = Scheduler(engine, [declared])
    one.start()
    try:
        eventually(lambda: len(reader.schedules()) == 1, DEADLINE)
        [(_, event)] = reader.audit()
        assert event.actor == f"scheduler@{gethostname()}"
        overdue = ScheduleDefinition(name="overdue", job=NewJob(task="t"), cron="* * * * *")
        store.save_schedule(Schedule(definition=overdue, next_run_at=T0 - MINUTE, check_at=T0 - MINUTE))
        eventually(lambda: counts_of(reader).pending >= 1, DEADLINE)
        was_running = one.is_running
    finally:
        one.stop()
        one.stop()

    assert (was_running, one.is_running) == (True, False)
    assert [schedule.enqueued_runs for schedule in reader.schedules()] == [0, 2]


@pytest.mark.shows("R-RATE-19")
def test_while_the_store_is_away_it_tries_again(
    memory: MemoryEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def away(name: str, args: tuple[Any, ...]) -> None:
        raise StoreUnavailable("no answer")

    one = scheduler(memory, clock)

    assert one._tick_safely(Wrapped(memory.store(), away).contract) == OUTAGE_SECONDS
    assert "no answer" in caplog.text
    assert one._tick_safely(memory.store()) == 60.0


@pytest.mark.parametrize("longest", [0, -1, 3_601, float("nan")])
def test_a_sleep_that_makes_no_sense_is_refused(memory: MemoryEngine, longest: float) -> None:
    with pytest.raises(ConfigError, match="sleeps for more than 0"):
        Scheduler(memory, longest=longest)
    with pytest.raises(ConfigError, match="at least one"):
        Scheduler(memory, batch=0)


# ------------------------------------------------------------------ the maintenance task


@pytest.mark.shows("R-SCHED-33", "R-SCHED-36")
def test_the_schedule_enqueuer_fires_a_batch_and_says_whether_there_is_more(
    memory: MemoryEngine, clock: ManualClock
) -> None:
    store, task = memory.store(), ScheduleEnqueuer(batch=2, roll=lambda: 0.0)
    for number in range(3):
        save(store, f"s{number}")
    clock.advance(ms=MINUTE)

    assert (task.run(store), task.run(store), task.run(store)) == (True, False, False)
    assert [one.enqueued_runs for one in memory.reader().schedules()] == [1, 1, 1]


@pytest.mark.shows("R-SCHED-33")
def test_a_run_that_can_never_be_stored_is_an_error_of_its_own_schedule(
    memory: MemoryEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory.store()
    for name in ("a", "bad", "c"):
        save(store, name)
    clock.advance(ms=MINUTE)

    def refuse(name: str, args: tuple[Any, ...]) -> None:
        if name == "fire_schedules" and any(move.name == "bad" and move.runs for move in args[0]):
            raise StoreRefused("this text cannot be written")

    with caplog.at_level(logging.WARNING):
        ScheduleEnqueuer(roll=lambda: 0.0).run(Wrapped(store, refuse).contract)

    reader = memory.reader()
    assert [(one.name, one.enqueued_runs, one.failed_runs) for one in reader.schedules()] == [
        ("a", 1, 0),
        ("bad", 0, 1),
        ("c", 1, 0),
    ]
    [line] = reader.schedule_runs("bad")
    assert (line.status, line.reason) == (ScheduleRunStatus.ERROR, "this text cannot be written")
    assert "a run of schedule 'bad' was not enqueued" in caplog.text
    assert all(one.next_run_at == T0 + 2 * MINUTE for one in reader.schedules())


@pytest.mark.shows("R-SCHED-33", "R-SER-19")
def test_a_schedule_whose_arguments_are_broken_does_not_stop_the_others(
    memory: MemoryEngine, clock: ManualClock
) -> None:
    keys = EncryptionKeys({"a": bytes(32)})
    store = wrap_engine(cast(Engine, memory), keys).store()
    save(store, "good")
    # Encrypted for another task, and put here by an attacker who can write to the store.
    moved = NewJob(task="t", payload=keys.encrypt(encode_call([], {}), "payload other"))
    broken = Schedule(definition=ScheduleDefinition(name="bad", job=moved, cron="* * * * *"))
    memory.store().save_schedule(plan_runs(broken, T0, 0.0))
    clock.advance(ms=MINUTE)

    ScheduleEnqueuer(roll=lambda: 0.0).run(store)

    reader = memory.reader()
    assert [(one.name, one.enqueued_runs, one.failed_runs) for one in reader.schedules()] == [
        ("bad", 0, 1),
        ("good", 1, 0),
    ]
    [line] = reader.schedule_runs("bad")
    assert "brought from elsewhere" in (line.reason or "")


# ------------------------------------------------------------------ a transaction holds the key of a run


class Held:
    """Names of schedules whose jobs need a key that an open transaction holds."""

    def __init__(self, store: Store) -> None:
        self.names: set[str] = set()
        self.store = Wrapped(store, self._hold_up).contract

    def _hold_up(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "fire_schedules" and self.names & {move.name for move in args[0] if move.runs}:
            raise StoreBusy("another transaction holds a key")


def logged_waits(caplog: pytest.LogCaptureFixture) -> int:
    return sum("has to wait" in one.getMessage() for one in caplog.records)


def test_a_schedule_that_waits_for_a_transaction_is_told_once_each_time_it_begins_to_wait(
    memory: MemoryEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    task, held = ScheduleEnqueuer(roll=lambda: 0.0), Held(memory.store())
    save(held.store, "held")
    save(held.store, "free")
    wait_counts = []
    for names in ({"held"}, {"held"}, {"held"}, {"held", "free"}, set(), {"held"}):
        held.names = names
        clock.advance(MINUTE)
        task.run(held.store)
        wait_counts.append(logged_waits(caplog))

    assert wait_counts == [1, 1, 1, 2, 2, 3]


def test_a_schedule_that_was_deleted_while_it_waited_is_forgotten(
    memory: MemoryEngine, clock: ManualClock
) -> None:
    task, held = ScheduleEnqueuer(roll=lambda: 0.0), Held(memory.store())
    save(held.store, "held")
    held.names = {"held"}
    clock.advance(MINUTE)
    task.run(held.store)
    assert task.waiting.keys() == {"held"}

    held.store.drop_schedule("held")
    clock.advance(POSTPONE_MS)
    task.run(held.store)

    assert task.waiting == {}


def test_schedules_that_wait_for_a_transaction_hide_no_others(
    memory: MemoryEngine, clock: ManualClock
) -> None:
    held = Held(memory.store())
    task = ScheduleEnqueuer(roll=lambda: 0.0, batch=3)
    held.names = {"a", "b", "c", "d"}
    for name in (*sorted(held.names), "free"):
        save(held.store, name)
    clock.advance(MINUTE)

    mores = [task.run(held.store) for _ in range(3)]
    meanwhile = {one.name: one.enqueued_runs for one in memory.reader().schedules()}
    held.names = set()
    clock.advance(POSTPONE_MS)
    while task.run(held.store):
        pass

    assert mores == [True, False, False]
    assert meanwhile == {"a": 0, "b": 0, "c": 0, "d": 0, "free": 1}
    assert all(one.enqueued_runs == 1 for one in memory.reader().schedules())
    assert task.waiting == {}


def test_a_scheduler_sleeps_while_a_schedule_waits_for_a_transaction_and_fires_the_others_in_time(
    memory: MemoryEngine, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    held, one = Held(memory.store()), scheduler(memory, clock)
    save(held.store, "held")
    held.names = {"held"}
    clock.advance(MINUTE)

    pauses = [one.tick(held.store) for _ in range(3)]
    save(held.store, "free", every_ms=5_000)
    one.tick(held.store)
    clock.advance(ms=4_600)
    before_the_other = one.tick(held.store)
    fired_meanwhile = one.fired
    held.names = set()
    clock.advance(POSTPONE_MS)
    one.tick(held.store)

    assert pauses == [POSTPONE_MS / 1_000] * 3
    assert before_the_other == pytest.approx(0.4)
    assert fired_meanwhile > 0
    # The run that has waited, and the next one of the other schedule.
    assert (one.fired, logged_waits(caplog)) == (fired_meanwhile + 2, 1)
