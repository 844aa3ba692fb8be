"""Workflows: graphs of jobs that are built in one place and stored in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from forebay.app.chain_and_group import Chain, Group, Step, check_steps, parse_on_failure
from forebay.app.job_handle import JobHandle
from forebay.app.job_options import OnFailureName
from forebay.app.poll_backoff import PollBackoff
from forebay.domain.dependency_graph import MAX_WORKFLOW, sort_parents_first
from forebay.domain.durations_and_instants import Duration
from forebay.domain.job import Dependency, Job, JobId, NewJob, OnFailure
from forebay.domain.job_states import JobState
from forebay.errors import InvalidJob

if TYPE_CHECKING:
    from forebay.app.client import Client

_PAGE = 1_000


class WorkflowStep(NamedTuple):
    """A step of a workflow: its first jobs, and the last ones, which the next step waits for."""

    first: tuple[int, ...]
    last: tuple[int, ...]


StepReference: TypeAlias = "WorkflowStep | JobHandle[Any] | str"


class _StepDependency(NamedTuple):
    """A dependency of a job in a workflow: on another job of it, on a named step, or on a stored job."""

    parent: int | str | JobId
    is_stored: bool
    on_failure: OnFailure


class Workflow:
    """A graph of up to 10,000 jobs that is stored as a whole.

        flow = app.workflow()
        parts = flow.add(group(*(count.job(page) for page in pages)))
        flow.add(total.job(), after=parts)
        done = flow.enqueue()

    `total` runs when all jobs of the group have completed. `current_job().parent_results()` has their
    results.
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
        """Add a job, a chain or a group that runs after other steps.

        `after` takes return values of `add`, names of steps, also of later ones, and handles of stored jobs.
        `on_failure` applies if one of these ends dead or cancelled. The step is then cancelled (`cancel`),
        fails too (`fail`), runs all the same (`ignore`), or waits until that job is revived (`hold`).
        """
        [checked] = check_steps([step])
        if name is not None and name in self._names:
            raise InvalidJob(f"there are two steps called {name}", field="name")
        workflow_step = self._add_step(checked, _step_dependencies(after, parse_on_failure(on_failure)))
        if name is not None:
            self._names[name] = workflow_step
        return workflow_step

    def enqueue(self) -> WorkflowHandle:
        """Store all jobs, or none; raise InvalidJob that names a cycle if steps wait for each other."""
        jobs, positions = self._build_jobs()
        return self._build_handle(self._client.enqueue(jobs), positions)

    async def enqueue_async(self) -> WorkflowHandle:
        """`enqueue` for coroutines."""
        jobs, positions = self._build_jobs()
        return self._build_handle(await self._client.enqueue_async(jobs), positions)

    def enqueue_tx(self, connection: object) -> WorkflowHandle:
        """`enqueue` in your own open transaction: the jobs exist from its commit on."""
        jobs, positions = self._build_jobs()
        return self._build_handle(self._client.enqueue_tx(connection, jobs), positions)

    async def enqueue_tx_async(self, connection: object) -> WorkflowHandle:
        """`enqueue_tx` with a connection that lives on this event loop."""
        jobs, positions = self._build_jobs()
        return self._build_handle(await self._client.enqueue_tx_async(connection, jobs), positions)

    def _add_step(self, step: Step, dependencies: list[_StepDependency]) -> WorkflowStep:
        if isinstance(step, NewJob):
            self._jobs.append(step)
            self._dependencies.append(dependencies)
            index = (len(self._jobs) - 1,)
            return WorkflowStep(index, index)
        if isinstance(step, Group):
            members = [self._add_step(member, dependencies) for member in step.steps]
            return WorkflowStep(
                tuple(index for member in members for index in member.first),
                tuple(index for member in members for index in member.last),
            )
        return self._add_chain(step, dependencies)

    def _add_chain(self, step: Chain, dependencies: list[_StepDependency]) -> WorkflowStep:
        first: tuple[int, ...] = ()
        last: tuple[int, ...] = ()
        for link in step.steps:
            added = self._add_step(
                link, [_StepDependency(index, False, step.on_failure) for index in last] or dependencies
            )
            first = first or added.first
            last = added.last or last  # an empty group ends no link: the next one waits for the link before
        return WorkflowStep(first, last)

    def _build_jobs(self) -> tuple[list[NewJob], dict[int, int]]:
        """Return the jobs with their dependencies, parents first, and the new position of each job."""
        if len(self._jobs) > MAX_WORKFLOW:
            raise InvalidJob(f"a workflow has at most {MAX_WORKFLOW:,} jobs, not {len(self._jobs):,}")
        dependencies = [
            list(dict.fromkeys(self._resolve_names(unresolved))) for unresolved in self._dependencies
        ]
        parents = {
            index: [int(dependency.parent) for dependency in own if not dependency.is_stored]
            for index, own in enumerate(dependencies)
        }
        self._check_sizes(self._jobs)
        order = sort_parents_first(parents, self._step_label)
        positions = {index: position for position, index in enumerate(order)}
        return [self._with_dependencies(index, dependencies[index], positions) for index in order], positions

    def _resolve_names(self, dependencies: list[_StepDependency]) -> Iterable[_StepDependency]:
        for dependency in dependencies:
            if dependency.is_stored or isinstance(dependency.parent, int):
                yield dependency
            elif dependency.parent in self._names:
                for index in self._names[dependency.parent].last:
                    yield dependency._replace(parent=index)
            else:
                raise InvalidJob(f"there is no step called {dependency.parent}", field="after")

    def _with_dependencies(
        self, index: int, dependencies: list[_StepDependency], positions: dict[int, int]
    ) -> NewJob:
        job = self._jobs[index]
        if not dependencies:
            return job
        resolved = [
            Dependency(JobId(str(dependency.parent)), dependency.on_failure)
            if dependency.is_stored
            else Dependency(positions[index] - positions[int(dependency.parent)], dependency.on_failure)
            for dependency in dependencies
        ]
        return replace(job, depends_on=(*job.depends_on, *resolved))

    def _step_label(self, index: int) -> str:
        names = [name for name, step in self._names.items() if index in step.first]
        return names[0] if names else f"{self._jobs[index].task} ({index + 1})"

    def _build_handle(self, handles: list[JobHandle[Any]], positions: dict[int, int]) -> WorkflowHandle:
        parents = {
            dependency.parent
            for unresolved in self._dependencies
            for dependency in self._resolve_names(unresolved)
            if not dependency.is_stored
        }
        jobs = [handles[positions[index]] for index in range(len(self._jobs))]
        last = [jobs[index] for index in range(len(jobs)) if index not in parents]
        return WorkflowHandle(self._client, jobs, last)


class WorkflowProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a workflow's jobs by state."""

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
    """A workflow that was enqueued. `jobs` are in the order in which they were added; `last` are the jobs
    that no other job of the workflow depends on."""

    def __init__(
        self, client: Client, jobs: Sequence[JobHandle[Any]], last: Sequence[JobHandle[Any]]
    ) -> None:
        self._client = client
        self.jobs: tuple[JobHandle[Any], ...] = tuple(jobs)
        self.last: tuple[JobHandle[Any], ...] = tuple(last)

    def progress(self) -> WorkflowProgress:
        """Count the jobs by state. A job that was pruned counts as completed: dead jobs are kept longer."""
        counts = {"completed": 0, "dead": 0, "cancelled": 0, "running": 0, "waiting": 0}
        for job in self._load_records():
            counts[_PROGRESS.get(JobState.COMPLETED if job is None else job.state, "waiting")] += 1
        return WorkflowProgress(total=len(self.jobs), **counts)

    async def progress_async(self) -> WorkflowProgress:
        """`progress` for coroutines."""
        return await self._client.run_in_thread(self.progress)

    def wait(self, timeout: Duration | None = None) -> WorkflowProgress:
        """Wait until every job is final; raise WaitTimeout after `timeout` seconds."""
        backoff = PollBackoff(timeout)
        while (live := self._first_live()) is not None:
            time.sleep(backoff.next_pause(live, "the workflow goes on"))
        return self.progress()

    async def wait_async(self, timeout: Duration | None = None) -> WorkflowProgress:
        """`wait` for coroutines."""
        from asyncio import sleep  # noqa: PLC0415 - most programs have no event loop, and loading it takes 25 ms

        backoff = PollBackoff(timeout)
        while (live := await self._client.run_in_thread(self._first_live)) is not None:
            await sleep(backoff.next_pause(live, "the workflow goes on"))
        return await self.progress_async()

    def results(self, timeout: Duration | None = None) -> list[Any]:
        """Wait for the last jobs and return their results; raise JobFailed or JobCancelled instead."""
        return [handle.result(timeout) for handle in self.last]

    async def results_async(self, timeout: Duration | None = None) -> list[Any]:
        """`results` for coroutines."""
        return [await handle.result_async(timeout) for handle in self.last]

    def cancel(self, reason: str = "cancelled") -> int:
        """Cancel all waiting jobs and ask running ones to stop; return the number of both."""
        ids = [handle.id for handle in reversed(self.jobs)]
        pages = [ids[first : first + _PAGE] for first in range(0, len(ids), _PAGE)]
        return sum(result.applied for page in pages for result in self._client.cancel(page, reason))

    async def cancel_async(self, reason: str = "cancelled") -> int:
        """`cancel` for coroutines."""
        return await self._client.run_in_thread(self.cancel, reason)

    def _first_live(self) -> Job | None:
        # From the end: while the last jobs wait, one page is enough.
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
    references = [after] if isinstance(after, (WorkflowStep, JobHandle, str)) else list(after)
    dependencies: list[_StepDependency] = []
    for reference in references:
        if isinstance(reference, WorkflowStep):
            dependencies += [_StepDependency(index, False, on_failure) for index in reference.last]
        elif isinstance(reference, JobHandle):
            dependencies.append(_StepDependency(reference.id, True, on_failure))
        elif isinstance(reference, str):
            dependencies.append(_StepDependency(reference, False, on_failure))
        else:
            raise InvalidJob(
                "a step runs after a return value of add(), the name of a step or a job's handle, "
                f"not {reference!r:.60}",
                field="after",
            )
    return dependencies
