"""Attempts that have completed their job in a transaction of their own: what has come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.domain.job import WorkerId
from forebay.domain.outcome import AttemptError, Completed, Failed, Outcome
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import LeaseStatus
from forebay.worker.slots import Assignment

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
    """What can be settled now, and what has to wait, because the transaction is open though its task has
    returned.

    If it was committed, the job is where it belongs, and the settlement is answered as repeated. If it was
    rolled back, what the task wanted has not happened, and the attempt has failed. One that has failed anyway
    may have left its transaction open too, and to settle it now would hold up all others.
    """
    joined = [
        one.lease for one, outcome in ended if one.context.is_completed_in_tx or is_completed_in_tx(outcome)
    ]
    if not joined:
        return ended, []
    found = dict(zip(joined, store.lease_status(worker, joined), strict=True))
    now: EndedAttempts = []
    later: EndedAttempts = []
    for one, outcome in ended:
        standing = found.get(one.lease)
        if standing is LeaseStatus.OPEN:
            later.append((one, outcome))
        else:
            is_undone = standing is LeaseStatus.HELD and isinstance(outcome, Completed)
            now.append((one, ROLLED_BACK if is_undone else outcome))
    return now, later


def is_completed_in_tx(outcome: Outcome) -> bool:
    return isinstance(outcome, Completed) and outcome.is_in_caller_tx


def next_check_at(waiting: Sequence[object], now: float) -> float:
    """When to look again at what has to wait."""
    return now + RECHECK_SECONDS if waiting else float("inf")
