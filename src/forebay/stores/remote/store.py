"""The service's store behind the seam: each call is one request, and what it means is said over there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, cast

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.moving import Whole
from forebay.domain.note import Note
from forebay.domain.query import Fate
from forebay.domain.settlement import Settlement
from forebay.domain.text import clean
from forebay.errors import ConfigError, ForebayError, StoreBusy, StoreError, StoreRefused, StoreUnavailable
from forebay.stores.ids import new_id, several_ids
from forebay.stores.protocol import Exchange, Features, OnConflict, Reader, Receipt, Store, Wakeups, Want
from forebay.stores.remote.asking import Address, Asking, TimedOut, Unheard
from forebay.stores.remote.wakeups import RemoteWakeups
from forebay.stores.wire import JOBS_AT_ONCE, calls

# Calls that may be made twice when an answer got lost, beside those that only look: the second changes
# nothing and is answered as the first was. `insert` is one by its ids, see there. Not `exchange`: what the
# first one has claimed would be lost to the second, and only the caller knows its leases (`known`), so that
# it finds them. Not `cancel`, `delete`, `save_document` and the like either, whose second answer would speak
# of what the first has left.
REPEATABLE: Final = frozenset({"renew", "standing", "beat", "forget_worker", "answer", "adopt"})
NOTHING_TO_JOIN: Final = (
    "a store behind a service has no transactions to join; that takes a connection to its database"
)


class RemoteEngine:
    """One service, on one or several servers."""

    # What lies behind it is not known before it is asked, and none of this may depend on it. A hint is
    # repeated by the service where its store holds hints back.
    features: Features = Features(
        name="remote", is_durable=True, is_shared=True, joins_transactions=False, does_duties=True
    )

    def __init__(self, address: Address) -> None:
        self._asking = Asking(address)

    def store(self) -> Store:
        return cast(Store, RemoteStore(self._asking))

    def reader(self) -> Reader:
        return cast(Reader, Handle(self._asking))

    @property
    def place(self) -> str:
        return ",".join(sorted(self._asking.address.urls))

    def migrate(self) -> int:
        with closing(self.store()) as store:
            return store.migrate()

    def check_schema(self) -> None:
        with closing(self.reader()) as reader:
            reader.now()

    def insert_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(NOTHING_TO_JOIN)

    async def insert_within_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(NOTHING_TO_JOIN)

    def complete_within(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NOTHING_TO_JOIN)

    async def complete_within_async(
        self, connection: object, worker: WorkerId, settlement: Settlement
    ) -> None:
        raise ConfigError(NOTHING_TO_JOIN)

    def wakeups(self) -> Wakeups:
        return RemoteWakeups(self._asking)


class Handle:
    """Every method of the seam, by its name."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._is_closed = False
        asking.hold()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in calls():
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        if self._is_closed:
            raise StoreError("this handle is closed")
        call = calls()[name]
        may_repeat = not call.writes or name in REPEATABLE
        return call.answer(self._asking.ask(name, call.asked(args, kwargs), may_repeat=may_repeat))

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        return self._each("jobs", ids, with_payload=with_payload)

    def fates(self, ids: Sequence[JobId]) -> list[Fate | None]:
        return self._each("fates", ids)

    def wholes(self, ids: Sequence[JobId]) -> list[Whole | None]:
        return self._each("wholes", ids)

    def _each(self, name: str, ids: Sequence[JobId], **options: Any) -> list[Any]:
        """The answers for these jobs. A service answers for the first ones where all are too large."""
        wanted = list(dict.fromkeys(ids))
        found = dict[JobId, Any]()
        while len(found) < len(wanted):
            part = wanted[len(found) : len(found) + JOBS_AT_ONCE]
            answers = self._call(name, part, **options)
            if not 0 < len(answers) <= len(part):
                raise StoreRefused(f"the service told of {len(answers)} jobs, and was asked for {len(part)}")
            found |= zip(part, answers, strict=False)
        return [found[job_id] for job_id in ids]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._asking.let_go()


class RemoteStore(Handle):
    """The write side. Jobs get their ids here, and by these a lost answer is found again."""

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[Receipt]:
        named = _named(jobs)
        ask = partial(self._call, "insert", atomic=atomic, create_queues=create_queues)
        try:
            receipts: list[Receipt] = ask(named, on_conflict=on_conflict)
            return receipts
        except (Unheard, StoreBusy):
            raise  # nothing has happened
        except StoreUnavailable as exc:
            ours = {job.id for job, given in zip(named, jobs, strict=True) if given.id is None and job.id}
            if len(ours) < len(jobs):
                raise  # an id of the caller's may be taken by somebody else's job
            lost = exc
        return self._again(ask, named, on_conflict, lost)

    def _again(
        self,
        ask: Callable[..., list[Receipt]],
        jobs: Sequence[NewJob],
        on_conflict: OnConflict,
        lost: StoreUnavailable,
    ) -> list[Receipt]:
        """The same once more: it may have happened. An id that is taken can only be so by the first try; if
        that comes after this one, it is the one that is refused."""
        try:
            receipts = ask(jobs, on_conflict="raise" if on_conflict == "raise" else "ignore")
        except StoreUnavailable:
            raise lost from None
        except ForebayError as exc:
            # Refused, perhaps because the first has filled the queue or holds the key.
            receipts = [Receipt(id=None, is_new=False, error=exc)] * len(jobs)
            found = self._found(jobs, receipts)
            if all(receipt.is_new for receipt in found):
                return found
            if any(receipt.is_new for receipt in found):
                raise lost from exc  # the others have met a taken key, and nobody knows whose
            if isinstance(lost, TimedOut):
                raise lost from exc  # the first may be done after all that was found here
            raise
        return self._found(jobs, receipts)

    def _found(self, jobs: Sequence[NewJob], receipts: Sequence[Receipt]) -> list[Receipt]:
        """Receipts in which what is ours is new, whatever the second try says of it."""
        refused = [
            job.id
            for job, receipt in zip(jobs, receipts, strict=True)
            if receipt.error is not None and job.id
        ]
        stored = {job.id: job for job in self.jobs(refused) if job is not None} if refused else {}
        found = []
        for job, receipt in zip(jobs, receipts, strict=True):
            if job.id in stored:
                found.append(Receipt(id=job.id, is_new=True, state=stored[job.id].state))
            else:
                found.append(replace(receipt, is_new=True) if receipt.id == job.id else receipt)
        return found

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        said = [_cleaned(note) for note in notes]
        answer: Exchange = self._call("exchange", worker, settlements, wants, room, known, said)
        return answer


def _cleaned(note: Note) -> Note:
    """A note that can be sent: what a task has said costs nobody its settlements."""
    progress = note.progress and replace(note.progress, message=clean(note.progress.message))
    return replace(
        note, progress=progress, lines=tuple(replace(line, text=clean(line.text)) for line in note.lines)
    )


def _named(jobs: Sequence[NewJob]) -> list[NewJob]:
    missing = iter(several_ids(new_id, sum(job.id is None for job in jobs)))
    return [replace(job, id=next(missing)) if job.id is None else job for job in jobs]
