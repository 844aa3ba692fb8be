"""The hot path: leases given, renewed, taken over and ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Literal

from msgspec.structs import replace

from forebay.domain.gate import task_gate, why_held
from forebay.domain.history import ERRORS_KEPT, Attempt, EventKind, cut
from forebay.domain.job import Job, JobId, PastError, UniqueUntil, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState, check_transition, is_final
from forebay.domain.note import Note, Notes, as_kept
from forebay.domain.outcome import AttemptError
from forebay.domain.queue import Queue, QueueState, stagger_duty
from forebay.domain.settlement import Ending, Settlement, is_ready_early, is_same_end
from forebay.stores.limiting import Tally
from forebay.stores.memory import limiting, sharing
from forebay.stores.memory.duties import expire, promote_in
from forebay.stores.memory.following import follow
from forebay.stores.memory.inserting import follow_up, fresh
from forebay.stores.memory.order import Record, is_in_time, turn
from forebay.stores.memory.state import State, check_writable
from forebay.stores.protocol import (
    PROMOTED_PER_EXCHANGE,
    Cancel,
    Exchange,
    Refusal,
    Renewal,
    Standing,
    Want,
    wants_left,
)

Answer = Literal["settled", "repeated"] | Refusal


def exchange(
    state: State,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want],
    room: int,
    known: Sequence[Lease] | None,
    notes: Sequence[Note],
) -> Exchange:
    # Notes come first: a job that is settled in the same call is still running for them.
    unnoted = tuple(_unnoted(state, worker, notes))
    answers = [(end, _settle(state, worker, end)) for end in settlements]
    settled = [end for end, answer in answers if answer == "settled"]
    limits = limiting.tally(state)
    for end in settled:
        if end.charge is not None:
            limits.charge(end.charge.scopes, end.charge.tokens)
    jobs = _claim_all(state, worker, wants, room, limits)
    if follow(state) and len(jobs) < room:
        jobs += _claim_all(state, worker, wants_left(wants, jobs), room - len(jobs), limits)
    freed = Counter(state.jobs[end.job_id].job.queue for end in settled)
    freed.subtract(job.queue for job in jobs)
    limiting.keep(state, limits, wants, freed=freed)
    limiting.note_waits(state, limits, wants)
    return Exchange(
        settled=tuple(end.job_id for end in settled),
        repeated=tuple(end.job_id for end, answer in answers if answer == "repeated"),
        refused=tuple(answer for _, answer in answers if isinstance(answer, Refusal)),
        jobs=tuple(map(handed_out, jobs)),
        adopted=() if known is None else _adopted(state, worker, {*known, *map(_lease, jobs)}),
        cancels=_cancels(state, worker),
        next_due_ms=limits.sooner(_next_due_ms(state, wants)),
        unnoted=unnoted,
    )


def renew(state: State, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None) -> Renewal:
    answers = [(lease, _renew_one(state, worker, lease, lease_ms)) for lease in leases]
    return Renewal(
        renewed=tuple(lease for lease, reason in answers if reason is None),
        refused=tuple(Refusal(lease=lease, reason=reason) for lease, reason in answers if reason is not None),
        cancels=_cancels(state, worker),
    )


def standing(state: State, worker: WorkerId, leases: Sequence[Lease]) -> list[Standing]:
    reasons = [_refusal(state.jobs.get(lease.job_id), lease.attempt, worker) for lease in leases]
    return [Standing.OVER if reason else Standing.HELD for reason in reasons]


def sweep(
    state: State,
    sweeper: WorkerId,
    limit: int,
    lease_ms: int,
    *,
    only_dead: bool,
    dead: Collection[WorkerId],
    ended_by: int | None = None,
) -> list[Job]:
    last = state.now if ended_by is None else min(state.now, ended_by)
    running = [record for held in state.held.values() for record in held.values()]
    ended = [record for record in running if _lease_end(record.job) <= last and not only_dead]
    # Workers live and die with the store here, so nobody is dead before the others but those named.
    orphaned = [record for record in running if record.job.worker in dead and record.job.worker != sweeper]
    found = {
        record.job.id: record for record in [*sorted(ended, key=_by_end), *sorted(orphaned, key=_by_end)]
    }
    return [_take_over(state, record, sweeper, lease_ms) for record in islice(found.values(), limit)]


def handed_out(job: Job) -> Job:
    """The job as callers get it: its metadata is theirs to change."""
    return replace(job, metadata=fresh(job.metadata))


def _unnoted(state: State, worker: WorkerId, notes: Sequence[Note]) -> Iterator[Refusal]:
    for note in notes:
        job_id, attempt = note.lease
        reason = _refusal(state.jobs.get(job_id), attempt, worker)
        if reason is None:
            _keep(state, job_id, as_kept(note, state.now))
        else:
            yield Refusal(lease=note.lease, reason=reason)


def _keep(state: State, job_id: JobId, news: Notes) -> None:
    check_writable(*(step.name for step in news.steps))
    state.write(state.notes, job_id, state.notes.get(job_id, Notes()).joined_by(news))


def _settle(state: State, worker: WorkerId, end: Settlement) -> Answer:
    record = state.jobs.get(end.job_id)
    reason = _refusal(record, end.attempt, worker)
    if record is not None and reason is None:
        _end(state, record, worker, end)
        stored: list[JobId | None] = []
        limiting.free(state, record.job)
        for new in end.follow_ups:
            stored.append(follow_up(state, record.job, worker, new, stored))
        return "settled"
    if record is not None and _is_repeated(state, record.job, end, worker):
        return "repeated"
    if record is not None:
        detail = f"{end.ending}: {reason}"
        state.tell(EventKind.REFUSED, record.job, actor=worker, attempt=end.attempt, detail=detail)
    return Refusal(lease=Lease(end.job_id, end.attempt), reason=reason or "")


def _refusal(record: Record | None, attempt: int, worker: WorkerId) -> str | None:
    if record is None:
        return "gone"
    if record.job.attempt != attempt:
        return "other attempt"
    if record.job.state is not JobState.RUNNING:
        return "other state"
    return None if record.job.worker == worker else "other worker"


def _is_repeated(state: State, job: Job, end: Settlement, worker: WorkerId) -> bool:
    """Whether this worker has already ended this very attempt, and in the same way."""
    attempt, bad_attempts = end.attempt, state.attempts.get(job.id, ())
    # The worker that settled it, not the one that ran it: a holder whose lease was swept has ended nothing.
    rows = [bad.ending for bad, by in bad_attempts if (bad.attempt, by) == (attempt, worker)]
    is_newest = (job.attempt, job.worker) == (attempt, worker) and job.state is not JobState.RUNNING
    is_early = is_ready_early(end, job.run_at, job.started_at, job.updated_at)
    return is_same_end(
        end.ending, next(iter(rows), None), job.state if is_newest else None, is_early=is_early
    )


def _end(state: State, record: Record, worker: WorkerId, end: Settlement) -> None:
    check_transition(record.job.state, end.state)
    if end.error is not None:
        record = _with_error(state, record, worker, end.ending, cut(end.error))
    unstarted = end.unstarted or record.job.unstarted
    job = replace(record.job, failures=end.failures, crashes=end.crashes, unstarted=unstarted)
    if is_final(end.state):
        reason = "cancelled" if end.state is JobState.CANCELLED and end.reason is None else end.reason
        state.put_final(job, end.state, reason, end.result)
    elif job.cancel_reason is not None:
        state.put_final(job, JobState.CANCELLED, job.cancel_reason)
    else:
        _put_back(state, job, end)


def _put_back(state: State, job: Job, end: Settlement) -> None:
    delay = 0 if end.state is JobState.PENDING else end.delay_ms
    job = replace(
        job,
        state=end.state,
        run_at=state.now + delay,
        gate=end.gate,
        lease_expires_at=None,
        updated_at=state.now,
    )
    if end.gate is not None:
        detail = why_held(end.gate, end.reason)
        state.tell(EventKind.HELD, job, actor=job.worker, attempt=job.attempt, detail=detail)
    if end.state is JobState.PENDING:
        state.put_pending(job)
    else:
        state.put(Record(job))


def _with_error(
    state: State, record: Record, worker: WorkerId, ending: Ending, error: AttemptError
) -> Record:
    job = record.job
    check_writable(error.type, error.message, error.traceback)
    bad = Attempt(
        job_id=job.id,
        attempt=job.attempt,
        ending=ending,
        worker=record.swept_from or worker,
        started_at=job.started_at,
        ended_at=state.now,
        error=error,
    )
    state.write(state.attempts, job.id, (*state.attempts.get(job.id, ()), (bad, worker)))
    past = PastError(
        attempt=job.attempt,
        at=state.now,
        type=error.type,
        message=error.message,
        traceback=error.traceback,
    )
    return record._replace(job=replace(job, errors=(*job.errors, past)[-ERRORS_KEPT:]))


def _claim_all(state: State, worker: WorkerId, wants: Sequence[Want], room: int, limits: Tally) -> list[Job]:
    jobs: list[Job] = []
    if wants:
        expire(state, PROMOTED_PER_EXCHANGE)
    for want in wants:
        promote_in(state, want.queue, PROMOTED_PER_EXCHANGE)
        # Even for a queue that gives nothing: a gate that stays due would have us asked again at once.
        limiting.bring_back(state, want.queue, limits)
        most = limits.room(want.queue, min(want.most, room - len(jobs)))
        taken = _claim(state, worker, want, most, limits)
        limits.took(want.queue, len(taken), most)
        jobs += taken
    return jobs


def _claim(state: State, worker: WorkerId, want: Want, most: int, limits: Tally) -> list[Job]:
    queue = state.queues.get(want.queue)
    if queue is None or queue.state not in (QueueState.ACTIVE, QueueState.DRAINING):
        return []
    jobs: list[Job] = []
    gates = [None, *filter(want.passes, state.gates_of(queue.name))]
    held = 0
    while (
        len(jobs) < most
        and (record := _next(state, queue, [*gates, *sharing.turn(state, queue)])) is not None
    ):
        task = record.job.task
        scopes = limits.scopes_for(task, record.job.limit_keys)
        is_strange = not want.passes(task_gate(task))
        full = None if is_strange else limits.full_among(scopes)
        if not is_strange and full is None:
            job = _start(state, record, worker, want.lease_ms)
            sharing.took(state, queue, record.job.gate)
            limits.start(scopes, _lease_end(job), job.cost)
            jobs.append(job)
            if limits.is_spent(job.queue, len(jobs)):
                break
        elif held == want.most_held:
            limits.wait(0)  # enough for now; the next call goes on
            break
        elif full is not None:
            held += 1
            limiting.put_aside(state, record, full, limits)
        else:
            held += 1
            _hold(state, record, task_gate(task), worker)
    most = want.largest_payload
    return [job if len(job.payload) <= most else replace(job, payload=b"") for job in jobs]


def _hold(state: State, record: Record, gate: str, worker: WorkerId) -> None:
    job = replace(record.job, gate=gate, updated_at=state.now)
    state.put(record._replace(job=job))
    state.tell(EventKind.HELD, job, actor=worker, detail=gate)


def _next(state: State, queue: Queue, gates: Sequence[str | None]) -> Record | None:
    classes = [state.ready_in(queue.name, capped, gate) for gate in gates for capped in (False, True)]
    heads = [order.first(lambda record: is_in_time(record.job, state.now)) for order in classes]
    scoring = queue.settings.scoring
    return min(
        (head for head in heads if head is not None),
        key=lambda head: turn(scoring, head.job, state.now),
        default=None,
    )


def _start(state: State, record: Record, worker: WorkerId, lease_ms: int | None) -> Job:
    job = replace(
        record.job,
        state=JobState.RUNNING,
        gate=None,
        attempt=record.job.attempt + 1,
        worker=worker,
        started_at=state.now,
        updated_at=state.now,
        lease_expires_at=state.now + _lease_ms(state, record.job, lease_ms),
    )
    if job.unique_until is UniqueUntil.STARTED:
        state.free_unique(job)
    state.put(Record(job, rescore_at=record.rescore_at))
    return job


def _lease_ms(state: State, job: Job, wanted: int | None) -> int:
    return wanted or job.lease_ms or state.queues[job.queue].settings.lease_ms


def _renew_one(state: State, worker: WorkerId, lease: Lease, lease_ms: int | None) -> str | None:
    record = state.jobs.get(lease.job_id)
    reason = _refusal(record, lease.attempt, worker)
    if record is None or reason is not None:
        return reason
    job = record.job
    limit = (job.started_at or 0) + job.extension_ms
    if state.now >= limit:
        return "extension over"
    end = min(state.now + _lease_ms(state, job, lease_ms), limit)
    state.put(record._replace(job=replace(job, lease_expires_at=max(_lease_end(job), end))))
    return None


def _take_over(state: State, record: Record, sweeper: WorkerId, lease_ms: int) -> Job:
    old = record.job
    job = replace(old, worker=sweeper, lease_expires_at=state.now + lease_ms, updated_at=state.now)
    state.put(record._replace(job=job, swept_from=record.swept_from or old.worker))
    state.tell(EventKind.SWEPT, job, actor=sweeper, attempt=job.attempt, detail=old.worker or "")
    return handed_out(job)


def _lease_end(job: Job) -> int:
    return job.lease_expires_at or 0


def _by_end(record: Record) -> tuple[int, int]:
    return _lease_end(record.job), record.job.seq


def _lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


def _held(state: State, worker: WorkerId) -> list[Job]:
    held = state.held.get(worker, {})
    return [held[job_id].job for job_id in sorted(held)]


def _cancels(state: State, worker: WorkerId) -> tuple[Cancel, ...]:
    return tuple(
        Cancel(job.id, job.cancel_reason) for job in _held(state, worker) if job.cancel_reason is not None
    )


def _adopted(state: State, worker: WorkerId, known: set[Lease]) -> tuple[Job, ...]:
    return tuple(handed_out(job) for job in _held(state, worker) if _lease(job) not in known)


def _next_due_ms(state: State, wants: Sequence[Want]) -> int | None:
    heads = [(want.queue, state.due_in(want.queue).first()) for want in wants]
    times = [
        max(head.job.run_at, state.duties.get(stagger_duty(queue), 0))
        for queue, head in heads
        if head is not None
    ]
    return max(0, min(times) - state.now) if times else None
