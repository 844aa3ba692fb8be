"""Isolation of settlements: one that the store refuses does not block the others of its batch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from forebay.domain.job import Job, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.outcome import AttemptError, Failed
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement, decide
from forebay.domain.storable_text import escape_unencodable
from forebay.errors import StoreBusy, StoreError, StoreRefused, StoreUnavailable
from forebay.stores.contract.claims_and_results import LeaseRefusal, QueueClaim, SettleAndClaimResult
from forebay.stores.contract.store import Store
from forebay.telemetry.log_fields import lease_fields

Fallback = Callable[[Settlement, Exception], Settlement]

logger: logging.Logger = logging.getLogger(__name__)


def settle_and_claim_isolating(
    store: Store,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    claims: Sequence[QueueClaim] = (),
    room: int = 0,
    known: Sequence[Lease] | None = None,
    updates: Sequence[ProgressUpdate] = (),
    *,
    fallback: Fallback,
) -> SettleAndClaimResult:
    """Settle and claim in one call. If the store refuses one settlement, or an error shows in one, settle the
    rest in this same call.

    The culprit is settled by the result of `fallback` (see `failed_settlement`). If the store refuses that
    too, it is answered as refused with the store's reason. Its lease runs out and the sweep decides. All
    answers come in the order of the settlements. The claim happens once, at the end. Progress updates come
    first, as in the store. An update that cannot be stored is dropped alone, and is in `refused_updates` with
    the reason.

    A settlement may need a row that another transaction locks, such as the key of a follow-up. It is left
    undone and answered as `busy`. The rest is settled, and the claim happens: a transaction may stay open for
    hours. The same holds for an update. The settlement of its lease then waits too, so that no progress is
    lost.
    """
    try:
        return store.settle_and_claim(worker, settlements, claims, room, known, updates)
    except Exception as error:
        if not (settlements or updates) or not _may_have_a_culprit(error):
            raise
        refusal = error
    if not isinstance(refusal, (StoreRefused, StoreBusy)):
        # An error of this program. If one settlement causes it, the whole batch would never be settled, so
        # search for that one as for a refused one. But an unrelated bug must not end a single attempt: it
        # shows in a call without settlements too, and is raised here. Then all settlements are kept, as in an
        # outage.
        store.settle_and_claim(worker, ())
    # StoreUnavailable is raised from here on as above, and nothing is lost. The caller keeps every settlement
    # and offers all of them again; those that this call has written are then answered `repeated`. A job that
    # was returned to its queue, and already runs elsewhere, is answered `refused`: its new attempt counts. So
    # the caller need not know how far this call came.
    if updates:
        # They are stored, or dropped, one by one; then only a settlement can be to blame.
        results = [_save_update(store, worker, update) for update in updates]
        busy = {lease for result in results for lease in result.busy}
        rest = [end for end in settlements if _lease(end) not in busy]
        known = None if known is None else [*known, *busy]
        if rest:
            answer = settle_and_claim_isolating(store, worker, rest, claims, room, known, fallback=fallback)
        else:
            answer = _claim_separately(store, worker, claims, room, known)
        refused = tuple(refusal for result in results for refusal in result.refused_updates)
        return replace(answer, refused_updates=refused, busy=(*answer.busy, *busy))
    if isinstance(refusal, StoreBusy) and len(settlements) == 1 and not claims and known is None:
        return SettleAndClaimResult(busy=(_lease(settlements[0]),))
    # All together first, if the claim may have met the lock; then by halves.
    batches = [settlements] if isinstance(refusal, StoreBusy) else _split_halves(settlements)
    answers = list(_settle_by_bisection(store, worker, batches, fallback))
    if known is not None:
        # A settlement that was refused twice still runs under this worker; it must not be recovered and run
        # again.
        known = [*known, *map(_lease, settlements)]
    return _merge_answers(answers, _claim_separately(store, worker, claims, room, known))


def match_kept_outcomes(answer: SettleAndClaimResult, outcomes: Sequence[tuple[Lease, object]]) -> list[bool]:
    """Return whether each of these outcomes was stored, by lease and kind. The first outcome of an attempt
    counts."""
    stored = {*answer.settled, *answer.repeated}
    if not answer.refused:
        return [lease.job_id in stored for lease, _ in outcomes]
    # By lease: of two attempts at one job, one may have been lost.
    refused = Counter(refusal.lease for refusal in answer.refused)
    offered = Counter(lease for lease, _ in outcomes)
    first = dict(reversed(outcomes))
    return [
        lease.job_id in stored
        and (not refused[lease] or (refused[lease] < offered[lease] and kind == first[lease]))
        for lease, kind in outcomes
    ]


def _claim_separately(
    store: Store, worker: WorkerId, claims: Sequence[QueueClaim], room: int, known: Sequence[Lease] | None
) -> SettleAndClaimResult:
    """Claim after updates or settlements were written by calls of their own."""
    try:
        return store.settle_and_claim(worker, (), claims, room, known)
    except StoreBusy as exc:
        # StoreBusy means that nothing has happened. Here the caller must offer everything again.
        raise StoreUnavailable(str(exc)) from exc


def _merge_answers(
    answers: Sequence[SettleAndClaimResult], last: SettleAndClaimResult
) -> SettleAndClaimResult:
    """Merge the answers of the separate settlements with that of the last call, which has claimed."""
    return replace(
        last,
        settled=tuple(job_id for answer in answers for job_id in answer.settled),
        repeated=tuple(job_id for answer in answers for job_id in answer.repeated),
        refused=tuple(refusal for answer in answers for refusal in answer.refused),
        busy=tuple(lease for answer in answers for lease in answer.busy),
    )


def failed_settlement(job: Job, settlement: Settlement, error: Exception, roll: float) -> Settlement:
    """Return a failed settlement with the reason, for an attempt whose outcome the store cannot hold."""
    original = settlement.error
    failure = AttemptError(
        type=type(error).__name__,
        message=escape_unencodable(
            f"the attempt was {settlement.outcome}, but the store cannot hold that: {error}"
        ),
        traceback=escape_unencodable(f"{original.type}: {original.message}\n{original.traceback}")
        if original
        else "",
    )
    return decide(job, Failed(failure), roll)


def check_not_busy(answer: SettleAndClaimResult) -> None:
    """Raise StoreBusy if a settlement was left undone, for callers that cannot offer it again by themselves.
    When all are offered again, those that were settled are answered as repeated."""
    if answer.busy:
        raise StoreBusy(
            f"another transaction holds what the end of job {answer.busy[0].job_id} needs: "
            "try again once that has ended"
        )


class FallbackSettlements:
    """Fallback that remembers its substitutes."""

    def __init__(self, job_of: Callable[[Lease], Job], roll: Callable[[], float]) -> None:
        self._job_of = job_of
        self._roll = roll
        self._substitutes: dict[Lease, Settlement] = {}

    def __call__(self, settlement: Settlement, error: Exception) -> Settlement:
        lease = _lease(settlement)
        self._substitutes[lease] = substitute = failed_settlement(
            self._job_of(lease), settlement, error, self._roll()
        )
        return substitute

    def substitute(self, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """Return the settlements, with the substitutes in place of some."""
        if not self._substitutes:
            return settlements
        return [self._substitutes.get(_lease(end), end) for end in settlements]


def select_newly_settled(
    jobs: Mapping[Lease, Job], settlements: Sequence[Settlement], answer: SettleAndClaimResult
) -> list[tuple[Job, Settlement]]:
    """Return the settlements that this answer has written, each once, for the metrics. Not repeated ones: the
    call that wrote them has counted them."""
    settled = set(answer.settled)
    first = {_lease(end): end for end in reversed(settlements)}  # a later one contradicts it and is refused
    found = [(jobs[lease], end) for lease, end in first.items() if lease.job_id in settled]
    if not answer.refused:
        return found
    refused = Counter(refusal.lease for refusal in answer.refused)
    offered = Counter(map(_lease, settlements))
    return [(job, end) for job, end in found if refused[_lease(end)] < offered[_lease(end)]]


def _settle_by_bisection(
    store: Store, worker: WorkerId, batches: Sequence[Sequence[Settlement]], fallback: Fallback
) -> Iterator[SettleAndClaimResult]:
    """Settle refused batches by halves, down to the culprits. A settlement is a culprit only if the store
    refuses it alone; else the claim has failed."""
    for batch in batches:
        try:
            yield store.settle_and_claim(worker, batch)
        except Exception as error:
            if not _may_have_a_culprit(error):
                raise
            if len(batch) > 1:
                yield from _settle_by_bisection(store, worker, _split_halves(batch), fallback)
                continue
            if isinstance(error, StoreBusy):
                # The outcome stands; settle it after the other transaction ends.
                yield SettleAndClaimResult(busy=(_lease(batch[0]),))
                continue
            if not isinstance(error, StoreRefused):
                lease = _lease(batch[0])
                fields = lease_fields(lease)
                logger.error("job %s, attempt %s, cannot be settled", *lease, exc_info=error, extra=fields)
            yield _settle_fallback(store, worker, batch[0], error, fallback)


def _split_halves(batch: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    middle = len(batch) // 2
    return [half for half in (batch[:middle], batch[middle:]) if half]


def _save_update(store: Store, worker: WorkerId, update: ProgressUpdate) -> SettleAndClaimResult:
    """Save one update by a call of its own; return the answer."""
    try:
        return store.settle_and_claim(worker, updates=[update])
    except StoreBusy:
        # A lock says nothing about the lease: a task that gets a false LeaseLost would stop for nothing.
        return SettleAndClaimResult(busy=(update.lease,))
    except Exception as error:
        if not _may_have_a_culprit(error):
            raise
        fields = lease_fields(update.lease)
        logger.error(
            "the progress of job %s, attempt %s, cannot be stored",
            *update.lease,
            exc_info=error,
            extra=fields,
        )
        refusal = LeaseRefusal(lease=update.lease, reason=f"the store cannot hold its progress: {error}")
        return SettleAndClaimResult(refused_updates=(refusal,))


def _settle_fallback(
    store: Store, worker: WorkerId, culprit: Settlement, refusal: Exception, fallback: Fallback
) -> SettleAndClaimResult:
    try:
        return store.settle_and_claim(worker, [fallback(culprit, refusal)])
    except StoreBusy:
        return SettleAndClaimResult(busy=(_lease(culprit),))
    except Exception as error:
        if not _may_have_a_culprit(error):
            raise
        return SettleAndClaimResult(refused=(LeaseRefusal(lease=_lease(culprit), reason=str(error)),))


def _may_have_a_culprit(error: Exception) -> bool:
    """Return whether one settlement may be the cause. An unavailable or broken store fails for all of
    them."""
    return isinstance(error, (StoreRefused, StoreBusy)) or not isinstance(error, StoreError)


def _lease(settlement: Settlement) -> Lease:
    return Lease(settlement.job_id, settlement.attempt)
