"""Changes made by operators, as events record them: values before and after, by name.

Values are JSON. Arguments of jobs stay out, because they may be secret: an event records that they were
changed, and not how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import Job, QueueName
from forebay.domain.job_history import Changes
from forebay.domain.job_states import JobState
from forebay.domain.queue import Queue
from forebay.domain.schedule import Schedule

_JOB_FIELDS: Final = ("task", "queue", "priority")


def changes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Changes:
    """Return where both differ; None stands for no values."""
    old, new = before or {}, after or {}
    names = dict.fromkeys([*old, *new])
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def state_changes(before: JobState, after: JobState | None) -> Changes:
    """Return the changes of a job that went from one state to another; None for a removed one."""
    return {} if before is after else {"state": (before.value, None if after is None else after.value)}


def revive_changes(job: Job, state: JobState, queue: QueueName) -> Changes:
    """Return the changes of a revived job."""
    moved: Changes = {} if job.queue == queue else {"queue": (job.queue, queue)}
    return {**state_changes(job.state, state), **moved}


def update_changes(job: Job, state: JobState, queue: QueueName, priority: int, run_at: int) -> Changes:
    """Return the changes of an updated job."""
    before = {"queue": job.queue, "priority": job.priority, "run_at": job.run_at}
    return {
        **state_changes(job.state, state),
        **changes_between(before, {"queue": queue, "priority": priority, "run_at": run_at}),
    }


def queue_changes(before: Queue, after: Queue) -> Changes:
    """Return the changes of a queue's settings or state."""
    return changes_between(_queue_fields(before), _queue_fields(after))


def limit_changes(before: Limit | None, after: Limit | None) -> Changes:
    """Return the changes of a limit that was saved or removed."""
    return changes_between(_limit_fields(before), _limit_fields(after))


def schedule_changes(before: Schedule | None, after: Schedule | None) -> Changes:
    """Return the changes of a schedule that was saved or removed."""
    changes = changes_between(_schedule_fields(before), _schedule_fields(after))
    if before and after and before.definition.job.payload != after.definition.job.payload:
        changes["arguments"] = (None, "changed")
    return changes


def _queue_fields(queue: Queue) -> dict[str, Any]:
    return {"state": queue.state.value, **msgspec.to_builtins(queue.settings)}


def _limit_fields(limit: Limit | None) -> dict[str, Any] | None:
    if limit is None:
        return None
    return {name: getattr(limit, name) for name in Limit.__struct_fields__ if name != "scope"}


def _schedule_fields(schedule: Schedule | None) -> dict[str, Any] | None:
    if schedule is None:
        return None
    definition = schedule.definition
    fields = {name: getattr(definition, name) for name in definition.__struct_fields__}
    fields |= {name: getattr(definition.job, name) for name in _JOB_FIELDS}
    shown = {name: value for name, value in fields.items() if name not in ("name", "job", "is_declared")}
    return {**msgspec.to_builtins(shown), "is_paused": schedule.is_paused}
