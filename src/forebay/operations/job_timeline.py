"""Timeline of a job as text rows."""

from __future__ import annotations

from forebay.domain.job_history import Attempt, Event, Timeline


def timeline_lines(timeline: Timeline) -> list[tuple[int, str, str]]:
    """Return the timeline of a job, oldest first: (time, event, detail)."""
    job = timeline.job
    lines = [(job.created_at, "enqueued", f"{job.task} in queue {job.queue}")]
    lines += [line for attempt in timeline.attempts for line in _attempt_rows(attempt)]
    lines += [(event.occurred_at, str(event.kind), _event_detail(event)) for event in timeline.events]
    listed = {attempt.attempt for attempt in timeline.attempts}
    if job.started_at is not None and job.attempt not in listed:
        lines.append((job.started_at, f"attempt {job.attempt} started", _worker_detail(job.worker)))
    if job.finished_at is not None:
        lines.append((job.finished_at, str(job.state), job.reason or ""))
    return sorted(lines, key=lambda line: line[0])


def _worker_detail(worker: str | None) -> str:
    """Return the worker of an attempt as text; empty if the record of a final job does not have it."""
    return "" if worker is None else f"by worker {worker}"


def _attempt_rows(attempt: Attempt) -> list[tuple[int, str, str]]:
    lines = []
    if attempt.started_at is not None:
        lines.append(
            (attempt.started_at, f"attempt {attempt.attempt} started", _worker_detail(attempt.worker))
        )
    error = f"{attempt.error.type}: {attempt.error.message}".strip(": ")
    return [*lines, (attempt.ended_at, f"attempt {attempt.attempt} {attempt.outcome}", error)]


def _event_detail(event: Event) -> str:
    return f"{event.detail} (by {event.actor})".strip() if event.actor else event.detail
