"""From an outcome to what shall be written: the one place that decides."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.limits import narrow_scopes, scopes_of
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Parked,
    Snoozed,
)
from forebay.domain.retry import MAX_DELAY_MS

MAX_REASON: Final = 1_000


class OutcomeKind(StrEnum):
    """How an attempt ended, for its row in the history."""

    COMPLETED = "completed"
    FAILED = "failed"
    SNOOZED = "snoozed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    PARKED = "held"
    LOST = "lost"


# To look a member up in an enum takes 0.1 us, and nearly every attempt asks for these two.
_COMPLETED: Final = OutcomeKind.COMPLETED
_COMPLETED_STATE: Final = JobState.COMPLETED


# Only these leave a row in the history.
_RECORDED: Final = frozenset({OutcomeKind.FAILED, OutcomeKind.DISCARDED, OutcomeKind.LOST})


def is_same_end(
    outcome: OutcomeKind, recorded: OutcomeKind | None, state: JobState | None, *, is_early: bool = False
) -> bool:
    """Whether an attempt that has ended before has ended like this.

    `recorded` is the ending in its row of the history. `state` is that of the job now; None while it runs,
    and when a later attempt has begun. A snoozed job whose time has come and one that was handed back look
    alike: both wait, and either may have been cancelled since. But a pending job `is_early` if it did not
    wait for the end of a snooze (`is_ready_early`): it was handed back.
    """
    if recorded is not None or outcome in _RECORDED:
        return outcome is recorded
    if state is None:
        return False
    if outcome is OutcomeKind.COMPLETED or state is JobState.COMPLETED:
        return outcome is OutcomeKind.COMPLETED and state is JobState.COMPLETED
    if state is JobState.PENDING and outcome is OutcomeKind.SNOOZED:
        return not is_early
    return state is not JobState.SCHEDULED or outcome is OutcomeKind.SNOOZED


class TokenCharge(msgspec.Struct, frozen=True):
    """What an attempt has cost beyond what it took when it started, in tokens of the rates of these scopes.
    Fewer than none are given back."""

    scopes: tuple[str, ...]
    tokens: int


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """This lease ends like this.

    Speaks in delays: the store adds its own clock. `follow_ups` are new jobs that are written in the
    same transaction. `seq` is a hint that saves the store a look; what counts is the id. `unstarted` is the
    new count of the job's attempts that never began; 0 leaves the stored count as it is. An encrypted result
    is bound to `queue`; stores do not look at it.
    """

    job_id: JobId
    attempt: int
    outcome: OutcomeKind
    state: JobState
    failures: int
    crashes: int
    delay_ms: int = 0
    result: bytes | None = None
    error: AttemptError | None = None
    reason: str | None = None
    lane: str | None = None
    seq: int | None = None
    follow_ups: tuple[NewJob, ...] = ()
    charge: TokenCharge | None = None
    unstarted: int = 0
    queue: QueueName | None = None


def is_ready_early(settlement: Settlement, run_at: int, started_at: int | None, updated_at: int) -> bool:
    """Whether a pending job did not wait for the delay of this settlement.

    A job that was handed back was ready in the moment of its last change, and one that was promoted before
    that: see `promoted_at`. What another change has hidden may show in the times: a delay begins after the
    start of the attempt. A step back of the store's clock, or an update that moves the job up, may refuse a
    true repetition; the job is as that wanted it.
    """
    return run_at >= updated_at or run_at < (started_at or 0) + settlement.delay_ms


def promoted_at(now: int, run_at: int) -> int:
    """The time of change of a job that becomes pending because its time has come: always after that time.
    So it differs from a job that was pending at once, though both may happen in one millisecond."""
    return max(now, run_at + 1)


def decide(job: Job, outcome: Outcome, roll: float) -> Settlement:
    """What to write because of `outcome`; `roll` is a number from 0 to 1 for the back-off's jitter."""
    if isinstance(outcome, Completed) and outcome.cost is None:
        # Written out, because this is what nearly every attempt comes to.
        return Settlement(
            job_id=job.id,
            attempt=job.attempt,
            outcome=_COMPLETED,
            state=_COMPLETED_STATE,
            failures=job.failures,
            crashes=job.crashes,
            result=outcome.result,
            seq=job.seq,
            follow_ups=outcome.follow_ups,
            queue=job.queue,
        )
    cost = _cost_of(outcome)
    end = _build_for_outcome(job, outcome, roll)
    if not _has_begun(outcome):
        end = replace(end, unstarted=job.unstarted + 1)
    return end if cost is None or cost == job.cost else replace(end, charge=charge_of(job, cost - job.cost))


def _has_begun(outcome: Outcome) -> bool:
    """Return whether the task may have run. Only a worker or supervisor that knows better says no."""
    return not isinstance(outcome, (Parked, Interrupted, Lost)) or outcome.started


def _cost_of(outcome: Outcome) -> int | None:
    """What an attempt has cost, if that is known; what was not started has cost nothing."""
    match outcome:
        case Parked() | Interrupted(started=False) | Lost(started=False):
            return 0
        case Lost():
            return None
        case _:
            return outcome.cost


def charge_of(job: Job, tokens: int) -> TokenCharge:
    """What a job has cost more than was taken when it started, under all limits that it counts for."""
    narrow = (scope for _, scope in narrow_scopes(job.task, job.limit_keys))
    return TokenCharge((*scopes_of(job.queue), *narrow), tokens)


def _build_for_outcome(job: Job, outcome: Outcome, roll: float) -> Settlement:
    if isinstance(outcome, Completed):
        end = _build_settlement(job, OutcomeKind.COMPLETED, JobState.COMPLETED)
        return replace(end, result=outcome.result, follow_ups=outcome.follow_ups)
    if isinstance(outcome, Failed):
        return _build_failed(job, outcome.error, outcome.after_ms, roll)
    return _build_for_other(job, outcome, roll)


def _build_for_other(
    job: Job, outcome: Snoozed | Discarded | Cancelled | Interrupted | Parked | Lost, roll: float
) -> Settlement:
    match outcome:
        case Snoozed(delay_ms):
            return _build_settlement(job, OutcomeKind.SNOOZED, JobState.SCHEDULED, delay_ms=delay_ms)
        case Discarded(error):
            end = _build_settlement(
                job, OutcomeKind.DISCARDED, JobState.DEAD, error=error, reason=_format_error(error)
            )
            return replace(end, failures=job.failures + 1)
        case Cancelled(reason):
            return _build_settlement(
                job, OutcomeKind.CANCELLED, JobState.CANCELLED, reason=truncate_reason(reason)
            )
        case Interrupted():
            return _build_settlement(job, OutcomeKind.INTERRUPTED, JobState.PENDING)
        case Parked(gate, reason):
            end = _build_settlement(job, OutcomeKind.PARKED, JobState.PENDING, reason=truncate_reason(reason))
            return replace(end, lane=gate)
        case Lost(reason, started):
            return _build_lost(job, reason, roll) if started else _build_for_other(job, Interrupted(), roll)
        case _:
            assert_never(outcome)


def _build_settlement(
    job: Job,
    kind: OutcomeKind,
    state: JobState,
    *,
    delay_ms: int = 0,
    error: AttemptError | None = None,
    reason: str | None = None,
) -> Settlement:
    return Settlement(
        job_id=job.id,
        attempt=job.attempt,
        outcome=kind,
        state=state,
        failures=job.failures,
        crashes=job.crashes,
        delay_ms=_clamp_delay(delay_ms),
        error=error,
        reason=reason,
        seq=job.seq,
        queue=job.queue,
    )


def _build_failed(job: Job, error: AttemptError, after_ms: int | None, roll: float) -> Settlement:
    end = replace(
        _build_settlement(job, OutcomeKind.FAILED, JobState.RETRYING, error=error), failures=job.failures + 1
    )
    if end.failures > job.policy.max_retries:
        return replace(end, state=JobState.DEAD, reason=_format_error(error))
    delay = job.policy.delay_ms(end.failures, roll) if after_ms is None else _clamp_delay(after_ms)
    return replace(end, delay_ms=delay)


def _clamp_delay(delay_ms: int) -> int:
    """A delay that a task asked for, within what a store can keep."""
    return min(max(delay_ms, 0), MAX_DELAY_MS)


def _build_lost(job: Job, reason: str, roll: float) -> Settlement:
    error = AttemptError(type="Lost", message=reason)
    end = replace(
        _build_settlement(job, OutcomeKind.LOST, JobState.PENDING, error=error), crashes=job.crashes + 1
    )
    if end.crashes > job.policy.max_crashes:
        said = f"lost {end.crashes} times, the last time: {reason}"
        return replace(end, state=JobState.DEAD, reason=truncate_reason(said))
    if end.crashes == 1:
        return end
    # The first crash is mostly the machine's fault; from the second on the job is a suspect.
    return replace(end, state=JobState.RETRYING, delay_ms=job.policy.delay_ms(end.crashes - 1, roll))


def _format_error(error: AttemptError) -> str:
    return truncate_reason(f"{error.type}: {error.message}" if error.message else error.type)


def truncate_reason(text: str) -> str:
    """A reason as it is stored: short, and without NUL, which not every engine can hold."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}")[:MAX_REASON]
