"""Handles of the remote engine: each call of the store contract is one request to the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.job import Job, JobId, NewJob, WorkerId
from forebay.domain.job_views import JobStateInfo
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.settlement import Settlement
from forebay.domain.storable_text import clean_text
from forebay.domain.store_move import JobExport
from forebay.errors import ForebayError, StoreBusy, StoreError, StoreRefused, StoreUnavailable
from forebay.stores.contract.claims_and_results import (
    InsertResult,
    OnConflict,
    QueueClaim,
    SettleAndClaimResult,
)
from forebay.stores.id_generator import create_ids, new_id
from forebay.stores.remote.http_client import RequestNotSent, RequestTimedOut, ServiceClient
from forebay.stores.rpc import MAX_JOBS, store_methods

# Calls that may be sent again when the response was lost, besides reads: the second one changes nothing and
# gets the same response. `insert` is idempotent by its ids, see there. Not `settle_and_claim`: jobs that the
# first call claimed would be lost, and only the caller can find them, by the leases that it has (`known`).
# Not `cancel`, `delete`, `save_document` and the like: the second response describes what the first one left.
REPEATABLE: Final = frozenset(
    {"renew", "lease_status", "heartbeat", "remove_worker", "answer_command", "import_jobs"}
)


class RemoteHandle:
    """Handle with every method of the store contract, by name."""

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
        """Make a call in batches; return the results by id.

        The service returns the first results alone if all of them are too large for one response."""
        wanted = list(dict.fromkeys(ids))
        results = dict[JobId, Any]()
        while len(results) < len(wanted):
            part = wanted[len(results) : len(results) + MAX_JOBS]
            batch = self._call(name, part, **options)
            if not 0 < len(batch) <= len(part):
                raise StoreRefused(f"the service returned {len(batch)} jobs for {len(part)} ids")
            results |= zip(part, batch, strict=False)
        return [results[job_id] for job_id in ids]

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._client.release()


class RemoteStore(RemoteHandle):
    """Write handle. It creates the ids of new jobs, so that the result of a lost response can be found."""

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[InsertResult]:
        with_ids = _assign_ids(jobs)
        insert = partial(self._call, "insert", atomic=atomic, create_queues=create_queues)
        try:
            results: list[InsertResult] = insert(with_ids, on_conflict=on_conflict)
            return results
        except (RequestNotSent, StoreBusy):
            raise  # nothing has happened
        except StoreUnavailable as exc:
            ours = {job.id for job, given in zip(with_ids, jobs, strict=True) if given.id is None and job.id}
            if len(ours) < len(jobs):
                raise  # another job may have the id that the caller gave
            lost = exc
        return self._retry_insert(insert, with_ids, on_conflict, lost)

    def _retry_insert(
        self,
        insert: Callable[..., list[InsertResult]],
        jobs: Sequence[NewJob],
        on_conflict: OnConflict,
        lost: StoreUnavailable,
    ) -> list[InsertResult]:
        """Repeat an insert that may have been executed.

        A created id can be taken by the first attempt alone. If the first one arrives after this one, it is
        refused itself."""
        try:
            results = insert(jobs, on_conflict="raise" if on_conflict == "raise" else "ignore")
        except StoreUnavailable:
            raise lost from None
        except ForebayError as exc:
            # Refused, perhaps because the first attempt has filled the queue or holds the key.
            results = [InsertResult(id=None, is_new=False, error=exc)] * len(jobs)
            marked = self._mark_ours_new(jobs, results)
            if all(result.is_new for result in marked):
                return marked
            if any(result.is_new for result in marked):
                raise lost from exc  # keys of the rest are taken, perhaps by other jobs
            if isinstance(lost, RequestTimedOut):
                raise lost from exc  # the first attempt may still be executed
            raise
        return self._mark_ours_new(jobs, results)

    def _mark_ours_new(self, jobs: Sequence[NewJob], results: Sequence[InsertResult]) -> list[InsertResult]:
        """Mark results of this call's jobs as new, whatever the second attempt returned."""
        refused = [
            job.id for job, result in zip(jobs, results, strict=True) if result.error is not None and job.id
        ]
        stored = {job.id: job for job in self.jobs(refused) if job is not None} if refused else {}
        marked = []
        for job, result in zip(jobs, results, strict=True):
            if job.id in stored:
                marked.append(InsertResult(id=job.id, is_new=True, state=stored[job.id].state))
            else:
                marked.append(replace(result, is_new=True) if result.id == job.id else result)
        return marked

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        cleaned = [_clean_update(update) for update in updates]
        response: SettleAndClaimResult = self._call(
            "settle_and_claim", worker, settlements, claims, room, known, cleaned
        )
        return response


def _clean_update(update: ProgressUpdate) -> ProgressUpdate:
    """Clean an update so that it can be encoded: a task's text must not cost the worker its settlements."""
    progress = update.progress and replace(update.progress, message=clean_text(update.progress.message))
    return replace(
        update,
        progress=progress,
        lines=tuple(replace(line, text=clean_text(line.text)) for line in update.lines),
    )


def _assign_ids(jobs: Sequence[NewJob]) -> list[NewJob]:
    missing = iter(create_ids(new_id, sum(job.id is None for job in jobs)))
    return [replace(job, id=next(missing)) if job.id is None else job for job in jobs]
