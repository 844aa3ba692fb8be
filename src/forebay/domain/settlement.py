"""Settlements: from an outcome to the values to write. The one place that decides."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from forebay.domain.concurrency_and_rate_limits import narrow_scopes, scopes_of
from forebay.domain.job import Job, JobId, NewJob, QueueName
from forebay.domain.job_states import JobState
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
from forebay.domain.retry_policy import MAX_DELAY_MS

MAX_REASON: Final = 1_000


class OutcomeKind(StrEnum):
    """Kind of an attempt's outcome, as its row in the history has it."""

    COMPLETED = "completed"
    FAILED = "failed"
    SNOOZED = "snoozed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    PARKED = "parked"
    LOST = "lost"


# An enum look-up takes 0.1 us, and nearly every attempt needs these two.
_COMPLETED: Final = OutcomeKind.COMPLETED
_COMPLETED_STATE: Final = JobState.COMPLETED


# Only these leave a row in the history.
_RECORDED: Final = frozenset({OutcomeKind.FAILED, OutcomeKind.DISCARDED, OutcomeKind.LOST})


def is_same_end(
    outcome: OutcomeKind, recorded: OutcomeKind | None, state: JobState | None, *, is_early: bool = False
) -> bool:
    """Return whether an attempt that has ended before has ended like this.

    `recorded` is the outcome in its row of the history. `state` is the present state of the job; None while
    it runs, and when a later attempt has begun. A snoozed job whose time has come and one that was handed
    back look alike: both wait, and either may have been cancelled since. But a pending job that `is_early`
    did not wait for the end of a snooze (`is_ready_early`): it was handed back.
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
    """Cost of an attempt beyond the tokens that it took at its start, for the rates of these scopes. A
    negative number is a refund."""

    scopes: tuple[str, ...]
    tokens: int


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Settlement of a lease: the values to write.

    Times are delays: the store adds its own clock. `follow_ups` are new jobs that are written in the same
    transaction. `seq` is a hint that saves the store a look-up; the id decides. `unstarted` is the new count
    of attempts that never began; 0 leaves the stored count as it is. An encrypted result is bound to `queue`;
    stores do not read it.
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
    """Return whether a pending job did not wait for the delay of this settlement.

    A job that was handed back was ready in the moment of its last change; a promoted one was ready before
    that (see `promoted_at`). If another change has hidden this, the times may show it: a delay begins after
    the start of the attempt. A step back of the store's clock, or an update that moves the job up, may refuse
    a true repetition; the job then is as that change made it.
    """
    return run_at >= updated_at or run_at < (started_at or 0) + settlement.delay_ms


def promoted_at(now: int, run_at: int) -> int:
    """Return the time of change of a job that becomes pending because it is due: always after its due
    time. So it differs from a job that was pending at once, even within one millisecond."""
    return max(now, run_at + 1)


def decide(job: Job, outcome: Outcome, roll: float) -> Settlement:
    """Return the settlement for an outcome; `roll` is a random number from 0 to 1 for the jitter of the
    back-off."""
    if isinstance(outcome, Completed) and outcome.cost is None:
        # Fast path: nearly every attempt ends like this.
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
    settlement = _build_for_outcome(job, outcome, roll)
    if not _has_begun(outcome):
        settlement = replace(settlement, unstarted=job.unstarted + 1)
    return (
        settlement
        if cost is None or cost == job.cost
        else replace(settlement, charge=charge_of(job, cost - job.cost))
    )


def _has_begun(outcome: Outcome) -> bool:
    """Return whether the task may have run. Only a worker or supervisor that knows better reports that it
    has not."""
    return not isinstance(outcome, (Parked, Interrupted, Lost)) or outcome.started


def _cost_of(outcome: Outcome) -> int | None:
    """Return the cost of an attempt, if it is known; an unstarted attempt has cost nothing."""
    match outcome:
        case Parked() | Interrupted(started=False) | Lost(started=False):
            return 0
        case Lost():
            return None
        case _:
            return outcome.cost


def charge_of(job: Job, tokens: int) -> TokenCharge:
    """Return the charge of these tokens under all limits of a job."""
    narrow = (scope for _, scope in narrow_scopes(job.task, job.limit_keys))
    return TokenCharge((*scopes_of(job.queue), *narrow), tokens)


def _build_for_outcome(job: Job, outcome: Outcome, roll: float) -> Settlement:
    if isinstance(outcome, Completed):
        settlement = _build_settlement(job, OutcomeKind.COMPLETED, JobState.COMPLETED)
        return replace(settlement, result=outcome.result, follow_ups=outcome.follow_ups)
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
            settlement = _build_settlement(
                job, OutcomeKind.DISCARDED, JobState.DEAD, error=error, reason=_format_error(error)
            )
            return replace(settlement, failures=job.failures + 1)
        case Cancelled(reason):
            return _build_settlement(
                job, OutcomeKind.CANCELLED, JobState.CANCELLED, reason=truncate_reason(reason)
            )
        case Interrupted():
            return _build_settlement(job, OutcomeKind.INTERRUPTED, JobState.PENDING)
        case Parked(lane, reason):
            settlement = _build_settlement(
                job, OutcomeKind.PARKED, JobState.PENDING, reason=truncate_reason(reason)
            )
            return replace(settlement, lane=lane)
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
    settlement = replace(
        _build_settlement(job, OutcomeKind.FAILED, JobState.RETRYING, error=error), failures=job.failures + 1
    )
    if settlement.failures > job.policy.max_retries:
        return replace(settlement, state=JobState.DEAD, reason=_format_error(error))
    delay = job.policy.delay_ms(settlement.failures, roll) if after_ms is None else _clamp_delay(after_ms)
    return replace(settlement, delay_ms=delay)


def _clamp_delay(delay_ms: int) -> int:
    """Return a delay that a task requested, within the bounds of stores."""
    return min(max(delay_ms, 0), MAX_DELAY_MS)


def _build_lost(job: Job, reason: str, roll: float) -> Settlement:
    error = AttemptError(type="Lost", message=reason)
    settlement = replace(
        _build_settlement(job, OutcomeKind.LOST, JobState.PENDING, error=error), crashes=job.crashes + 1
    )
    if settlement.crashes > job.policy.max_crashes:
        text = f"lost {settlement.crashes} times, the last time: {reason}"
        return replace(settlement, state=JobState.DEAD, reason=truncate_reason(text))
    if settlement.crashes == 1:
        return settlement
    # The first crash is mostly the machine's fault; from the second on the job itself is suspect.
    return replace(
        settlement, state=JobState.RETRYING, delay_ms=job.policy.delay_ms(settlement.crashes - 1, roll)
    )


def _format_error(error: AttemptError) -> str:
    return truncate_reason(f"{error.type}: {error.message}" if error.message else error.type)


def truncate_reason(text: str) -> str:
    """Return a reason as it is stored: short, and without NUL, which not every engine can store."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}")[:MAX_REASON]
