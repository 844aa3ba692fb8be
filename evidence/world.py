"""A world of producers, operators and workers on one store, played on a simulated clock from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil
from random import Random
from typing import Any, Final

from evidence.actors import SimulatedScheduler, SimulatedWorker
from evidence.faults import Faults
from evidence.history import Accepted, History, problems
from forebay.app.schedules import save_declared
from forebay.domain.concurrency_and_rate_limits import GLOBAL, Limit, key_scope, queue_scope
from forebay.domain.dependencies import Edge, EdgeState
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Dependency, JobId, NewJob, OnFailure, QueueName
from forebay.domain.job_states import FINAL, JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.schedule import ScheduleDefinition
from forebay.errors import ForebayError, StoreUnavailable
from forebay.stores.memory.engine import MemoryEngine
from forebay.testing.fault_injection import FaultyStore, inject_faults
from forebay.testing.manual_clock import ManualClock

BEGAN: Final = 1_800_000_000_000 - 10_000  # a little before the full minute
QUEUES: Final = (QueueName("a"), QueueName("b"), QueueName("c"))
DROPPABLE: Final = QUEUES[1:]  # schedules need the first one
HEARS: Final = 0.7  # hints get lost
FREEZES: Final = (2.0, 15.0, 20.0, 40.0)  # the longer ones beyond a lease and a sweep
ALIVE: Final = 2  # at least, while things happen to them
PLAY_SECONDS: Final = (8.0, 25.0, 25.0)
SHARES: Final = (0.003, 0.01, 0.04)  # of calls that go wrong
DROPPED: Final = 0.03  # of attempts that fail, after how many an operator closes the queue
# A life that was too quiet goes on for another round.
LEAST_CALLS: Final = 200
LEAST_FAULTS: Final = 5
PATIENCE_SECONDS: Final = 1_800.0
CALM_SECONDS: Final = 1.0  # between looks whether all is over
LEASE_MS: Final = 5_000
STEP_MS: Final = 60_000  # of the store's clock, beyond a lease
STEPPED_BACK: Final = 0.25  # of worlds: the store's clock also steps back
FAILURES: Final = (OnFailure.CANCEL, OnFailure.FAIL, OnFailure.IGNORE, OnFailure.HOLD)
KEYS: Final[tuple[dict[str, str], ...]] = (
    {}, {"tenant": "1"}, {"tenant": "2"}, {FAIRNESS: "x"}, {FAIRNESS: "y", "tenant": "1"},
)  # fmt: skip
SCHEDULED_ALONE: Final = 0.5
LIMITS: Final = (
    Limit(scope=GLOBAL, concurrency=5),
    Limit(scope=queue_scope("a"), concurrency=2),
    Limit(scope=key_scope("tenant"), concurrency=1),
    Limit(scope=queue_scope("b"), rate=2, burst=3),
)


class World:
    """Everything that happens is an entry in one list, by time; chance comes from the seed alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.clock = ManualClock(BEGAN)
        self.history = History()
        self.faults = Faults(self.dice, self.dice.choice(SHARES))
        self.moves: Counter[tuple[JobState | None, JobState | None]] = Counter()
        self.strikes: Counter[str] = Counter()
        # A job that depends on a revived one of its own sequence would wait for it in vain, as the guide on
        # limits says, so a world has the one or the other.
        self._revives_sequences = self.dice.choice((True, False))
        # Times of the store have no order there, so the checks that compare them are left out.
        self._steps_back = self.dice.random() < STEPPED_BACK
        self._is_over = False
        self._numbers = count(1)
        self._plan: list[tuple[int, int, Callable[[], None]]] = []
        self._engine = MemoryEngine(clock=self.clock, new_id=lambda: JobId(f"j{next(self._numbers)}"))
        self._watch_moves()
        self._workers: list[SimulatedWorker] = []
        self._scheduler: SimulatedScheduler | None = None
        self._limits = self.dice.sample(LIMITS, self.dice.randrange(3))
        self._producer: Any = self._handle(is_process=False)
        self._reader = self._engine.reader()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        # In whole milliseconds, as the clock counts: a shorter pause would never pass.
        at = round(self.clock.monotonic() * 1_000) + ceil(max(seconds, 0.0) * 1_000)
        heappush(self._plan, (at, next(self._numbers), act))

    def play(self) -> list[str]:
        """Play until everything has ended; what is wrong then."""
        store = self._engine.store()
        for limit in self._limits:
            store.save_limit(limit)
        save_declared(store, self._reader, self._schedules(), self.dice.random)
        for _ in range(self.dice.choice((1, 2))):
            self.later(self.dice.random(), self._new_worker)
        if self.dice.random() < SCHEDULED_ALONE:
            self.later(self.dice.random(), self._new_scheduler)
        self._plan_events()
        while not self._is_over:
            at, _, act = heappop(self._plan)
            self.clock.advance(ms=max(0, at - round(self.clock.monotonic() * 1_000)))
            act()
        return self._problems()

    def _plan_events(self) -> None:
        dice = self.dice
        seconds = dice.choice(PLAY_SECONDS)
        self.faults.is_over = False
        for act, times in (
            (self._produce, dice.randrange(5, 9)),
            (self._operate, 4),
            (self._strike, dice.randrange(3, 6)),
        ):
            for _ in range(times):
                self.later(dice.random() * seconds, act)
        self.later(seconds, self._calm_down)

    def _problems(self) -> list[str]:
        for job_id, record in self._engine._state.jobs.items():
            if job_id not in self.history.accepted:
                self._accept(record.job.created_at, record.job.created_at, record.job, ())
        lives = {job_id: self._reader.history(job_id) for job_id in self.history.accepted}
        schedule_runs = {one.name: self._reader.schedule_runs(one.name) for one in self._reader.schedules()}
        is_ordered = not self.strikes["store clock back"]
        found = list(
            problems(
                self.history, lives, limits=self._limits, schedule_runs=schedule_runs, is_ordered=is_ordered
            )
        )
        return [*found, *self._reader.health().problems, *self._too_quiet()]

    def _too_quiet(self) -> Iterator[str]:
        """A run that shows too little is as bad as one that shows something wrong."""
        if self.faults.calls < LEAST_CALLS:
            yield f"there were only {self.faults.calls} store calls"
        if self.faults_seen() < LEAST_FAULTS:
            yield f"there were only {self.faults_seen()} faults"

    # Handles

    def _handle(self, *, is_process: bool) -> Any:
        return FaultyStore(self._engine.store(), self.faults, self._note, is_process=is_process)

    def _note(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """What a call has done to leases, as the store answers it."""
        now, history = self.clock.now_ms(), self.history
        if name == "settle_and_claim":
            for job in answer.jobs:
                history.claimed(Lease(job.id, job.attempt), now, job.lease_expires_at)
        elif name == "renew":
            for lease in answer.renewed:
                ends_at = self._engine._state.jobs[lease.job_id].job.lease_expires_at
                history.renewed(lease, now, ends_at or now)
        elif name == "sweep":
            for job in answer:
                history.over(Lease(job.id, job.attempt), now)

    def _watch_moves(self) -> None:
        state = self._engine._state
        put, remove = state.put, state.remove

        def watched_put(record: Any) -> None:
            before = state.jobs.get(record.job.id)
            self.moves[before and before.job.state, record.job.state] += 1
            put(record)
            if record.job.state is JobState.RETRYING and self.dice.random() < DROPPED:
                self.later(0.05, partial(self._drop_now, record.job.id))
            if before and before.job.state is JobState.RUNNING is not record.job.state:
                self.history.over(Lease(before.job.id, before.job.attempt), self.clock.now_ms())

        def watched_remove(job: Any) -> None:
            self.moves[job.state, None] += 1
            remove(job)

        state.put = watched_put  # type: ignore[method-assign]
        state.remove = watched_remove  # type: ignore[method-assign]

    # Producers and operators

    def _schedules(self) -> list[ScheduleDefinition]:
        job = NewJob(task="tick", queue=QUEUES[0], lease_ms=LEASE_MS)
        return [
            ScheduleDefinition(name="often", job=job, every_ms=4_000, max_runs=4),
            ScheduleDefinition(name="seldom", job=job, every_ms=10_000, max_runs=2, jitter_ms=1_000),
            ScheduleDefinition(name="by cron", job=job, cron="*/5 * * * * *", max_runs=2),
        ]

    def _new_job(self) -> NewJob:
        dice = self.dice
        sequence = dice.choice((None, None, None, "s", "t"))
        is_alone = self._revives_sequences and sequence is not None
        known = [one for one in self.history.accepted if one not in self.history.deleted and not is_alone]
        parents = dice.sample(known, min(len(known), dice.choice((0, 0, 0, 1, 2))))
        return NewJob(
            task=dice.choice(("one", "two")),
            queue=dice.choice(QUEUES),
            priority=dice.choice((None, None, -5, 5)),
            delay_ms=dice.choice((0, 0, 0, 500, 8_000)),
            lease_ms=LEASE_MS,
            timeout_ms=dice.choice((None, 10_000)),
            policy=RetryPolicy(max_retries=dice.choice((0, 2, 4)), base_ms=200, ceiling_ms=5_000),
            unique_key=dice.choice((None, None, None, "x", "y")),
            limit_keys=dice.choice(KEYS),
            sequence=sequence,
            expires_at=dice.choice((None, None, None, self.clock.now_ms() + 12_000)),
            depends_on=tuple(Dependency(parent, dice.choice(FAILURES)) for parent in parents),
            allow_missing=True,
        )

    def _produce(self) -> None:
        """Enqueue some jobs, and a job that was refused or whose answer was lost once more."""
        jobs = [self._new_job() for _ in range(self.dice.choice((1, 1, 1, 3)))]
        now = self.clock.now_ms()
        try:
            receipts = self._producer.insert(jobs)
        except ForebayError as exc:
            if isinstance(exc, StoreUnavailable):
                self.later(1.0, self._produce)
            return
        for job, receipt in zip(jobs, receipts, strict=True):
            if receipt.is_new:
                self._accept(now, now + job.delay_ms, job, job.depends_on, receipt.id)
        for worker in self._workers:
            if self.dice.random() < HEARS:
                worker.wake()

    def _accept(
        self, at: int, due_at: int, job: Any, needs: tuple[Dependency, ...], job_id: JobId | None = None
    ) -> None:
        job_id = job_id or job.id
        self.history.accepted[job_id] = Accepted(
            id=job_id,
            at=at,
            due_at=due_at if not needs else at,
            queue=job.queue,
            task=job.task,
            unique_key=job.unique_key,
            unique_until=job.unique_until,
            parents=tuple((JobId(str(need.parent)), need.on_failure) for need in needs),
            limit_keys=job.limit_keys,
            sequence=job.sequence,
        )

    def _operate(self) -> None:
        known = list(self.history.accepted)
        if not known:
            return
        ids = self.dice.sample(known, min(2, len(known)))
        requests = (
            self._cancel,
            self._force,
            self._revive,
            self._delete,
            self._update,
            self._pause,
            self._drop,
        )
        self._try(self.dice.choice(requests), ids)

    def _try(self, request: Callable[[Any, list[JobId]], None], ids: list[JobId]) -> None:
        with suppress(ForebayError):  # no call reached the store, or it refused
            request(self._producer, ids)

    def _drop_now(self, failed: JobId) -> None:
        """An operator has enough of a queue whose jobs fail, while they wait to be tried again."""
        if not self.faults.is_over:
            self._try(self._drop, [failed])

    def _cancel(self, store: Any, ids: list[JobId]) -> None:
        store.cancel(ids, dependants=self.dice.choice((False, False, True)))

    def _force(self, store: Any, ids: list[JobId]) -> None:
        store.cancel(ids, force=True)

    def _revive(self, store: Any, ids: list[JobId]) -> None:
        """Rather something that has ended badly: all else is refused."""
        jobs = (record.job for record in self._engine._state.jobs.values())
        ended = [
            job.id
            for job in jobs
            if job.state in (JobState.DEAD, JobState.CANCELLED)
            and (self._revives_sequences or job.sequence is None)
        ]
        store.revive(
            self.dice.sample(ended, min(2, len(ended))),
            delay_ms=self.dice.choice((0, 0, 2_000)),
            dependants=self._revives_sequences and self.dice.choice((False, True)),
        )

    def _delete(self, store: Any, ids: list[JobId]) -> None:
        # Told to us or not, it may have happened.
        self.history.deleted.update(ids)
        store.delete(ids)

    def _update(self, store: Any, ids: list[JobId]) -> None:
        store.update_job(ids[0], JobUpdate(priority=self.dice.choice((-50, 50))))

    def _pause(self, store: Any, ids: list[JobId]) -> None:
        queue = self.dice.choice(QUEUES)
        store.save_queue(queue, state=QueueState.PAUSED)
        self.later(self.dice.uniform(1.0, 10.0), lambda: self._resume(queue))

    def _drop(self, store: Any, ids: list[JobId]) -> None:
        """Close a queue with all that waits there; it is opened again later."""
        jobs = self._reader.jobs(ids)
        queue = self.dice.choice([job.queue for job in jobs if job and job.queue in DROPPABLE] or DROPPABLE)
        self.later(self.dice.uniform(1.0, 10.0), lambda: self._resume(queue))
        while store.drop_queue(queue, force=True, limit=2):
            pass

    def _resume(self, queue: QueueName) -> None:
        self._engine.store().save_queue(queue, state=QueueState.ACTIVE)

    # Workers and what strikes them

    def _new_worker(self) -> None:
        engine = inject_faults(self._engine, lambda store: FaultyStore(store, self.faults, self._note))
        worker = SimulatedWorker(f"w{next(self._numbers)}", self, engine, QUEUES)
        self._workers.append(worker)
        worker._guarded(worker.begin)

    def _new_scheduler(self) -> None:
        engine = inject_faults(self._engine, lambda store: FaultyStore(store, self.faults, self._note))
        self._scheduler = SimulatedScheduler(self, engine)
        self._scheduler.begin()

    def _strike(self) -> None:
        living = [worker for worker in self._workers if worker.is_alive]
        strikes = {
            "kill": lambda: self.dice.choice(living).kill(),
            "freeze": self._freeze,
            "stop": lambda: self.dice.choice(living).stop(),
            "clock": self._move_clock,
            "store clock": self._step_store_clock,
            "outage": self._begin_outage,
        }
        name = self.dice.choice(tuple(strikes))
        if living or name == "outage":
            self.strikes[name] += 1
            strikes[name]()
        self._keep_some_alive()

    def _freeze(self) -> None:
        """Rather a worker that has jobs: such a worker comes back too late."""
        living = [worker for worker in self._workers if worker.is_alive]
        busy = [worker for worker in living if worker.is_busy]
        self.dice.choice(busy or living).freeze(self.dice.choice(FREEZES))

    def _move_clock(self) -> None:
        living = [worker for worker in self._workers if worker.is_alive]
        self.dice.choice(living).clock.wrong_ms += self.dice.choice((-600_000, -2_000, 2_000, 600_000))

    def _step_store_clock(self) -> None:
        if self._steps_back and self.dice.choice((True, False)):
            self.strikes["store clock back"] += 1
            self.clock.set(self.clock.now_ms() - STEP_MS)
        else:
            self.clock.set(self.clock.now_ms() + STEP_MS)

    def _begin_outage(self) -> None:
        self.faults.is_away = True
        self.later(self.dice.uniform(0.2, 6.0), self._end_outage)

    def _end_outage(self) -> None:
        self.faults.is_away = False

    def _keep_some_alive(self, least: int = ALIVE) -> None:
        while sum(worker.is_alive for worker in self._workers) < least:
            self._new_worker()
        if self._scheduler is not None and not self._scheduler.is_alive:
            self._new_scheduler()

    def _calm_down(self) -> None:
        """Nothing goes wrong any more, and a worker is there to do what is left."""
        self.faults.is_over, self.faults.is_away = True, False
        for queue in QUEUES:
            self._resume(queue)
        for worker in [one for one in self._workers if one.is_alive][1:]:
            worker.stop()
        self._look_after()

    def _look_after(self) -> None:
        self._keep_some_alive(1)
        self._let_go()
        is_late = self.clock.monotonic() > PATIENCE_SECONDS
        if not is_late and any(record.job.state not in FINAL for record in self._engine._state.jobs.values()):
            self.later(CALM_SECONDS, self._look_after)
        elif not is_late and any(self._too_quiet()):
            self._plan_events()
        else:
            self._is_over = True

    def _let_go(self) -> None:
        """What is held until an operator revives a parent would be held for ever: in the end no operator
        does."""
        edges = self._engine._state.edges
        held = [job_id for job_id, needs in edges.items() if any(map(_is_held, needs.values()))]
        if held:
            self._engine.store().cancel(held)

    def faults_seen(self) -> int:
        return sum(self.faults.counts.values()) + sum(self.strikes.values())


def _is_held(edge: Edge) -> bool:
    return edge.state is EdgeState.HELD
