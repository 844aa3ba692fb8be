"""Worker processes that live on a simulated clock: the coordinator, the renewal and the maintenance tasks as
they are; only what runs the tasks is played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import inf
from random import Random
from typing import Final, Protocol, cast

from evidence.history import End, History, Start
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Outcome,
    Snoozed,
)
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.maintenance.scheduler import MIN_PAUSE_SECONDS, Scheduler
from forebay.maintenance.standard_tasks import standard_tasks
from forebay.stores.contract.engine import Engine
from forebay.testing.fault_injection import Killed
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator import Coordinator
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.executor_protocol import Executor, ExecutorKinds
from forebay.worker.lease_renewal import LeaseRenewal
from forebay.worker.slots import Slots
from forebay.worker.task_invoker import JobInterrupted, JobTimeout

TICK_SECONDS: Final = 1.0
LISTENS: Final = 0.8
LATE: Final = "late settlement"
LASTS: Final = (0.0, 0.1, 1.0, 3.0, 8.0, 15.0)
BOOM: Final = AttemptError(type="Boom", message="on purpose")


class Stage(Protocol):
    """What an actor needs of the world."""

    clock: ManualClock
    dice: Random
    history: History
    strikes: Counter[str]

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something at a later time."""
        ...


class OwnClock:
    """The clock of one process: time passes as everywhere, and its wall clock may be wrong."""

    def __init__(self, world: ManualClock) -> None:
        self._world = world
        self.wrong_ms = 0

    def now_ms(self) -> int:
        return self._world.now_ms() + self.wrong_ms

    def monotonic(self) -> float:
        return self._world.monotonic()


class TickedRenewal(LeaseRenewal):
    """Renews when it is told to, without threads of its own."""

    def start(self) -> None:
        self._store = self._engine.store()
        self._send_heartbeat(self._store)


class SimulatedWorker:
    """One process: it takes turns, renews, runs tasks for a while, and may be frozen, stopped or killed."""

    kind = ExecutorKind.CALLS

    def __init__(self, name: str, stage: Stage, engine: Engine, queues: tuple[QueueName, ...]) -> None:
        self.id = WorkerId(name)
        self._stage = stage
        self._dice = stage.dice
        self.clock = OwnClock(stage.clock)
        self._engine = engine
        self._queues = queues
        self.is_alive = True
        self._frozen_until = -inf
        self._turn_at = inf
        self._inbox = Inbox()
        self._slots = Slots(self._dice.choice((1, 2, 4)))

    def begin(self) -> None:
        """Start the process; it tries again while the store is away."""
        info = WorkerInfo(id=self.id, queues=self._queues)
        self._renewal = TickedRenewal(
            engine=self._engine,
            worker=info,
            slots=self._slots,
            clock=self.clock,
            on_cancels=self._inbox.add_cancels,
        )
        try:
            self._renewal.start()
        except StoreUnavailable:
            self._stage.later(1.0, lambda: self._guarded(self.begin))
            return
        self._coordinator = Coordinator(
            worker=info,
            store=self._engine.store(),
            slots=self._slots,
            inbox=self._inbox,
            executors=self,
            maintenance_tasks=standard_tasks(
                sweeper=WorkerId(f"{self.id}-sweeper"),
                clock=self.clock,
                roll=self._dice.random,
                notices_death=self._engine.features.notices_death,
            ),
            clock=self.clock,
            roll=self._dice.random,
        )
        self._tick()
        self._turn()

    @property
    def is_busy(self) -> bool:
        return bool(len(self._slots))

    def kill(self) -> None:
        self.is_alive = False

    def freeze(self, seconds: float) -> None:
        """Nothing of this process moves for a while, as under SIGSTOP."""
        self._frozen_until = max(self._frozen_until, self.clock.monotonic() + seconds)

    def stop(self) -> None:
        """Begin to stop in order: claim nothing more, hand back what was not started, let the rest end."""
        if self.is_alive and hasattr(self, "_coordinator"):
            self._coordinator.is_claiming = False
            self._guarded(self._coordinator.return_unstarted)
            self.wake()

    def wake(self) -> None:
        """A hint that something may have come."""
        self._inbox.wake()
        self._stage.later(0.0, lambda: self._guarded(self._turn))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do something if the process lives; later if it is frozen; for the last time if it is killed."""
        if not self.is_alive:
            return
        wait = self._frozen_until - self.clock.monotonic()
        if wait > 0:
            self._stage.later(wait, lambda: self._guarded(act))
            return
        try:
            act()
        except Killed:
            self.kill()

    def _turn(self) -> None:
        if not hasattr(self, "_coordinator"):
            return
        self._inbox.clear_wake()
        pause = self._coordinator.tick()
        if not self._coordinator.is_claiming and self._coordinator.is_idle:
            self._renewal._deregister()
            self.kill()
            return
        at = self._turn_at = self.clock.monotonic() + pause
        self._stage.later(pause, lambda: self._guarded(lambda: self._turn_if(at)))

    def _turn_if(self, at: float) -> None:
        """Unless another turn has been taken meanwhile, which has planned its own."""
        if at == self._turn_at:
            self._turn()

    def _tick(self) -> None:
        self._stage.later(TICK_SECONDS, lambda: self._guarded(self._tick))
        try:
            self._renewal.renew_due()
        except StoreUnavailable:
            return

    # What the coordinator asks of executors

    def executor(self, task: str) -> Executor:
        return cast("Executor", self)

    def queue_kinds(self, queue: QueueName) -> ExecutorKinds:
        return frozenset([ExecutorKind.CALLS])

    def known_lanes(self) -> frozenset[str] | None:
        return None

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def submit(self, one: Assignment) -> None:
        self._stage.later(
            self._dice.choice((0.0, 0.0, 0.01, 1.5)), lambda: self._guarded(lambda: self._run(one))
        )

    def interrupt(self, one: Assignment, reason: BaseException) -> None:
        """Most tasks listen, after a while."""
        if one.stopped_by is None and self._dice.random() < LISTENS:
            one.stopped_by = reason
            outcome: Outcome = Interrupted()
            if isinstance(reason, JobTimeout):
                outcome = Failed(BOOM)
            elif isinstance(reason, JobInterrupted):
                outcome = Cancelled(str(reason))
            self._stage.later(0.2, lambda: self._guarded(lambda: self._end(one, outcome)))

    def abandon(self, one: Assignment, reason: BaseException) -> Outcome | None:
        """A task that does not listen is given up at its time limit, and goes on by itself."""
        if one.ended_at is not None or not one.give_up(reason):
            return None
        return Failed(BOOM) if isinstance(reason, JobTimeout) else Cancelled(str(reason))

    def replace(self, one: Assignment) -> bool:
        return True

    def _run(self, one: Assignment) -> None:
        if not one.acquire():
            return
        now = self.clock.monotonic()
        if now > one.start_by or not one.mark_started(now):
            self._inbox.put(one, Interrupted())
            self.wake()
            return
        self._stage.history.starts.append(
            Start(lease=one.lease, worker=self.id, at=self._stage.clock.now_ms())
        )
        seconds = self._dice.choice(LASTS)
        outcome = self._chosen()
        self._stage.later(seconds, lambda: self._guarded(lambda: self._end(one, outcome)))

    def _chosen(self) -> Outcome:
        """How the task ends."""
        outcomes: list[Outcome] = [
            Completed(b"1"),
            Failed(BOOM),
            Snoozed(self._dice.randrange(0, 5_000)),
            Discarded(BOOM),
            Interrupted(),
        ]
        [outcome] = self._dice.choices(outcomes, (70, 15, 7, 3, 5))
        return outcome

    def _end(self, one: Assignment, outcome: Outcome) -> None:
        if one.ended_at is not None:
            return
        one.ended_at = self.clock.monotonic()
        is_good = isinstance(outcome, Completed)
        self._stage.history.ends.append(End(lease=one.lease, at=self._stage.clock.now_ms(), is_good=is_good))
        if one.conclude():
            self._inbox.put(one, outcome)
            self._turn()
        else:
            self._settle_late(one, outcome)

    def _settle_late(self, one: Assignment, outcome: Outcome) -> None:
        """Say all the same how an abandoned attempt has ended. A worker drops that; if one did not, the fence
        would have to."""
        self._stage.strikes[LATE] += 1
        with suppress(StoreUnavailable):
            self._engine.store().settle_and_claim(self.id, [decide(one.job, outcome, self._dice.random())])


class SimulatedScheduler:
    """A scheduler that runs alone, in a process that may be killed: its turns, without its thread."""

    def __init__(self, stage: Stage, engine: Engine) -> None:
        self._stage = stage
        self._store = engine.store()
        self._scheduler = Scheduler(engine, clock=OwnClock(stage.clock), roll=stage.dice.random)
        self.is_alive = True

    def begin(self) -> None:
        try:
            pause = self._scheduler._tick_safely(self._store)
        except Killed:
            self.is_alive = False
            return
        self._stage.later(max(pause, MIN_PAUSE_SECONDS), self.begin)
