"""Sentinel jobs: proof that a batch of a move was imported, even if its jobs were pruned since.

A mover may be killed between `import_jobs` and the record of the copied ids. When it is started again, it
finds its jobs in the new store. In a queue with a short retention they may have run and been pruned by then.
A job that is missing there was either never imported, and must be copied, or is done, and must not be.

`import_jobs` is one transaction. So a batch includes a sentinel: a job that is due in ten years and that no
retention prunes. An intent in the old store, written before, names the sentinel and the ids of the batch:

1. Write the intent.
2. Import the sentinel and the batch.
3. Record the ids as copied.
4. Delete the sentinel.
5. Drop the intent.

A mover that finds an intent reads the sentinel. If it exists, the batch was imported, and all its ids are
recorded. If not, the batch was never imported, or its ids are recorded already: step 4 comes after step 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.domain.store_move import JobExport
from forebay.domain.stored_document import Document
from forebay.payload.codec import encode_call
from forebay.payload.store_move_records import CopiedIds
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_id

KIND: Final = "moving"
TASK: Final = "forebay.move"
_FAR_MS: Final = 10 * 365 * 86_400_000


class SentinelJobs:
    """The sentinel jobs of one move. `record_copied` records ids as copied."""

    def __init__(
        self,
        old: tuple[Store, Reader],
        new: tuple[Store, Reader],
        token: str,
        record_copied: Callable[[Iterable[str]], None],
    ) -> None:
        self._old, self._old_reader = old
        self._new, self._new_reader = new
        self._token = token
        self._record_copied = record_copied

    def import_batch(self, exports: Sequence[JobExport], copied: CopiedIds, actor: str) -> int:
        """Import a batch into the new store; return how many jobs were new there.

        Only live jobs run, and only a queue that the move has not created prunes jobs before the end of the
        move. Other batches need no sentinel.
        """
        ids = [export.job.id for export in exports]
        jobs = (export.job for export in exports)
        template = next(
            (job for job in jobs if not job.is_final and f"queue {job.queue}" not in copied), None
        )
        if template is None:
            return sum(self._new.import_jobs(exports))
        sentinel = _build_sentinel(template, self._new_reader.now())
        name = f"{self._token}-{sentinel.id}"
        body = msgspec.json.encode(ids).decode()
        self._old.save_document(Document(kind=KIND, name=name, body=body))
        fresh = self._new.import_jobs([JobExport(job=sentinel), *exports])[1:]
        self._record_copied(ids)
        self._drop_sentinel(name, sentinel.id, actor)
        return sum(fresh)

    def finish_pending(self, actor: str) -> None:
        """Finish the batches that a killed mover has left behind."""
        for document in self._old_reader.documents(KIND):
            token, _, sentinel = document.name.rpartition("-")
            if token != self._token:
                continue
            if self._new_reader.job_states([JobId(sentinel)])[0] is not None:
                self._record_copied(msgspec.json.decode(document.body, type=list[str]))
            self._drop_sentinel(document.name, JobId(sentinel), actor)

    def _drop_sentinel(self, name: str, sentinel: JobId, actor: str) -> None:
        self._new.delete([sentinel], actor=actor)
        self._old.drop_document(KIND, name)


def _build_sentinel(template: Job, now: int) -> Job:
    return replace(
        template,
        id=JobId(new_id()),
        task=TASK,
        payload=encode_call((), {}),
        state=JobState.SCHEDULED,
        attempt=0,
        failures=0,
        crashes=0,
        created_at=now,
        updated_at=now,
        ready_at=now + _FAR_MS,
        run_at=now + _FAR_MS,
        worker=None,
        started_at=None,
        deadline_at=None,
        expires_at=None,
        unique_key=None,
        idempotency_key=None,
        metadata={},
        tags=(),
        correlation_id=None,
        parent_id=None,
        cancel_reason=None,
        errors=(),
        limit_keys={},
        sequence=None,
    )
