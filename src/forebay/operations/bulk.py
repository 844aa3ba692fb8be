"""Operations on all jobs that fit a filter, in batches, with progress.

Each job's move is atomic, the whole is not: an operation that is broken off has done a part, and can be
asked for again. A walk goes through the jobs once, from the newest to the oldest, so that it ends however
many jobs arrive meanwhile. Only what was really done is counted: a job that has changed between the look
and the wish answers for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from forebay.domain.failure_group import check_group
from forebay.domain.job import JobId, QueueName, WorkerId
from forebay.domain.lifecycle import LIVE, JobState
from forebay.domain.outcome import Lost
from forebay.domain.query import MAX_PAGE, JobQuery
from forebay.domain.settlement import Settlement, decide
from forebay.operations.failure_groups import filter_by_group
from forebay.operations.settlements import failed_settlement, settle_and_claim_isolating
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import REVIVE_NOW, ReviveOptions
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import BATCH, ActionResult

Progress: TypeAlias = Callable[[int], None]
OnResults: TypeAlias = Callable[[Sequence[ActionResult]], None]

_LEASE_ENDED = "the lease ended without a word from the worker, or the worker died"
_DELETABLE = frozenset(JobState) - {JobState.RUNNING}
_REVIVABLE = frozenset({JobState.DEAD, JobState.CANCELLED})


def _ignore_progress(count: int) -> None:
    pass


def _ignore_results(verdicts: Sequence[ActionResult]) -> None:
    pass


def purge(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    actor: str = "",
    progress: Progress = _ignore_progress,
    on_results: OnResults = _ignore_results,
) -> int:
    """Delete the jobs that fit, except running ones; with `group` the dead letters of that failure group
    among them. Answers how many went.

    `progress` hears the number so far after each batch, and `on_results` is given the verdicts of each batch.
    """

    def delete(ids: Sequence[JobId]) -> list[ActionResult]:
        verdicts = store.delete(ids, actor=actor)
        on_results(verdicts)
        return verdicts

    return _apply_in_batches(reader, query, _DELETABLE, delete, progress, group)


def revive_matching(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    options: ReviveOptions = REVIVE_NOW,
    progress: Progress = _ignore_progress,
    on_results: OnResults = _ignore_results,
) -> int:
    """Put back the dead and cancelled jobs that fit; with `group` the dead letters of that failure group
    among them. Answers how many; `on_results` is given the verdicts of each batch."""

    def revive(ids: Sequence[JobId]) -> list[ActionResult]:
        verdicts = store.revive(ids, **options._asdict())
        on_results(verdicts)
        return verdicts

    return _apply_in_batches(reader, query, _REVIVABLE, revive, progress, group)


def cancel_matching(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    reason: str = "cancelled",
    actor: str = "",
    progress: Progress = _ignore_progress,
    on_results: OnResults = _ignore_results,
) -> int:
    """Cancel the live jobs that fit; answers how many. Running ones are asked to stop, and count;
    `on_results` is
    given the verdicts of each batch, which tell them apart."""

    def cancel(ids: Sequence[JobId]) -> list[ActionResult]:
        verdicts = store.cancel(ids, reason, actor=actor)
        on_results(verdicts)
        return verdicts

    return _apply_in_batches(reader, query, LIVE, cancel, progress)


def drop_queue(
    store: Store,
    name: QueueName,
    *,
    force: bool = False,
    actor: str = "",
    progress: Progress = _ignore_progress,
) -> None:
    """Close a queue for good and, with `force`, move all its waiting jobs to the dead letters.

    `progress` hears after each batch how many are left. It ends when a batch leaves no fewer than the one
    before: what running jobs still put into the queue is the sweep's to move.
    """
    left = store.drop_queue(name, force=force, actor=actor)
    progress(left)
    before = left + 1
    while 0 < left < before:
        before, left = left, store.drop_queue(name, force=force, actor=actor)
        progress(left)


def sweep(
    store: Store,
    sweeper: WorkerId,
    roll: Callable[[], float],
    limit: int = BATCH,
    *,
    only_dead: bool = False,
) -> int:
    """Settle up to `limit` attempts whose lease has ended, or whose worker died, as lost; answers how many.
    With `only_dead` just those of workers that are known to be dead.

    The duty of the same name holds back after an outage or a step of the store's clock, so that the holders
    of leases come first. This is for an operator who has decided, and does not.
    """
    swept = {job.id: job for job in store.sweep(sweeper, limit, only_dead=only_dead)}
    if not swept:
        return 0

    def instead(settlement: Settlement, error: Exception) -> Settlement:
        return failed_settlement(swept[settlement.job_id], settlement, error, roll())

    settlements = [decide(job, Lost(_LEASE_ENDED), roll()) for job in swept.values()]
    answer = settle_and_claim_isolating(store, sweeper, settlements, fallback=instead)
    return len(answer.settled) + len(answer.repeated)


def _apply_in_batches(
    reader: Reader,
    query: JobQuery,
    allowed: frozenset[JobState],
    action: Callable[[Sequence[JobId]], list[ActionResult]],
    progress: Progress,
    group: str | None = None,
) -> int:
    if group is not None:
        check_group(group)
        allowed &= {JobState.DEAD}
    states = tuple(state for state in query.states or JobState if state in allowed)
    if not states:
        # To a reader no states mean every state.
        return 0
    narrow, done, after, is_over = replace(query, states=states), 0, None, False
    while not is_over:
        page = reader.search(narrow, limit=MAX_PAGE, after=after)
        ids = (
            [fate.id for fate in filter_by_group(reader, page.jobs, group)]
            if group
            else [job.id for job in page.jobs]
        )
        if ids:
            done += sum(verdict.applied for verdict in action(ids))
            progress(done)
        after, is_over = page.after, page.after is None
    return done
