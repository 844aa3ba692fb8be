"""Random moves of schedules on each engine and on the memory engine side by side: they must never differ.

What becomes of a move is worked out in Python on three engines and in Lua on the fourth; here they are
compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.domain.job import NewJob, QueueName
from forebay.domain.outcome import Completed
from forebay.domain.queue import QueueState
from forebay.domain.schedule import CatchUp, Overlap, Schedule, ScheduleDefinition
from forebay.domain.schedule_runs import manual_run, plan_advance, plan_runs
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.schedules import FireResult
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.clocks import FollowedClock
from tests.stores import postgres_support, redis_support
from tests.stores.contract.steps import T0
from tests.stores.support import WORKER

SECOND: Final = 1_000
NAMES: Final = ("a", "b", "c")
A, B = QueueName("a"), QueueName("b")
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it

whens = st.sampled_from([{"cron": "* * * * *"}, {"every_ms": 20 * SECOND}, {"cron": "*/10 * * * * *"}])
keys = st.sampled_from(
    [{}, {}, {"overlap": Overlap.SKIP}, {"overlap": Overlap.QUEUE}, {"unique_key": "k", "unique_ms": 60_000}]
)
bounds = st.sampled_from([{}, {}, {"max_runs": 3}, {"catch_up": CatchUp.LATEST}, {"catch_up_limit": 2}])
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("save"), names, whens, keys, bounds, st.sampled_from([A, A, B])),
    st.tuples(st.just("once"), names, st.integers(1, 90)),
    st.tuples(st.just("wait"), st.sampled_from([SECOND, 10 * SECOND, 45 * SECOND, 600 * SECOND])),
    st.tuples(st.just("wait"), st.sampled_from([SECOND, 10 * SECOND, 45 * SECOND, 600 * SECOND])),
    st.tuples(st.just("fire"), st.integers(1, 3)),
    st.tuples(st.just("fire"), st.integers(1, 3)),
    st.tuples(st.just("stale"), names),
    st.tuples(st.just("hand"), names),
    st.tuples(st.just("pause"), names),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("work"), st.sampled_from([A, B])),
    st.tuples(st.just("close"), st.sampled_from([QueueState.DRAINING, QueueState.ACTIVE])),
)


def sqlite(folder: str, clock: ManualClock) -> Engine:
    return SqliteEngine(f"{folder}/jobs.db", clock=clock, durability="relaxed")


def postgresql(folder: str, clock: ManualClock) -> Engine:
    return postgres_support.make_engine(clock)


def redis(folder: str, clock: ManualClock) -> Engine:
    return redis_support.make_engine(clock)


ENGINES: Final[dict[str, Callable[[str, ManualClock], Engine]]] = {
    "sqlite": sqlite,
    "postgresql": postgresql,
    "redis": redis,
}


class Player:
    """One engine on which the steps are played; jobs are called by the order in which they came."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self._clock = clock
        self._store, self._reader = engine.store(), engine.reader()
        self._called: dict[str, str] = {}

    def play(self, step: tuple[Any, ...]) -> object:
        answer: object = getattr(self, f"_{step[0]}")(*step[1:])
        return answer

    def seen(self) -> object:
        """All that a reader can see."""
        schedules = [
            replace(one, last_job_id=self._name(one.last_job_id)) for one in self._reader.schedules()
        ]
        history = [self._named(self._reader.schedule_runs(name)) for name in NAMES]
        return schedules, history, self._reader.counts([A, B]), self._store.due_schedules().next_due_ms

    def close(self) -> None:
        self._store.close()
        self._reader.close()

    def _save(self, name: str, when: Any, keys: Any, bounds: Any, queue: QueueName) -> bool:
        job = NewJob(task="t", queue=queue)
        return self._define(ScheduleDefinition(name=name, job=job, **when, **keys, **bounds))

    def _once(self, name: str, seconds: int) -> bool:
        at = self._clock.now_ms() + seconds * SECOND
        return self._define(ScheduleDefinition(name=name, job=NewJob(task="t", queue=A), at=at))

    def _define(self, definition: ScheduleDefinition) -> bool:
        [known] = self._reader.schedules([definition.name]) or [Schedule(definition=definition)]
        wanted = plan_runs(replace(known, definition=definition), self._clock.now_ms(), 0.25)
        return self._store.save_schedule(wanted)

    def _wait(self, ms: int) -> None:
        pass  # both share a clock, which is moved once

    def _fire(self, most: int) -> object:
        due = self._store.due_schedules(most)
        return self._answer(
            self._store.fire_schedules([plan_advance(one, due.now, 0.5) for one in due.schedules])
        )

    def _stale(self, name: str) -> object:
        """A move that was worked out from what is true no more, and one that comes too early."""
        found = self._reader.schedules([name])
        moves = [
            plan_advance(replace(one, revision=one.revision - 1), self._clock.now_ms(), 0.5) for one in found
        ]
        return self._answer(self._store.fire_schedules(moves))

    def _hand(self, name: str) -> object:
        moves = [manual_run(one, self._clock.now_ms()) for one in self._reader.schedules([name])]
        return self._answer(self._store.fire_schedules(moves))

    def _pause(self, name: str) -> list[bool]:
        found = self._reader.schedules([name])
        paused = [replace(one, is_paused=not one.is_paused) for one in found]
        return [self._store.save_schedule(plan_runs(one, self._clock.now_ms(), 0.75)) for one in paused]

    def _drop(self, name: str) -> bool:
        return self._store.drop_schedule(name)

    def _work(self, queue: QueueName) -> list[str | None]:
        jobs = self._store.settle_and_claim(WORKER, claims=[QueueClaim(queue, 2)], room=2).jobs
        self._store.settle_and_claim(WORKER, [decide(job, Completed(b"1"), 0.0) for job in jobs[:1]])
        return [self._name(job.id) for job in jobs]

    def _close(self, state: QueueState) -> None:
        self._store.save_queue(B, state=state)

    def _answer(self, fired: list[FireResult]) -> object:
        return [(one.name, one.applied, self._named(one.runs)) for one in fired]

    def _named(self, runs: Any) -> list[Any]:
        # The words of a refusal are each engine's own.
        return [replace(one, job_id=self._name(one.job_id), reason=one.reason[:5]) for one in runs]

    def _name(self, job_id: Any) -> Any:
        return None if job_id is None else self._called.setdefault(job_id, f"job {len(self._called)}")


@pytest.mark.parametrize("name", ENGINES)
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(played=st.lists(steps, min_size=5, max_size=25))
@pytest.mark.shows("R-SCHED-55")
def test_engines_agree_about_schedules(name: str, played: list[tuple[Any, ...]]) -> None:
    clock = FollowedClock(T0)
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        real = Player(ENGINES[name](folder, clock), clock)
        model = Player(MemoryEngine(clock=clock), clock)
        try:
            for step in played:
                if step[0] == "wait":
                    clock.advance(ms=step[1])
                assert real.play(step) == model.play(step), step
                assert real.seen() == model.seen(), step
        finally:
            real.close()
            model.close()
            postgres_support.release()
            redis_support.release()
