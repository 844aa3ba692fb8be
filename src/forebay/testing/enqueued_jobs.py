"""Enqueued jobs for the assertions of a test: found by task and arguments, and described."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from forebay.app.app import Forebay
from forebay.app.task import Task
from forebay.domain.job import Job
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.payload.codec import decode_call

MAX_SHOWN = 20


def load_jobs(app: Forebay, *states: JobState) -> list[Job]:
    """Return the jobs in these states, or all jobs, the oldest first."""
    found: list[Job] = []
    page = app.search(JobQuery(states=states))
    while True:
        records = app.client.jobs([summary.id for summary in page.jobs])
        found += [record for record in records if record is not None]
        if page.after is None:
            return found[::-1]
        page = app.search(JobQuery(states=states), after=page.after)


def decode_arguments(app: Forebay, job: Job) -> dict[str, Any]:
    """Return a job's arguments by the names of its task's parameters. Of a task that the app does not know,
    keyword arguments have their names and positional ones their positions."""
    args, kwargs = decode_call(job.payload)
    if job.task not in app.registry:
        return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    task = app.registry[job.task]
    args, kwargs = task.coerce_arguments(args, kwargs)
    bound = inspect.signature(task.func).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def find_matching(
    app: Forebay,
    task: Task[..., Any] | str,
    arguments: Mapping[str, Any] | None,
    queue: str | None,
    states: Sequence[JobState],
) -> list[Job]:
    """Return the jobs of a task that have at least these arguments."""
    name = task_name(task)
    wanted = dict(arguments or {})
    return [
        job
        for job in load_jobs(app, *states)
        if name in _task_names(app, job.task)
        and queue in (None, job.queue)
        and _contains(decode_arguments(app, job), wanted)
    ]


def task_name(task: Task[..., Any] | str) -> str:
    return task if isinstance(task, str) else task.name


def _contains(arguments: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in arguments and arguments[name] == value for name, value in wanted.items())


def _task_names(app: Forebay, name: str) -> tuple[str, ...]:
    """Return the names of a task: its own, and those it had before."""
    if name not in app.registry:
        return (name,)
    return (name, app.registry[name].name, *app.registry[name].aliases)


def describe_jobs(app: Forebay, jobs: Sequence[Job]) -> str:
    """Describe jobs for the message of a failed assertion."""
    if not jobs:
        return "nothing was enqueued"
    lines = [f"  {_describe_job(app, job)}" for job in jobs[:MAX_SHOWN]]
    more = [f"  and {len(jobs) - MAX_SHOWN} more"] if len(jobs) > MAX_SHOWN else []
    return "\n".join(["these were enqueued:", *lines, *more])


def _describe_job(app: Forebay, job: Job) -> str:
    words = ", ".join(f"{name}={value!r:.60}" for name, value in decode_arguments(app, job).items())
    return f"{job.task}({words}) in {job.queue}, {job.state}"
