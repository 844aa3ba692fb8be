"""Why a job does not go on, and what somebody could do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.app.codec import decode_call
from forebay.domain.gate import is_limit_gate, scope_behind
from forebay.domain.job import Job
from forebay.domain.lifecycle import JobState
from forebay.domain.queue import QueueState
from forebay.domain.share import is_fair_gate
from forebay.domain.worker import Pulse, WorkerInfo
from forebay.domain.workflow import EdgeState
from forebay.errors import PayloadError
from forebay.stores.protocol import Reader


class Advice(NamedTuple):
    """One thing that keeps a job; `todo` is what helps."""

    what: str
    todo: str


def advice_on(reader: Reader, job: Job) -> list[Advice]:
    """What keeps this job, as far as the store can tell; nothing for one that is well."""
    now = reader.now()
    found = [*_of_payload(job)]
    match job.state:
        case JobState.RUNNING:
            found += _of_running(job, reader.workers(), now)
        case JobState.PENDING:
            found += _of_pending(reader, job, now)
        case JobState.SCHEDULED | JobState.RETRYING:
            found += _of_later(job, now)
        case JobState.BLOCKED:
            found += _of_blocked(reader, job)
        case JobState.DEAD | JobState.CANCELLED:
            found.append(Advice(f"it is {job.state}: {job.reason or ''}".rstrip(": "), "revive or replay it"))
    return found


def _of_payload(job: Job) -> Iterator[Advice]:
    try:
        decode_call(job.payload)
    except PayloadError as exc:
        yield Advice(f"its arguments cannot be read here: {exc}", "replay it with others, or update workers")


def _of_running(job: Job, workers: list[WorkerInfo], now: int) -> Iterator[Advice]:
    if job.lease_expires_at is not None and job.lease_expires_at < now:
        yield Advice(f"its lease ended {_ago(now - job.lease_expires_at)} ago", "run a sweep")
    if any(one.id == job.worker and one.pulse(now) is Pulse.DEAD for one in workers):
        yield Advice(f"its worker {job.worker} has died", "run a sweep")
    if job.timeout_ms is not None and job.started_at is not None and now > job.started_at + job.timeout_ms:
        yield Advice("it runs beyond its timeout", "look at the stacks of its worker; cancel it with force")
    if job.cancel_reason is not None:
        yield Advice("it was asked to stop and runs still", "cancel it with force")


def _of_pending(reader: Reader, job: Job, now: int) -> Iterator[Advice]:
    if any(queue.state is QueueState.PAUSED for queue in reader.queues([job.queue])):
        yield Advice(f"queue {job.queue} is paused", "resume the queue")
    if job.gate is not None and is_limit_gate(job.gate):
        yield Advice(f"the limit of {scope_behind(job.gate)} is reached", "wait for room, or raise the limit")
    elif job.gate is not None and not is_fair_gate(job.gate):  # who has a share waits for its turn
        yield Advice(f"no worker of its queue could run it: {job.gate}", "start a worker that can")
    able = [one for one in reader.workers() if job.queue in one.queues and one.pulse(now) is Pulse.ALIVE]
    if not able:
        # Those who claim over a network do not beat.
        yield Advice(f"no worker of queue {job.queue} says that it is alive", "start one")
    elif all(job.queue in one.paused for one in able):
        yield Advice(f"all workers of queue {job.queue} are paused", "resume one")


def _of_later(job: Job, now: int) -> Iterator[Advice]:
    if job.run_at > now:
        yield Advice(f"it is due in {_ago(job.run_at - now)}", "amend it with delay_seconds 0 to run it now")
    else:
        yield Advice(
            f"it was due {_ago(now - job.run_at)} ago", "start a worker or a server: one of them promotes it"
        )


def _of_blocked(reader: Reader, job: Job) -> Iterator[Advice]:
    for edge in reader.parents([job.id]):
        if edge.state is EdgeState.OPEN:
            yield Advice(f"it waits for job {edge.parent}", "look what keeps that one")
        elif edge.state is EdgeState.HELD:
            yield Advice(f"job {edge.parent} has failed, and this one waits for it", "revive that one")
    if job.sequence is not None and (first := reader.first_in_sequence(job.sequence)) not in (None, job.id):
        yield Advice(f"it is behind job {first} of sequence {job.sequence}", "look what keeps that one")


def _ago(ms: int) -> str:
    return f"{ms / 1_000:.0f} s"
