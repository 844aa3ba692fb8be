"""Attempts that have completed their job in a transaction of their own: what has come of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.domain.job import WorkerId
from forebay.domain.outcome import AttemptError, Completed, Failed, Outcome
from forebay.stores.protocol import Standing, Store
from forebay.worker.slots import Assignment

Endings = list[tuple[Assignment, Outcome]]

LOOK_AGAIN_SECONDS: Final = 0.1
ROLLED_BACK: Final = Failed(
    AttemptError(
        type="RolledBack", message="the task has completed its job in a transaction that was not committed"
    )
)


def looked_at(store: Store, worker: WorkerId, endings: Endings) -> tuple[Endings, Endings]:
    """What can be settled now, and what has to wait, because the transaction is open though its task has
    returned.

    If it was committed, the job is where it belongs, and the settlement is answered as repeated. If it was
    rolled back, what the task wanted has not happened, and the attempt has failed. One that has failed anyway
    may have left its transaction open too, and to settle it now would hold up all others.
    """
    joined = [one.lease for one, outcome in endings if one.context.is_within or is_within(outcome)]
    if not joined:
        return endings, []
    found = dict(zip(joined, store.standing(worker, joined), strict=True))
    now: Endings = []
    later: Endings = []
    for one, outcome in endings:
        standing = found.get(one.lease)
        if standing is Standing.OPEN:
            later.append((one, outcome))
        else:
            is_undone = standing is Standing.HELD and isinstance(outcome, Completed)
            now.append((one, ROLLED_BACK if is_undone else outcome))
    return now, later


def is_within(outcome: Outcome) -> bool:
    return isinstance(outcome, Completed) and outcome.is_within


def look_at(waiting: Sequence[object], now: float) -> float:
    """When to look again at what has to wait."""
    return now + LOOK_AGAIN_SECONDS if waiting else float("inf")
