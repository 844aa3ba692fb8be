"""Data of the admin's views: queries of the store, and values for a template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from django.utils.module_loading import autodiscover_modules

from forebay.app.app import Forebay
from forebay.domain.job import Job, JobId, QueueName
from forebay.domain.job_query import JobQuery, Page
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobSummary
from forebay.errors import ConfigError, PayloadError
from forebay.integrations.django.backend import ForebayBackend
from forebay.integrations.django.results import moment
from forebay.integrations.django.tasks_api import task_backends
from forebay.payload.codec import decode_call, decode_result, mask_call
from forebay.payload.masking import mask

PAGE_SIZE: Final = 100
MAX_TEXT: Final = 10_000  # characters of an argument or a result
MAX_SEARCHES: Final = 5  # a search reads a limited number of rows; rare jobs may be behind the first ones
FILTERS: Final = ("state", "queue", "task")


class AdminQuery:
    """Query of a request: which of TASKS, which jobs, from where on."""

    def __init__(self, params: Mapping[str, str]) -> None:
        self.aliases: list[str] = [alias for alias in task_backends.settings if _is_ours(alias)]
        if not self.aliases:
            raise ConfigError("none of TASKS is one of Forebay's")
        self.alias: str = params.get("backend") or self.aliases[0]
        if self.alias not in self.aliases:
            raise ConfigError(f"TASKS has no {self.alias!r:.60} of Forebay's")
        self.chosen: dict[str, str] = {name: params[name] for name in FILTERS if params.get(name)}
        self.after: str | None = params.get("after") or None

    @property
    def app(self) -> Forebay:
        autodiscover_modules("tasks")
        app: Forebay = task_backends[self.alias].app
        return app

    @property
    def query(self) -> JobQuery:
        state, queue, task = (self.chosen.get(name) for name in FILTERS)
        try:
            states = (JobState(state),) if state else ()
        except ValueError as exc:
            raise ConfigError(f"{state!r:.60} is no state of a job") from exc
        return JobQuery(
            states=states, queues=(QueueName(queue),) if queue else (), tasks=(task,) if task else ()
        )

    def link(self, **changes: str | None) -> str:
        """Return the address of the same list with other conditions."""
        base = {"backend": self.alias} if self.alias != self.aliases[0] else {}
        wanted = {**base, **self.chosen, **changes}
        return "?" + urlencode({name: value for name, value in wanted.items() if value})


def list_jobs(admin_query: AdminQuery) -> dict[str, Any]:
    """Return a page of jobs. It may be empty and have a next one."""
    app, query = admin_query.app, admin_query.query
    page: Page = app.search(query, limit=PAGE_SIZE, after=admin_query.after)
    for _ in range(MAX_SEARCHES - 1):
        if page.jobs or not page.after:
            break
        page = app.search(query, limit=PAGE_SIZE, after=page.after)
    return {
        "jobs": [_job_row(job) for job in page.jobs],
        "next": admin_query.link(after=page.after) if page.after else None,
    }


def _job_row(job: JobSummary) -> dict[str, Any]:
    times = {name: moment(getattr(job, name)) for name in ("created_at", "run_at", "finished_at")}
    return {"job": job, "state": job.state.value, **times}


def filters(admin_query: AdminQuery) -> list[dict[str, Any]]:
    """Return the filters of the list."""
    app = admin_query.app
    queues = {*map(str, app.counts()), *filter(None, [admin_query.chosen.get("queue")])}
    tasks = {*app.registry, *filter(None, [admin_query.chosen.get("task")])}
    offered = {
        "state": [state.value for state in JobState],
        "queue": sorted(queues),
        "task": sorted(tasks),
    }
    choices_by_filter = [
        {
            "title": name,
            "choices": [
                {
                    "text": value or "All",
                    "link": admin_query.link(**{name: value}),
                    "is_on": value == admin_query.chosen.get(name),
                }
                for value in (None, *values)
            ],
        }
        for name, values in offered.items()
    ]
    if len(admin_query.aliases) > 1:
        choices = [
            {"text": alias, "link": "?" + urlencode({"backend": alias}), "is_on": alias == admin_query.alias}
            for alias in admin_query.aliases
        ]
        choices_by_filter.insert(0, {"title": "backend", "choices": choices})
    return choices_by_filter


def load_job_details(admin_query: AdminQuery, job_id: str) -> dict[str, Any] | None:
    """Return all that is known about one job; None if there is none."""
    timeline = admin_query.app.client.history(JobId(job_id))
    if timeline is None:
        return None
    job = timeline.job
    names = ("created_at", "run_at", "started_at", "finished_at")
    return {
        "job": job,
        "state": job.state.value,
        "times": [(name.removesuffix("_at").replace("_", " "), moment(getattr(job, name))) for name in names],
        "arguments": _arguments(job),
        "result": _result(job),
        "attempts": [
            (attempt, moment(attempt.started_at), moment(attempt.ended_at)) for attempt in timeline.attempts
        ],
        "events": [(event, moment(event.occurred_at)) for event in timeline.events],
        "may_cancel": not job.is_final,
        "may_revive": job.state in (JobState.DEAD, JobState.CANCELLED),
    }


def run_action(admin_query: AdminQuery, action: str, ids: Sequence[str], actor: str) -> tuple[int, list[str]]:
    """Cancel or revive jobs. Return how many, and why not the others."""
    job_ids = [JobId(job_id) for job_id in ids]
    client = admin_query.app.client
    if action == "cancel":
        results = client.write(lambda store: store.cancel(job_ids, "cancelled in the admin", actor=actor))
    elif action == "revive":
        results = client.write(lambda store: store.revive(job_ids, actor=actor))
    else:
        raise ConfigError(f"{action!r:.60} is no action of the admin")
    refusals = [
        f"Job {result.job_id}: {result.reason or 'there is no such job'}."
        for result in results
        if not result.applied
    ]
    return len(ids) - len(refusals), refusals


def _arguments(job: Job) -> str:
    # Values under names that look secret are masked.
    try:
        args, kwargs = decode_call(mask_call(job.payload))
    except PayloadError as exc:
        return f"cannot be read: {exc}"
    return _text({"args": list(args), "kwargs": kwargs})


def _result(job: Job) -> str | None:
    if job.result is None:
        return None
    try:
        return _text(mask(decode_result(job.result)))
    except PayloadError as exc:
        return f"cannot be read: {exc}"


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=repr)[:MAX_TEXT]


def _is_ours(alias: str) -> bool:
    return isinstance(task_backends[alias], ForebayBackend)
