"""Diagnosis of a job that does not progress: obstacles and remedies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.domain.dependencies import EdgeState
from forebay.domain.fairness import is_fairness_lane
from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.domain.lane import is_limit_lane, limit_scope_of
from forebay.domain.queue import QueueState
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.errors import PayloadError
from forebay.payload.codec import decode_call
from forebay.stores.contract.reader import Reader


class DiagnosisItem(NamedTuple):
    """One obstacle of a job, and its remedy."""

    obstacle: str
    remedy: str


def diagnose(reader: Reader, job: Job) -> list[DiagnosisItem]:
    """Return the obstacles of a job that the store can show; an empty list for a healthy one."""
    now = reader.now()
    items = [*_check_payload(job)]
    match job.state:
        case JobState.RUNNING:
            items += _check_running(job, reader.workers(), now)
        case JobState.PENDING:
            items += _check_pending(reader, job, now)
        case JobState.SCHEDULED | JobState.RETRYING:
            items += _check_delayed(job, now)
        case JobState.BLOCKED:
            items += _check_blocked(reader, job)
        case JobState.DEAD | JobState.CANCELLED:
            items.append(
                DiagnosisItem(f"it is {job.state}: {job.reason or ''}".rstrip(": "), "revive or replay it")
            )
    return items


def _check_payload(job: Job) -> Iterator[DiagnosisItem]:
    try:
        decode_call(job.payload)
    except PayloadError as exc:
        yield DiagnosisItem(
            f"its arguments cannot be read here: {exc}", "replay it with other arguments, or update workers"
        )


def _check_running(job: Job, workers: list[WorkerInfo], now: int) -> Iterator[DiagnosisItem]:
    if job.lease_expires_at is not None and job.lease_expires_at < now:
        yield DiagnosisItem(
            f"its lease ended {_format_seconds(now - job.lease_expires_at)} ago", "run a sweep"
        )
    if any(
        worker.id == job.worker and worker.heartbeat_status(now) is HeartbeatStatus.DEAD for worker in workers
    ):
        yield DiagnosisItem(f"its worker {job.worker} has died", "run a sweep")
    if job.timeout_ms is not None and job.started_at is not None and now > job.started_at + job.timeout_ms:
        yield DiagnosisItem(
            "it runs beyond its timeout", "look at the stacks of its worker; cancel it with force"
        )
    if job.cancel_reason is not None:
        yield DiagnosisItem("it was asked to stop and still runs", "cancel it with force")


def _check_pending(reader: Reader, job: Job, now: int) -> Iterator[DiagnosisItem]:
    if any(queue.state is QueueState.PAUSED for queue in reader.queues([job.queue])):
        yield DiagnosisItem(f"queue {job.queue} is paused", "resume the queue")
    if job.lane is not None and is_limit_lane(job.lane):
        yield DiagnosisItem(
            f"the limit of {limit_scope_of(job.lane)} is reached", "wait for a free slot, or raise the limit"
        )
    elif job.lane is not None and not is_fairness_lane(job.lane):  # a fairness lane delays a job, blocks none
        yield DiagnosisItem(f"no worker of its queue could run it: {job.lane}", "start a worker that can")
    live = [
        worker
        for worker in reader.workers()
        if job.queue in worker.queues and worker.heartbeat_status(now) is HeartbeatStatus.ALIVE
    ]
    if not live:
        # Remote consumers send no heartbeats, so there may be some.
        yield DiagnosisItem(f"no worker of queue {job.queue} sends heartbeats", "start one")
    elif all(job.queue in worker.paused for worker in live):
        yield DiagnosisItem(f"all workers of queue {job.queue} are paused", "resume one")


def _check_delayed(job: Job, now: int) -> Iterator[DiagnosisItem]:
    if job.run_at > now:
        yield DiagnosisItem(
            f"it is due in {_format_seconds(job.run_at - now)}",
            "update it with delay_seconds 0 to run it now",
        )
    else:
        yield DiagnosisItem(
            f"it was due {_format_seconds(now - job.run_at)} ago",
            "start a worker or a server: one of them promotes it",
        )


def _check_blocked(reader: Reader, job: Job) -> Iterator[DiagnosisItem]:
    for edge in reader.parents([job.id]):
        if edge.state is EdgeState.OPEN:
            yield DiagnosisItem(f"it waits for job {edge.parent}", "diagnose that job")
        elif edge.state is EdgeState.HELD:
            yield DiagnosisItem(f"job {edge.parent} has failed, and this one waits for it", "revive that job")
    if job.sequence is not None and (first := reader.first_in_sequence(job.sequence)) not in (None, job.id):
        yield DiagnosisItem(f"it is behind job {first} of sequence {job.sequence}", "diagnose that job")


def _format_seconds(ms: int) -> str:
    return f"{ms / 1_000:.0f} s"
