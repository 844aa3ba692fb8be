"""Sweep on request: settle attempts whose lease has ended, without the pauses of the maintenance task."""

from __future__ import annotations

from collections.abc import Callable

from forebay.domain.job import WorkerId
from forebay.domain.outcome import Lost
from forebay.domain.settlement import Settlement, decide
from forebay.operations.settlement_isolation import failed_settlement, settle_and_claim_isolating
from forebay.stores.contract.claims_and_results import BATCH
from forebay.stores.contract.store import Store

_LEASE_ENDED = "the lease ended without a word from the worker, or the worker died"


def sweep(
    store: Store,
    sweeper: WorkerId,
    roll: Callable[[], float],
    limit: int = BATCH,
    *,
    only_dead: bool = False,
) -> int:
    """Settle up to `limit` attempts whose lease has ended, or whose worker died, as lost; return how many.
    With `only_dead` only attempts of workers that are known to be dead.

    The maintenance task of the same name pauses after an outage or a step of the store's clock. Workers can
    then renew their leases first. This function is for an operator's decision, and does not pause.
    """
    swept = {job.id: job for job in store.sweep(sweeper, limit, only_dead=only_dead)}
    if not swept:
        return 0

    def fallback(settlement: Settlement, error: Exception) -> Settlement:
        return failed_settlement(swept[settlement.job_id], settlement, error, roll())

    settlements = [decide(job, Lost(_LEASE_ENDED), roll()) for job in swept.values()]
    answer = settle_and_claim_isolating(store, sweeper, settlements, fallback=fallback)
    return len(answer.settled) + len(answer.repeated)
