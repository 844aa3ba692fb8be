"""The service's store behind the seam: each call is one request, and what it means is said over there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, NewJob, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.query import JobStateInfo
from forebay.domain.settlement import Settlement
from forebay.domain.store_move import JobExport
from forebay.domain.text import clean_text
from forebay.errors import ForebayError, StoreBusy, StoreError, StoreRefused, StoreUnavailable
from forebay.stores.contract.values import InsertResult, OnConflict, QueueClaim, SettleAndClaimResult
from forebay.stores.ids import create_ids, new_id
from forebay.stores.remote.http_client import (
    RequestNotSent,
    RequestTimedOut,
    ServiceClient,
)
from forebay.stores.rpc import MAX_JOBS, store_methods

# Calls that may be sent again when the response was lost, besides reads: the second one changes nothing and
# gets the same response. `insert` is idempotent by its ids, see there. Not `settle_and_claim`: jobs that the
# first call claimed would be lost, and only the caller can find them, by the leases that it has (`known`).
# Not `cancel`, `delete`, `save_document` and the like: the second response describes what the first one left.
REPEATABLE: Final = frozenset(
    {"renew", "lease_status", "heartbeat", "remove_worker", "answer_command", "import_jobs"}
)


class RemoteHandle:
    """Every method of the seam, by its name."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client
        self._is_closed = False
        client.acquire()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in store_methods():
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        if self._is_closed:
            raise StoreError("this handle is closed")
        call = store_methods()[name]
        may_repeat = not call.writes or name in REPEATABLE
        return call.decode_response(
            self._client.call(name, call.encode_call(args, kwargs), may_repeat=may_repeat)
        )

    def jobs(self, ids: Sequence[JobId], *, with_payload: bool = True) -> list[Job | None]:
        return self._call_in_batches("jobs", ids, with_payload=with_payload)

    def job_states(self, ids: Sequence[JobId]) -> list[JobStateInfo | None]:
        return self._call_in_batches("job_states", ids)

    def export_jobs(self, ids: Sequence[JobId]) -> list[JobExport | None]:
        return self._call_in_batches("export_jobs", ids)

    def _call_in_batches(self, name: str, ids: Sequence[JobId], **options: Any) -> list[Any]:
        """The answers for these jobs. A service answers for the first ones where all are too large."""
        wanted = list(dict.fromkeys(ids))
        found = dict[JobId, Any]()
        while len(found) < len(wanted):
            part = wanted[len(found) : len(found) + MAX_JOBS]
            answers = self._call(name, part, **options)
            if not 0 < len(answers) <= len(part):
                raise StoreRefused(f"the service told of {len(answers)} jobs, and was asked for {len(part)}")
            found |= zip(part, answers, strict=False)
        return [found[job_id] for job_id in ids]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._client.release()


class RemoteStore(RemoteHandle):
    """The write side. Jobs get their ids here, and by these a lost answer is found again."""

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[InsertResult]:
        named = _assign_ids(jobs)
        ask = partial(self._call, "insert", atomic=atomic, create_queues=create_queues)
        try:
            receipts: list[InsertResult] = ask(named, on_conflict=on_conflict)
            return receipts
        except (RequestNotSent, StoreBusy):
            raise  # nothing has happened
        except StoreUnavailable as exc:
            ours = {job.id for job, given in zip(named, jobs, strict=True) if given.id is None and job.id}
            if len(ours) < len(jobs):
                raise  # an id of the caller's may be taken by somebody else's job
            lost = exc
        return self._retry_insert(ask, named, on_conflict, lost)

    def _retry_insert(
        self,
        insert: Callable[..., list[InsertResult]],
        jobs: Sequence[NewJob],
        on_conflict: OnConflict,
        lost: StoreUnavailable,
    ) -> list[InsertResult]:
        """The same once more: it may have happened. An id that is taken can only be so by the first try; if
        that comes after this one, it is the one that is refused."""
        try:
            receipts = insert(jobs, on_conflict="raise" if on_conflict == "raise" else "ignore")
        except StoreUnavailable:
            raise lost from None
        except ForebayError as exc:
            # Refused, perhaps because the first has filled the queue or holds the key.
            receipts = [InsertResult(id=None, is_new=False, error=exc)] * len(jobs)
            found = self._mark_ours_new(jobs, receipts)
            if all(receipt.is_new for receipt in found):
                return found
            if any(receipt.is_new for receipt in found):
                raise lost from exc  # the others have met a taken key, and nobody knows whose
            if isinstance(lost, RequestTimedOut):
                raise lost from exc  # the first may be done after all that was found here
            raise
        return self._mark_ours_new(jobs, receipts)

    def _mark_ours_new(self, jobs: Sequence[NewJob], receipts: Sequence[InsertResult]) -> list[InsertResult]:
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
                found.append(InsertResult(id=job.id, is_new=True, state=stored[job.id].state))
            else:
                found.append(replace(receipt, is_new=True) if receipt.id == job.id else receipt)
        return found

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        said = [_clean_update(note) for note in updates]
        answer: SettleAndClaimResult = self._call(
            "settle_and_claim", worker, settlements, claims, room, known, said
        )
        return answer


def _clean_update(update: ProgressUpdate) -> ProgressUpdate:
    """A note that can be sent: what a task has said costs nobody its settlements."""
    progress = update.progress and replace(update.progress, message=clean_text(update.progress.message))
    return replace(
        update,
        progress=progress,
        lines=tuple(replace(line, text=clean_text(line.text)) for line in update.lines),
    )


def _assign_ids(jobs: Sequence[NewJob]) -> list[NewJob]:
    missing = iter(create_ids(new_id, sum(job.id is None for job in jobs)))
    return [replace(job, id=next(missing)) if job.id is None else job for job in jobs]
