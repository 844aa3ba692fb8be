"""What the admin shows of jobs: questions to the store and values for a template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from django.utils.module_loading import autodiscover_modules

from forebay.app.app import Forebay
from forebay.app.codec import decode_call, decode_result, masked_call
from forebay.app.masking import masked
from forebay.domain.job import Job, JobId, JobSummary, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.query import JobQuery, Page
from forebay.errors import ConfigError, PayloadError
from forebay.integrations.django.backend import ForebayBackend
from forebay.integrations.django.results import moment
from forebay.integrations.django.tasks_api import task_backends

PAGE: Final = 100
MOST_SHOWN: Final = 10_000  # characters of an argument or a result
MOST_LOOKS: Final = 5  # a look at rows is limited; rare jobs may be behind the first ones
FILTERS: Final = ("state", "queue", "task")


class Found:
    """What a request asks for: which of TASKS, which jobs, from where on."""

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
        """The address of the same list with other conditions."""
        base = {"backend": self.alias} if self.alias != self.aliases[0] else {}
        wanted = {**base, **self.chosen, **changes}
        return "?" + urlencode({name: value for name, value in wanted.items() if value})


def listed(found: Found) -> dict[str, Any]:
    """A page of jobs. It may be empty and have a next one."""
    app, query = found.app, found.query
    page: Page = app.search(query, limit=PAGE, after=found.after)
    for _ in range(MOST_LOOKS - 1):
        if page.jobs or not page.after:
            break
        page = app.search(query, limit=PAGE, after=page.after)
    return {
        "jobs": [_line(job) for job in page.jobs],
        "next": found.link(after=page.after) if page.after else None,
    }


def _line(job: JobSummary) -> dict[str, Any]:
    times = {name: moment(getattr(job, name)) for name in ("created_at", "run_at", "finished_at")}
    return {"job": job, "state": job.state.value, **times}


def filters(found: Found) -> list[dict[str, Any]]:
    """What a list can be narrowed by."""
    app = found.app
    queues = {*map(str, app.counts()), *filter(None, [found.chosen.get("queue")])}
    tasks = {*app.registry, *filter(None, [found.chosen.get("task")])}
    offered = {
        "state": [state.value for state in JobState],
        "queue": sorted(queues),
        "task": sorted(tasks),
    }
    made = [
        {
            "title": name,
            "choices": [
                {
                    "text": value or "All",
                    "link": found.link(**{name: value}),
                    "is_on": value == found.chosen.get(name),
                }
                for value in (None, *values)
            ],
        }
        for name, values in offered.items()
    ]
    if len(found.aliases) > 1:
        choices = [
            {"text": alias, "link": "?" + urlencode({"backend": alias}), "is_on": alias == found.alias}
            for alias in found.aliases
        ]
        made.insert(0, {"title": "backend", "choices": choices})
    return made


def shown(found: Found, job_id: str) -> dict[str, Any] | None:
    """All that is known about one job; None if there is none."""
    timeline = found.app.client.history(JobId(job_id))
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
        "attempts": [(each, moment(each.started_at), moment(each.ended_at)) for each in timeline.attempts],
        "events": [(event, moment(event.at)) for event in timeline.events],
        "may_cancel": not job.is_final,
        "may_revive": job.state in (JobState.DEAD, JobState.CANCELLED),
    }


def steered(found: Found, action: str, ids: Sequence[str], actor: str) -> tuple[int, list[str]]:
    """Cancel or revive jobs; how many, and why not the others."""
    named = [JobId(each) for each in ids]
    client = found.app.client
    if action == "cancel":
        verdicts = client.write(lambda store: store.cancel(named, "cancelled in the admin", actor=actor))
    elif action == "revive":
        verdicts = client.write(lambda store: store.revive(named, actor=actor))
    else:
        raise ConfigError(f"{action!r:.60} is nothing that can be done to jobs here")
    left = [
        f"Job {verdict.job_id}: {verdict.reason or 'there is no such job'}."
        for verdict in verdicts
        if not verdict.done
    ]
    return len(ids) - len(left), left


def _arguments(job: Job) -> str:
    # What stands under names that look secret is shown to nobody.
    try:
        args, kwargs = decode_call(masked_call(job.payload))
    except PayloadError as exc:
        return f"cannot be read: {exc}"
    return _text({"args": list(args), "kwargs": kwargs})


def _result(job: Job) -> str | None:
    if job.result is None:
        return None
    try:
        return _text(masked(decode_result(job.result)))
    except PayloadError as exc:
        return f"cannot be read: {exc}"


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=repr)[:MOST_SHOWN]


def _is_ours(alias: str) -> bool:
    return isinstance(task_backends[alias], ForebayBackend)
