"""A worker that takes its turns when it is told to, runs jobs in the thread of the test, and can be killed
after any of its steps. The coordinator is that of every worker."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from enum import StrEnum
from threading import RLock
from typing import Any, Final, cast

from forebay.app.app import Forebay
from forebay.app.codec import VERSION
from forebay.app.consumer import new_worker
from forebay.app.context import JobContext
from forebay.app.saying import Pending
from forebay.domain.gate import gates_of
from forebay.domain.job import Job, QueueName, WorkerId
from forebay.domain.note import Step
from forebay.domain.outcome import Discarded, Failed, Interrupted, Outcome
from forebay.domain.settlement import Settlement
from forebay.domain.worker import WorkerInfo
from forebay.errors import JobSignal, StoreUnavailable
from forebay.stores.protocol import Exchange, Store, Want
from forebay.testing.faults import Killed
from forebay.worker.coordinator import Coordinator
from forebay.worker.executors.protocol import Executor, Sorts
from forebay.worker.inbox import Inbox
from forebay.worker.invoke import Call, Invoke
from forebay.worker.noting import Noting
from forebay.worker.slots import Assignment, Kind, Slots

OUTAGE_SECONDS: Final = 60.0
MOST_ATTEMPTS: Final = 10_000


class WorkerStep(StrEnum):
    """What a worker does with each job, in this order; it can be killed after any of these."""

    CLAIMED = "claimed"  # the job is its own, and nothing of it was begun
    STARTED = "started"  # the arguments are read, and the task is about to be called
    RAN = "ran"  # the task has returned, and nobody knows it yet
    SETTLED = "settled"  # the store knows


Reach = Callable[[WorkerStep | str, Job], None]


class TrialWorker:
    """One worker with room for one job. `reach` hears of every step, and may raise `Killed`; `sleep` is how
    time passes while the store is away. With `lease_ms` its leases are of this length."""

    kind = Kind.CALLS

    def __init__(
        self,
        app: Forebay,
        queues: Sequence[str],
        reach: Reach,
        sleep: Callable[[float], None],
        lease_ms: int | None = None,
    ) -> None:
        self._registry, self._clock = app.registry, app.clock
        self._reach, self._sleep = reach, sleep
        self._slots = Slots(1)
        self._inbox = Inbox()
        self._invoke = Invoke(app.registry)
        self._submitted: deque[Assignment] = deque()
        self._id = new_worker()
        self._store = cast(Store, _LeasesOf(lease_ms, app.engine.store()))
        # A task may say things on threads of its own.
        self._turning = RLock()
        self._coordinator = Coordinator(
            worker=WorkerInfo(id=self._id, queues=tuple(map(QueueName, queues))),
            store=self._store,
            slots=self._slots,
            inbox=self._inbox,
            executors=self,
            duties=(),
            clock=app.clock,
            roll=random.random,
            noting=_ToldAtOnce(self, app),
            hooks=app.registry.hooks,
            is_measuring=False,
        )
        self.raised: BaseException | None = None  # by the first task that has failed

    def work(self) -> int:
        """Run what is due until there is no more; how many attempts that were. Raises StoreUnavailable when
        the store was away for a minute."""
        attempts, waited = 0, 0.0
        while True:
            pause = self.turn()
            while self._submitted:
                self._attempt(self._submitted.popleft())
                attempts, pause = attempts + 1, 0.0
                if attempts > MOST_ATTEMPTS:
                    raise AssertionError(f"{attempts} attempts were made, and there is always another job")
            if pause <= 0:
                continue
            if self._coordinator.is_idle:
                return attempts
            if waited >= OUTAGE_SECONDS:
                raise StoreUnavailable("the store was away for a minute")
            self._sleep(pause)
            waited += pause

    def turn(self) -> float:
        with self._turning:
            return self._coordinator.turn()

    def reach(self, step: WorkerStep | str, job: Job) -> None:
        self._reach(step, job)

    def _attempt(self, one: Assignment) -> None:
        self.reach(WorkerStep.CLAIMED, one.job)
        if not one.take():
            return
        # What the job sets in context variables is its own affair.
        outcome = copy_context().run(self._outcome, one)
        # One whose lease was nearly over is handed back, and comes again.
        has_run = one.started_at is not None
        if has_run:
            self.reach(WorkerStep.RAN, one.job)
        self._inbox.put(one, outcome)
        self.turn()
        if has_run and one not in list(self._slots):
            self.reach(WorkerStep.SETTLED, one.job)

    def _outcome(self, one: Assignment) -> Outcome:
        now = self._clock.monotonic()
        if now > one.start_by or not one.began(now):
            return Interrupted(started=False)
        self._invoke.announce(one)
        call: Call | None = None
        value: Any = None
        raised: BaseException | None = None
        try:
            call = self._invoke.prepared(one)
            self.reach(WorkerStep.STARTED, one.job)
            value = call.func(*call.args, **call.kwargs)
            if call.task.is_async:
                value = awaited(value)
        except (Killed, KeyboardInterrupt):
            raise
        except BaseException as exc:
            raised = exc
        outcome = self._invoke.ended(one, call, value, raised)
        if isinstance(outcome, (Failed, Discarded)) and not isinstance(raised, JobSignal):
            self.raised = self.raised or raised
        return outcome

    # What the coordinator asks of executors

    def executor(self, task: str) -> Executor:
        return cast("Executor", self)

    def sorts(self, queue: QueueName) -> Sorts:
        return frozenset([Kind.CALLS])

    def gates(self) -> frozenset[str]:
        return gates_of(self._registry, VERSION)

    def start(self) -> None:
        pass

    def submit(self, assignment: Assignment) -> None:
        self._submitted.append(assignment)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        """It runs in the thread that would have to interrupt it."""

    def close(self) -> None:
        """Let go of the store; what it holds stays held."""
        self._store.close()


class _LeasesOf:
    """A handle that claims for another time than jobs and queues say."""

    def __init__(self, lease_ms: int | None, store: Store) -> None:
        self._lease_ms = lease_ms
        self._store = store

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        *others: Any,
    ) -> Exchange:
        chosen = [want._replace(lease_ms=self._lease_ms) for want in wants]
        return self._store.exchange(worker, settlements, chosen, *others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _ToldAtOnce(Noting):
    """What a job says is written while the job waits: nobody else would do it meanwhile."""

    def __init__(self, worker: TrialWorker, app: Forebay) -> None:
        super().__init__(app.clock, lambda: None, app.engine.reader)
        self._worker = worker

    def keep(self, context: JobContext, step: Step, tell: Callable[[], object] | None = None) -> Pending:
        pending = super().keep(context, step, tell)
        self._worker.turn()
        self._worker.reach(step.name, context.job)
        return pending


def awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, also for a test that is a coroutine itself: its loop waits meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    context = copy_context()
    with ThreadPoolExecutor(1, thread_name_prefix="forebay-trial") as thread:
        return thread.submit(context.run, asyncio.run, coroutine).result()
