"""Settling in a batch that must not die of one member."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from forebay.domain.job import Job, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note
from forebay.domain.outcome import AttemptError, Failed
from forebay.domain.settlement import Settlement, decide
from forebay.errors import StoreBusy, StoreError, StoreRefused, StoreUnavailable
from forebay.stores.protocol import Exchange, Refusal, Store, Want
from forebay.telemetry.logs import lease_fields

Fallback = Callable[[Settlement, Exception], Settlement]

logger: logging.Logger = logging.getLogger(__name__)


def exchange_all(
    store: Store,
    worker: WorkerId,
    settlements: Sequence[Settlement],
    wants: Sequence[Want] = (),
    room: int = 0,
    known: Sequence[Lease] | None = None,
    notes: Sequence[Note] = (),
    *,
    fallback: Fallback,
) -> Exchange:
    """Exchange; if the store refuses to hold some settlement, or a fault of our own shows in one, settle all
    others in this same call.

    The culprit is settled by what `fallback` makes of it (see `as_failed`). If the store refuses that as
    well, it is answered as refused with the store's reason; its lease runs out and the sweep decides. All
    answers come in the order of the settlements. The claim happens once, at the end. Notes come first, as in
    the store; one that cannot be held is dropped alone, and answered as unnoted with the reason.

    A settlement that needs what another transaction holds, such as the key of a follow-up, is left undone and
    answered as `busy`. All others are settled, and the claim happens: a transaction may stay open for hours.
    The same holds for a note; the settlement of its lease then waits too, so that no last words are lost.
    """
    try:
        return store.exchange(worker, settlements, wants, room, known, notes)
    except Exception as error:
        if not (settlements or notes) or not _may_have_a_culprit(error):
            raise
        refusal = error
    if not isinstance(refusal, (StoreRefused, StoreBusy)):
        # A fault of our own. If one settlement is behind it, the batch would never be settled as a whole, and
        # with it the work of all others be lost; so we look for that one, as for one that is refused. But a
        # bug that has nothing to do with them must not end a single one: it shows in an exchange without any
        # too, and passes through here. Then all are kept, as in an outage.
        store.exchange(worker, ())
    # StoreUnavailable passes through from here on as it did above, and nothing is lost: the caller keeps
    # every settlement and offers all of them again, and what this call had already written is then
    # answered `repeated`. (A job that was handed back and is already running elsewhere is answered
    # `refused`; its new attempt is the one that counts.) So it need not be told how far we came.
    if notes:
        # They are kept, or dropped, one by one; then nobody but a settlement can be to blame.
        noted = [_noted(store, worker, note) for note in notes]
        busy = {lease for answer in noted for lease in answer.busy}
        rest = [end for end in settlements if _lease(end) not in busy]
        known = None if known is None else [*known, *busy]
        if rest:
            answer = exchange_all(store, worker, rest, wants, room, known, fallback=fallback)
        else:
            answer = _claim(store, worker, wants, room, known)
        unnoted = tuple(one for answer in noted for one in answer.unnoted)
        return replace(answer, unnoted=unnoted, busy=(*answer.busy, *busy))
    if isinstance(refusal, StoreBusy) and len(settlements) == 1 and not wants and known is None:
        return Exchange(busy=(_lease(settlements[0]),))
    # All together first where it may have been the claim that met a lock; then by halves.
    batches = [settlements] if isinstance(refusal, StoreBusy) else _halves(settlements)
    answers = list(_settled(store, worker, batches, fallback))
    if known is not None:
        # What was refused twice is still running under this worker; it must not be adopted and run again.
        known = [*known, *map(_lease, settlements)]
    return _together(answers, _claim(store, worker, wants, room, known))


def kept_ends(answer: Exchange, ends: Sequence[tuple[Lease, object]]) -> list[bool]:
    """Whether each of these ends is kept, by lease and kind of outcome. The first of an attempt counts."""
    kept = {*answer.settled, *answer.repeated}
    # By lease: of two attempts at one job, one may have been lost.
    refused = Counter(one.lease for one in answer.refused)
    given = Counter(lease for lease, _ in ends)
    first = dict(reversed(ends))
    return [
        lease.job_id in kept
        and (not refused[lease] or (refused[lease] < given[lease] and kind == first[lease]))
        for lease, kind in ends
    ]


def _claim(
    store: Store, worker: WorkerId, wants: Sequence[Want], room: int, known: Sequence[Lease] | None
) -> Exchange:
    """Claim after notes or settlements were written by themselves."""
    try:
        return store.exchange(worker, (), wants, room, known)
    except StoreBusy as exc:
        # StoreBusy means that nothing has happened. Here the caller must offer everything again.
        raise StoreUnavailable(str(exc)) from exc


def _together(answers: Sequence[Exchange], last: Exchange) -> Exchange:
    """The answer to the whole: what was settled one by one, and what the last call has claimed."""
    return replace(
        last,
        settled=tuple(job_id for answer in answers for job_id in answer.settled),
        repeated=tuple(job_id for answer in answers for job_id in answer.repeated),
        refused=tuple(one for answer in answers for one in answer.refused),
        busy=tuple(lease for answer in answers for lease in answer.busy),
    )


def as_failed(job: Job, settlement: Settlement, error: Exception, roll: float) -> Settlement:
    """The settlement of an attempt whose own ending the store cannot hold: a failure with the reason."""
    was = settlement.error
    failure = AttemptError(
        type=type(error).__name__,
        message=writable(f"the attempt was {settlement.ending}, but the store cannot hold that: {error}"),
        traceback=writable(f"{was.type}: {was.message}\n{was.traceback}") if was else "",
    )
    return decide(job, Failed(failure), roll)


def check_not_busy(answer: Exchange) -> None:
    """Raise StoreBusy if a settlement was left undone: for callers that cannot offer it again by themselves.
    What was settled beside it is answered as repeated when all are offered again."""
    if answer.busy:
        raise StoreBusy(
            f"another transaction holds what the end of job {answer.busy[0].job_id} needs: "
            "try again once that has ended"
        )


class Instead:
    """Fallback that remembers the settlements it substituted."""

    def __init__(self, job_of: Callable[[Lease], Job], roll: Callable[[], float]) -> None:
        self._job_of = job_of
        self._roll = roll
        self._made: dict[Lease, Settlement] = {}

    def __call__(self, settlement: Settlement, error: Exception) -> Settlement:
        lease = _lease(settlement)
        self._made[lease] = made = as_failed(self._job_of(lease), settlement, error, self._roll())
        return made

    def ends(self, settlements: Sequence[Settlement]) -> Sequence[Settlement]:
        """These, with what was made in the place of some."""
        if not self._made:
            return settlements
        return [self._made.get(_lease(end), end) for end in settlements]


def newly_settled(
    jobs: Mapping[Lease, Job], ends: Sequence[Settlement], answer: Exchange
) -> list[tuple[Job, Settlement]]:
    """The settlements that this answer has written, each once, for the metrics. Not repeated ones: the call
    that wrote them has counted them."""
    settled = set(answer.settled)
    refused = Counter(one.lease for one in answer.refused)
    given = Counter(map(_lease, ends))
    first = {_lease(end): end for end in reversed(ends)}  # a later one contradicts it and is refused
    return [
        (jobs[lease], end)
        for lease, end in first.items()
        if lease.job_id in settled and refused[lease] < given[lease]
    ]


def _settled(
    store: Store, worker: WorkerId, batches: Sequence[Sequence[Settlement]], fallback: Fallback
) -> Iterator[Exchange]:
    """Settle what was refused with more on board: by halves, down to the culprits. A settlement is a culprit
    only if the store refuses it alone; else the claim failed."""
    for batch in batches:
        try:
            yield store.exchange(worker, batch)
        except Exception as error:
            if not _may_have_a_culprit(error):
                raise
            if len(batch) > 1:
                yield from _settled(store, worker, _halves(batch), fallback)
                continue
            if isinstance(error, StoreBusy):
                # The outcome stands; settle it after the other transaction ends.
                yield Exchange(busy=(_lease(batch[0]),))
                continue
            if not isinstance(error, StoreRefused):
                lease = _lease(batch[0])
                fields = lease_fields(lease)
                logger.error("job %s, attempt %s, cannot be settled", *lease, exc_info=error, extra=fields)
            yield _settled_instead(store, worker, batch[0], error, fallback)


def _halves(batch: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    middle = len(batch) // 2
    return [half for half in (batch[:middle], batch[middle:]) if half]


def _noted(store: Store, worker: WorkerId, note: Note) -> Exchange:
    """Keep one note by itself, and answer what came of it."""
    try:
        return store.exchange(worker, notes=[note])
    except StoreBusy:
        # A lock says nothing about the lease: a task that was told of a lost lease would stop for nothing.
        return Exchange(busy=(note.lease,))
    except Exception as error:
        if not _may_have_a_culprit(error):
            raise
        fields = lease_fields(note.lease)
        logger.error(
            "what job %s, attempt %s, said cannot be kept", *note.lease, exc_info=error, extra=fields
        )
        refusal = Refusal(lease=note.lease, reason=f"the store cannot hold what it said: {error}")
        return Exchange(unnoted=(refusal,))


def _settled_instead(
    store: Store, worker: WorkerId, culprit: Settlement, refusal: Exception, fallback: Fallback
) -> Exchange:
    try:
        return store.exchange(worker, [fallback(culprit, refusal)])
    except StoreBusy:
        return Exchange(busy=(_lease(culprit),))
    except Exception as error:
        if not _may_have_a_culprit(error):
            raise
        return Exchange(refused=(Refusal(lease=_lease(culprit), reason=str(error)),))


def _may_have_a_culprit(error: Exception) -> bool:
    """Whether it may be because of one settlement. A store that is away or broken is so for all of them."""
    return isinstance(error, (StoreRefused, StoreBusy)) or not isinstance(error, StoreError)


def _lease(settlement: Settlement) -> Lease:
    return Lease(settlement.job_id, settlement.attempt)


def writable(text: str) -> str:
    """The text with what cannot be written as UTF-8 spelt out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
