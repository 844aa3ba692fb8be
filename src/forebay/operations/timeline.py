"""The life of a job in lines."""

from __future__ import annotations

from forebay.domain.history import Attempt, Event, Timeline


def timeline_lines(timeline: Timeline) -> list[tuple[int, str, str]]:
    """What happened to a job, oldest first: (when, what, detail)."""
    job = timeline.job
    lines = [(job.created_at, "enqueued", f"{job.task} in queue {job.queue}")]
    lines += [line for attempt in timeline.attempts for line in _attempt_rows(attempt)]
    lines += [(event.occurred_at, str(event.kind), _event_detail(event)) for event in timeline.events]
    told = {attempt.attempt for attempt in timeline.attempts}
    if job.started_at is not None and job.attempt not in told:
        lines.append((job.started_at, f"attempt {job.attempt} started", _worker_detail(job.worker)))
    if job.finished_at is not None:
        lines.append((job.finished_at, str(job.state), job.reason or ""))
    return sorted(lines, key=lambda line: line[0])


def _worker_detail(worker: str | None) -> str:
    """Who it was; a job that has ended does not always know."""
    return "" if worker is None else f"by worker {worker}"


def _attempt_rows(attempt: Attempt) -> list[tuple[int, str, str]]:
    lines = []
    if attempt.started_at is not None:
        lines.append(
            (attempt.started_at, f"attempt {attempt.attempt} started", _worker_detail(attempt.worker))
        )
    what = f"{attempt.error.type}: {attempt.error.message}".strip(": ")
    return [*lines, (attempt.ended_at, f"attempt {attempt.attempt} {attempt.outcome}", what)]


def _event_detail(event: Event) -> str:
    return f"{event.detail} (by {event.actor})".strip() if event.actor else event.detail
