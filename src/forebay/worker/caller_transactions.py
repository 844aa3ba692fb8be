"""Attempts that completed their job in a caller transaction: commit, rollback, or still open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.domain.job import WorkerId
from forebay.domain.outcome import AttemptError, Completed, Failed, Outcome
from forebay.stores.contract.claims_and_results import LeaseStatus
from forebay.stores.contract.store import Store
from forebay.worker.assigned_job import Assignment

EndedAttempts = list[tuple[Assignment, Outcome]]

RECHECK_SECONDS: Final = 0.1
ROLLED_BACK: Final = Failed(
    AttemptError(
        type="RolledBack", message="the task has completed its job in a transaction that was not committed"
    )
)


def split_settleable(
    store: Store, worker: WorkerId, ended: EndedAttempts
) -> tuple[EndedAttempts, EndedAttempts]:
    """Return the ended attempts to settle now, and those to settle later. The latter's transaction is open
    although their task has returned.

    After a commit the job is in its final state, and the settlement is answered as repeated. After a rollback
    the task's work has not happened, and the attempt has failed. A failed attempt may have left its
    transaction open too, and settling it now would block all others.
    """
    leases = [
        assignment.lease
        for assignment, outcome in ended
        if assignment.context.is_completed_in_tx or is_completed_in_tx(outcome)
    ]
    if not leases:
        return ended, []
    statuses = dict(zip(leases, store.lease_status(worker, leases), strict=True))
    now: EndedAttempts = []
    later: EndedAttempts = []
    for assignment, outcome in ended:
        status = statuses.get(assignment.lease)
        if status is LeaseStatus.OPEN:
            later.append((assignment, outcome))
        else:
            is_rolled_back = status is LeaseStatus.HELD and isinstance(outcome, Completed)
            now.append((assignment, ROLLED_BACK if is_rolled_back else outcome))
    return now, later


def is_completed_in_tx(outcome: Outcome) -> bool:
    return isinstance(outcome, Completed) and outcome.is_in_caller_tx


def next_check_at(waiting: Sequence[object], now: float) -> float:
    """Return the time of the next check of the attempts that wait."""
    return now + RECHECK_SECONDS if waiting else float("inf")
