"""Settling in a batch that must not die of one member."""

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
from forebay.errors import StoreBusy, StoreError, StoreRefused, StoreUnavailable
from forebay.stores.contract.store import Store
from forebay.stores.contract.values import LeaseRefusal, QueueClaim, SettleAndClaimResult
from forebay.telemetry.logs import lease_fields

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
    """Exchange; if the store refuses to hold some settlement, or a fault of our own shows in one, settle all
    others in this same call.

    The culprit is settled by what `fallback` makes of it (see `failed_settlement`). If the store refuses that
    as
    well, it is answered as refused with the store's reason; its lease runs out and the sweep decides. All
    answers come in the order of the settlements. The claim happens once, at the end. Notes come first, as in
    the store; one that cannot be held is dropped alone, and answered as unnoted with the reason.

    A settlement that needs what another transaction holds, such as the key of a follow-up, is left undone and
    answered as `busy`. All others are settled, and the claim happens: a transaction may stay open for hours.
    The same holds for a note; the settlement of its lease then waits too, so that no last words are lost.
    """
    try:
        return store.settle_and_claim(worker, settlements, claims, room, known, updates)
    except Exception as error:
        if not (settlements or updates) or not _may_have_a_culprit(error):
            raise
        refusal = error
    if not isinstance(refusal, (StoreRefused, StoreBusy)):
        # A fault of our own. If one settlement is behind it, the batch would never be settled as a whole, and
        # with it the work of all others be lost; so we look for that one, as for one that is refused. But a
        # bug that has nothing to do with them must not end a single one: it shows in an exchange without any
        # too, and passes through here. Then all are kept, as in an outage.
        store.settle_and_claim(worker, ())
    # StoreUnavailable passes through from here on as it did above, and nothing is lost: the caller keeps
    # every settlement and offers all of them again, and what this call had already written is then
    # answered `repeated`. (A job that was handed back and is already running elsewhere is answered
    # `refused`; its new attempt is the one that counts.) So it need not be told how far we came.
    if updates:
        # They are kept, or dropped, one by one; then nobody but a settlement can be to blame.
        noted = [_save_update(store, worker, note) for note in updates]
        busy = {lease for answer in noted for lease in answer.busy}
        rest = [end for end in settlements if _lease(end) not in busy]
        known = None if known is None else [*known, *busy]
        if rest:
            answer = settle_and_claim_isolating(store, worker, rest, claims, room, known, fallback=fallback)
        else:
            answer = _claim_separately(store, worker, claims, room, known)
        unnoted = tuple(one for answer in noted for one in answer.refused_updates)
        return replace(answer, refused_updates=unnoted, busy=(*answer.busy, *busy))
    if isinstance(refusal, StoreBusy) and len(settlements) == 1 and not claims and known is None:
        return SettleAndClaimResult(busy=(_lease(settlements[0]),))
    # All together first where it may have been the claim that met a lock; then by halves.
    batches = [settlements] if isinstance(refusal, StoreBusy) else _split_halves(settlements)
    answers = list(_settle_by_bisection(store, worker, batches, fallback))
    if known is not None:
        # What was refused twice is still running under this worker; it must not be adopted and run again.
        known = [*known, *map(_lease, settlements)]
    return _merge_answers(answers, _claim_separately(store, worker, claims, room, known))


def match_kept_outcomes(answer: SettleAndClaimResult, outcomes: Sequence[tuple[Lease, object]]) -> list[bool]:
    """Whether each of these ends is kept, by lease and kind of outcome. The first of an attempt counts."""
    kept = {*answer.settled, *answer.repeated}
    # By lease: of two attempts at one job, one may have been lost.
    refused = Counter(one.lease for one in answer.refused)
    given = Counter(lease for lease, _ in outcomes)
    first = dict(reversed(outcomes))
    return [
        lease.job_id in kept
        and (not refused[lease] or (refused[lease] < given[lease] and kind == first[lease]))
        for lease, kind in outcomes
    ]


def _claim_separately(
    store: Store, worker: WorkerId, claims: Sequence[QueueClaim], room: int, known: Sequence[Lease] | None
) -> SettleAndClaimResult:
    """Claim after notes or settlements were written by themselves."""
    try:
        return store.settle_and_claim(worker, (), claims, room, known)
    except StoreBusy as exc:
        # StoreBusy means that nothing has happened. Here the caller must offer everything again.
        raise StoreUnavailable(str(exc)) from exc


def _merge_answers(
    answers: Sequence[SettleAndClaimResult], last: SettleAndClaimResult
) -> SettleAndClaimResult:
    """The answer to the whole: what was settled one by one, and what the last call has claimed."""
    return replace(
        last,
        settled=tuple(job_id for answer in answers for job_id in answer.settled),
        repeated=tuple(job_id for answer in answers for job_id in answer.repeated),
        refused=tuple(one for answer in answers for one in answer.refused),
        busy=tuple(lease for answer in answers for lease in answer.busy),
    )


def failed_settlement(job: Job, settlement: Settlement, error: Exception, roll: float) -> Settlement:
    """The settlement of an attempt whose own ending the store cannot hold: a failure with the reason."""
    was = settlement.error
    failure = AttemptError(
        type=type(error).__name__,
        message=escape_unencodable(
            f"the attempt was {settlement.outcome}, but the store cannot hold that: {error}"
        ),
        traceback=escape_unencodable(f"{was.type}: {was.message}\n{was.traceback}") if was else "",
    )
    return decide(job, Failed(failure), roll)


def check_not_busy(answer: SettleAndClaimResult) -> None:
    """Raise StoreBusy if a settlement was left undone: for callers that cannot offer it again by themselves.
    What was settled beside it is answered as repeated when all are offered again."""
    if answer.busy:
        raise StoreBusy(
            f"another transaction holds what the end of job {answer.busy[0].job_id} needs: "
            "try again once that has ended"
        )


class FallbackSettlements:
    """Fallback that remembers the settlements it substituted."""

    def __init__(self, job_of: Callable[[Lease], Job], roll: Callable[[], float]) -> None:
        self._job_of = job_of
        self._roll = roll
        self._substitutes: dict[Lease, Settlement] = {}

    def __call__(self, settlement: Settlement, error: Exception) -> Settlement:
        lease = _lease(settlement)
        self._substitutes[lease] = made = failed_settlement(
            self._job_of(lease), settlement, error, self._roll()
        )
        return made

    def substitute(self, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """These, with what was made in the place of some."""
        if not self._substitutes:
            return settlements
        return [self._substitutes.get(_lease(end), end) for end in settlements]


def select_newly_settled(
    jobs: Mapping[Lease, Job], settlements: Sequence[Settlement], answer: SettleAndClaimResult
) -> list[tuple[Job, Settlement]]:
    """The settlements that this answer has written, each once, for the metrics. Not repeated ones: the call
    that wrote them has counted them."""
    settled = set(answer.settled)
    refused = Counter(one.lease for one in answer.refused)
    given = Counter(map(_lease, settlements))
    first = {_lease(end): end for end in reversed(settlements)}  # a later one contradicts it and is refused
    return [
        (jobs[lease], end)
        for lease, end in first.items()
        if lease.job_id in settled and refused[lease] < given[lease]
    ]


def _settle_by_bisection(
    store: Store, worker: WorkerId, batches: Sequence[Sequence[Settlement]], fallback: Fallback
) -> Iterator[SettleAndClaimResult]:
    """Settle what was refused with more on board: by halves, down to the culprits. A settlement is a culprit
    only if the store refuses it alone; else the claim failed."""
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
    """Keep one note by itself, and answer what came of it."""
    try:
        return store.settle_and_claim(worker, updates=[update])
    except StoreBusy:
        # A lock says nothing about the lease: a task that was told of a lost lease would stop for nothing.
        return SettleAndClaimResult(busy=(update.lease,))
    except Exception as error:
        if not _may_have_a_culprit(error):
            raise
        fields = lease_fields(update.lease)
        logger.error(
            "what job %s, attempt %s, said cannot be kept", *update.lease, exc_info=error, extra=fields
        )
        refusal = LeaseRefusal(lease=update.lease, reason=f"the store cannot hold what it said: {error}")
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
    """Whether it may be because of one settlement. A store that is away or broken is so for all of them."""
    return isinstance(error, (StoreRefused, StoreBusy)) or not isinstance(error, StoreError)


def _lease(settlement: Settlement) -> Lease:
    return Lease(settlement.job_id, settlement.attempt)


def escape_unencodable(text: str) -> str:
    """The text with what cannot be written as UTF-8 spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
