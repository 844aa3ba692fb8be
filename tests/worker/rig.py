"""A coordinator that plays turns on a clock that stands still; its executors run nothing by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from forebay.app.worker_hooks_and_error_listeners import Hooks
from forebay.domain.job import DEFAULT_QUEUE, Job, JobId, QueueName
from forebay.domain.job_history import Timeline
from forebay.domain.outcome import AttemptError, Cancelled, Completed, Failed, Outcome
from forebay.domain.worker import WorkerInfo
from forebay.operations.maintenance_task import MaintenanceTask
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.coordinator import Coordinator
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.executors.executor_protocol import Executor, ExecutorKinds
from forebay.worker.slots import Slots
from forebay.worker.task_invoker import JobTimeout
from tests.stores.support import WORKER, new_job


class FakeExecutor:
    """Keeps what it is given; the test says what starts and how it ends."""

    def __init__(self, inbox: Inbox, clock: ManualClock, *, kind: ExecutorKind = ExecutorKind.CALLS) -> None:
        self.kind = kind
        self._inbox = inbox
        self._clock = clock
        self.given: list[Assignment] = []
        self.interrupts: list[tuple[Assignment, BaseException]] = []
        self.listens = True
        self.replaced: list[Assignment] = []
        self.is_replaceable = True

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def submit(self, assignment: Assignment) -> None:
        self.given.append(assignment)

    def interrupt(self, assignment: Assignment, reason: BaseException) -> None:
        self.interrupts.append((assignment, reason))
        if self.listens:
            assignment.stopped_by = reason

    def abandon(self, assignment: Assignment, reason: BaseException) -> Outcome | None:
        if not assignment.give_up(reason):
            return None
        if isinstance(reason, JobTimeout):
            return Failed(AttemptError(type="Timeout", message=str(reason)))
        return Cancelled(str(reason))

    def replace(self, assignment: Assignment) -> bool:
        self.replaced.append(assignment)
        return self.is_replaceable

    def begin(self, most: int = 1_000) -> list[Assignment]:
        """Start what waits and was not handed back."""
        begun = []
        for one in [one for one in self.given if one.started_at is None][:most]:
            if one.acquire():
                one.started_at = self._clock.monotonic()
                begun.append(one)
        return begun

    def finish(self, one: Assignment, outcome: Outcome | None = None) -> None:
        one.ended_at = self._clock.monotonic()
        if one.conclude():
            self._inbox.put(one, outcome or Completed(b"1"))


class Rig:
    """One coordinator with all its parts. Tasks whose name begins with "co" are coroutines."""

    def __init__(self, store: Store, reader: Reader, clock: ManualClock) -> None:
        self.store = store
        self.reader = reader
        self.clock = clock
        self.inbox = Inbox()
        self.threads = FakeExecutor(self.inbox, clock)
        self.loop = FakeExecutor(self.inbox, clock, kind=ExecutorKind.COROUTINES)
        self.lanes: dict[str, ExecutorKinds] = {}

    def executor(self, task: str) -> Executor:
        return self.loop if task.startswith("co") else self.threads

    def queue_kinds(self, queue: QueueName) -> ExecutorKinds:
        return self.lanes.get(queue, frozenset([ExecutorKind.CALLS]))

    def known_lanes(self) -> frozenset[str] | None:
        return None

    def coordinator(  # noqa: PLR0913 - what tests change, by name
        self,
        *,
        threads: int = 2,
        coroutines: int = 10,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        tasks: Sequence[MaintenanceTask] = (),
        store: Store | None = None,
        roll: Callable[[], float] = lambda: 1.0,
        polls_when_idle: bool = False,
        is_measuring: bool = True,
        hooks: Hooks | None = None,
        max_abandoned: int = 16,
    ) -> Coordinator:
        self.slots = Slots(threads, coroutines)
        return Coordinator(
            worker=WorkerInfo(id=WORKER, queues=tuple(map(QueueName, queues))),
            store=store or self.store,
            slots=self.slots,
            inbox=self.inbox,
            executors=self,
            maintenance_tasks=tasks,
            clock=self.clock,
            roll=roll,
            polls_when_idle=polls_when_idle,
            records_metrics=is_measuring,
            hooks=hooks,
            max_abandoned=max_abandoned,
        )

    def insert(self, count: int = 1, **changes: Any) -> list[JobId]:
        receipts = self.store.insert([new_job(**changes) for _ in range(count)])
        return [receipt.id for receipt in receipts if receipt.id is not None]

    def job(self, job_id: JobId) -> Job:
        [job] = self.reader.jobs([job_id])
        assert job is not None
        return job

    def history(self, job_id: JobId) -> Timeline:
        timeline = self.reader.history(job_id)
        assert timeline is not None
        return timeline

    def states(self, ids: Sequence[JobId]) -> Counter[str]:
        return Counter(self.job(job_id).state.value for job_id in ids)

    def finish_all(self, outcome: Outcome | None = None) -> None:
        """Everything that waits in an executor runs and ends."""
        for executor in (self.threads, self.loop):
            for one in executor.begin():
                executor.finish(one, outcome)
