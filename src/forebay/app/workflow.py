"""Jobs that run after each other or beside each other, put together in one place and stored in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from forebay.app.handle import JobHandle, PollBackoff
from forebay.app.options import OnFailureName
from forebay.app.workflow_steps import Chain, Group, Step, check_steps, parse_on_failure
from forebay.domain.dependencies import MAX_WORKFLOW, sort_parents_first
from forebay.domain.durations import Duration
from forebay.domain.job import Dependency, Job, JobId, NewJob, OnFailure
from forebay.domain.lifecycle import JobState
from forebay.errors import InvalidJob

if TYPE_CHECKING:
    from forebay.app.client import Client

_PAGE = 1_000


class WorkflowStep(NamedTuple):
    """A step of a workflow: which of its jobs come first, and for which the next step waits."""

    first: tuple[int, ...]
    last: tuple[int, ...]


StepReference: TypeAlias = "WorkflowStep | JobHandle[Any] | str"


class _StepDependency(NamedTuple):
    """What a job of a workflow waits for: another one of it, a step that has a name, or a stored job."""

    parent: int | str | JobId
    is_stored: bool
    on_failure: OnFailure


class Workflow:
    """A graph of jobs that is stored as a whole, up to 10,000 of them.

        flow = app.workflow()
        parts = flow.add(group(*(count.job(page) for page in pages)))
        flow.add(total.job(), after=parts)
        done = flow.enqueue()

    `total` runs when all of the group have completed, and finds what they returned in
    `current_job().results()`.
    """

    def __init__(
        self, client: Client, check_sizes: Callable[[Sequence[NewJob]], Sequence[NewJob]] = lambda jobs: jobs
    ) -> None:
        self._client = client
        self._check_sizes = check_sizes  # refuses jobs that are larger than the app allows
        self._jobs: list[NewJob] = []
        self._dependencies: list[list[_StepDependency]] = []
        self._names: dict[str, WorkflowStep] = {}

    def add(
        self,
        step: Step,
        *,
        after: StepReference | Sequence[StepReference] = (),
        on_failure: OnFailureName = "cancel",
        name: str | None = None,
    ) -> WorkflowStep:
        """Add a job, a chain or a group that runs after others: steps of this workflow, by what `add` gave or
        by their `name`, also ones that come later; and stored jobs, by their handles.

        `on_failure` says what becomes of it if one of these ends dead or cancelled: it is cancelled, it fails
        too, it runs all the same (`ignore`), or it waits until somebody revives that one (`hold`).
        """
        [found] = check_steps([step])
        if name is not None and name in self._names:
            raise InvalidJob(f"there are two steps called {name}", field="name")
        part = self._add_step(found, _step_dependencies(after, parse_on_failure(on_failure)))
        if name is not None:
            self._names[name] = part
        return part

    def enqueue(self) -> WorkflowHandle:
        """Store all jobs, or none; raises InvalidJob that names a cycle if steps wait for each other."""
        jobs, went = self._build_jobs()
        return self._build_handle(self._client.enqueue(jobs), went)

    async def enqueue_async(self) -> WorkflowHandle:
        """`enqueue` for coroutines."""
        jobs, went = self._build_jobs()
        return self._build_handle(await self._client.enqueue_async(jobs), went)

    def enqueue_tx(self, connection: object) -> WorkflowHandle:
        """`enqueue` in your own open transaction: with its commit the jobs are there, and not before."""
        jobs, went = self._build_jobs()
        return self._build_handle(self._client.enqueue_tx(connection, jobs), went)

    async def enqueue_tx_async(self, connection: object) -> WorkflowHandle:
        """`enqueue_tx` with a connection that lives on this event loop."""
        jobs, went = self._build_jobs()
        return self._build_handle(await self._client.enqueue_tx_async(connection, jobs), went)

    def _add_step(self, step: Step, dependencies: list[_StepDependency]) -> WorkflowStep:
        if isinstance(step, NewJob):
            self._jobs.append(step)
            self._dependencies.append(dependencies)
            place = (len(self._jobs) - 1,)
            return WorkflowStep(place, place)
        if isinstance(step, Group):
            parts = [self._add_step(each, dependencies) for each in step.steps]
            return WorkflowStep(
                tuple(place for part in parts for place in part.first),
                tuple(place for part in parts for place in part.last),
            )
        return self._add_chain(step, dependencies)

    def _add_chain(self, step: Chain, dependencies: list[_StepDependency]) -> WorkflowStep:
        first: tuple[int, ...] = ()
        last: tuple[int, ...] = ()
        for each in step.steps:
            part = self._add_step(
                each, [_StepDependency(place, False, step.on_failure) for place in last] or dependencies
            )
            first = first or part.first
            last = part.last or last  # nobody waits for an empty group
        return WorkflowStep(first, last)

    def _build_jobs(self) -> tuple[list[NewJob], dict[int, int]]:
        """The jobs with their needs, parents first, and where each one went."""
        if len(self._jobs) > MAX_WORKFLOW:
            raise InvalidJob(f"a workflow has at most {MAX_WORKFLOW:,} jobs, not {len(self._jobs):,}")
        waits = [list(dict.fromkeys(self._resolve_names(each))) for each in self._dependencies]
        parents = {
            place: [int(wait.parent) for wait in each if not wait.is_stored]
            for place, each in enumerate(waits)
        }
        self._check_sizes(self._jobs)
        order = sort_parents_first(parents, self._step_label)
        went = {place: at for at, place in enumerate(order)}
        return [self._with_dependencies(place, waits[place], went) for place in order], went

    def _resolve_names(self, dependencies: list[_StepDependency]) -> Iterable[_StepDependency]:
        for wait in dependencies:
            if wait.is_stored or isinstance(wait.parent, int):
                yield wait
            elif wait.parent in self._names:
                for place in self._names[wait.parent].last:
                    yield wait._replace(parent=place)
            else:
                raise InvalidJob(f"there is no step called {wait.parent}", field="after")

    def _with_dependencies(
        self, index: int, dependencies: list[_StepDependency], positions: dict[int, int]
    ) -> NewJob:
        job = self._jobs[index]
        if not dependencies:
            return job
        needs = [
            Dependency(JobId(str(wait.parent)), wait.on_failure)
            if wait.is_stored
            else Dependency(positions[index] - positions[int(wait.parent)], wait.on_failure)
            for wait in dependencies
        ]
        return replace(job, depends_on=(*job.depends_on, *needs))

    def _step_label(self, index: int) -> str:
        names = [name for name, part in self._names.items() if index in part.first]
        return names[0] if names else f"{self._jobs[index].task} ({index + 1})"

    def _build_handle(self, handles: list[JobHandle[Any]], positions: dict[int, int]) -> WorkflowHandle:
        waited_for = {
            wait.parent
            for each in self._dependencies
            for wait in self._resolve_names(each)
            if not wait.is_stored
        }
        jobs = [handles[positions[place]] for place in range(len(self._jobs))]
        last = [jobs[place] for place in range(len(jobs)) if place not in waited_for]
        return WorkflowHandle(self._client, jobs, last)


class WorkflowProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the jobs of a workflow have come."""

    total: int
    completed: int = 0
    dead: int = 0
    cancelled: int = 0
    running: int = 0
    waiting: int = 0

    @property
    def is_final(self) -> bool:
        return self.completed + self.dead + self.cancelled == self.total


class WorkflowHandle:
    """A workflow in the hand of whoever enqueued it: `jobs` in the order in which they were added, and
    `last`, those that no other job of it waits for."""

    def __init__(
        self, client: Client, jobs: Sequence[JobHandle[Any]], last: Sequence[JobHandle[Any]]
    ) -> None:
        self._client = client
        self.jobs: tuple[JobHandle[Any], ...] = tuple(jobs)
        self.last: tuple[JobHandle[Any], ...] = tuple(last)

    def progress(self) -> WorkflowProgress:
        """How many jobs are in which state; one that was forgotten had ended well, since it is not kept."""
        counts = {"completed": 0, "dead": 0, "cancelled": 0, "running": 0, "waiting": 0}
        for job in self._load_records():
            counts[_PROGRESS.get(JobState.COMPLETED if job is None else job.state, "waiting")] += 1
        return WorkflowProgress(total=len(self.jobs), **counts)

    async def progress_async(self) -> WorkflowProgress:
        """`progress` for coroutines."""
        return await self._client.run_in_thread(self.progress)

    def wait(self, timeout: Duration | None = None) -> WorkflowProgress:
        """Wait until every job has ended; raises WaitTimeout after `timeout` seconds."""
        patience = PollBackoff(timeout)
        while (live := self._first_live()) is not None:
            time.sleep(patience.next_pause(live, "the workflow goes on"))
        return self.progress()

    async def wait_async(self, timeout: Duration | None = None) -> WorkflowProgress:
        """`wait` for coroutines."""
        from asyncio import sleep  # noqa: PLC0415 - most programs have no event loop, and loading it takes 25 ms

        patience = PollBackoff(timeout)
        while (live := await self._client.run_in_thread(self._first_live)) is not None:
            await sleep(patience.next_pause(live, "the workflow goes on"))
        return await self.progress_async()

    def results(self, timeout: Duration | None = None) -> list[Any]:
        """Wait for the last jobs and give what they returned; raises JobFailed or JobCancelled instead."""
        return [handle.result(timeout) for handle in self.last]

    async def results_async(self, timeout: Duration | None = None) -> list[Any]:
        """`results` for coroutines."""
        return [await handle.result_async(timeout) for handle in self.last]

    def cancel(self, reason: str = "cancelled") -> int:
        """Cancel all jobs that wait and ask running ones to stop; how many that were."""
        ids = [handle.id for handle in reversed(self.jobs)]
        pages = [ids[first : first + _PAGE] for first in range(0, len(ids), _PAGE)]
        return sum(verdict.applied for page in pages for verdict in self._client.cancel(page, reason))

    async def cancel_async(self, reason: str = "cancelled") -> int:
        """`cancel` for coroutines."""
        return await self._client.run_in_thread(self.cancel, reason)

    def _first_live(self) -> Job | None:
        # From the end: as long as the last ones wait, nobody need look at all the others.
        for job in self._load_records(reversed(self.jobs)):
            if job is not None and not job.is_final:
                return job
        return None

    def _load_records(self, handles: Iterable[JobHandle[Any]] | None = None) -> Iterable[Job | None]:
        ids = [handle.id for handle in (self.jobs if handles is None else handles)]
        for first in range(0, len(ids), _PAGE):
            yield from self._client.jobs(ids[first : first + _PAGE])


_PROGRESS = {
    JobState.COMPLETED: "completed",
    JobState.DEAD: "dead",
    JobState.CANCELLED: "cancelled",
    JobState.RUNNING: "running",
}


def _step_dependencies(
    after: StepReference | Sequence[StepReference], on_failure: OnFailure
) -> list[_StepDependency]:
    several = [after] if isinstance(after, (WorkflowStep, JobHandle, str)) else list(after)
    waits: list[_StepDependency] = []
    for one in several:
        if isinstance(one, WorkflowStep):
            waits += [_StepDependency(place, False, on_failure) for place in one.last]
        elif isinstance(one, JobHandle):
            waits.append(_StepDependency(one.id, True, on_failure))
        elif isinstance(one, str):
            waits.append(_StepDependency(one, False, on_failure))
        else:
            raise InvalidJob(
                f"a step runs after what add() gave, the name of a step, or a job's handle, not {one!r:.60}",
                field="after",
            )
    return waits
