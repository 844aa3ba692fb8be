"""Witness jobs: proof that a batch of a move has come to the new store, also if its jobs are gone since.

A mover that is killed between `adopt` and the record of what was copied finds its jobs in the new store when
it is begun again. In a queue with a short retention they may have run and been pruned by then. A job that is
missing there has either never come, and must be copied, or has been done, and must not be.

`adopt` is one transaction. So a batch takes along a witness: a job that is due in ten years and that no
retention removes. An intent in the old store, written before, names the witness and the ids of the batch:

1. Write the intent.
2. Adopt the witness and the batch.
3. Record the ids as copied.
4. Delete the witness.
5. Drop the intent.

A mover that finds an intent looks for the witness. If it is there the batch has come, so all ids of the batch
are recorded. If not, the batch has never come, or its ids are recorded already: step 4 comes after step 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.document import Document
from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.store_move import JobExport
from forebay.payload.codec import encode_call
from forebay.payload.store_move_log import CopiedIds
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.ids import new_id

KIND: Final = "moving"
TASK: Final = "forebay.move"
_FAR_MS: Final = 10 * 365 * 86_400_000


class SentinelJobs:
    """The witnesses of one move. `note` records ids as copied."""

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
        """Bring a batch to the new store; how many jobs were new there. Only live jobs run, and only a queue
        that the move has not made forgets jobs before its end: other batches need no witness."""
        ids = [whole.job.id for whole in exports]
        jobs = (whole.job for whole in exports)
        like = next((job for job in jobs if not job.is_final and f"queue {job.queue}" not in copied), None)
        if like is None:
            return sum(self._new.import_jobs(exports))
        witness = _build_sentinel(like, self._new_reader.now())
        name = f"{self._token}-{witness.id}"
        body = msgspec.json.encode(ids).decode()
        self._old.save_document(Document(kind=KIND, name=name, body=body))
        fresh = self._new.import_jobs([JobExport(job=witness), *exports])[1:]
        self._record_copied(ids)
        self._drop_sentinel(name, witness.id, actor)
        return sum(fresh)

    def finish_pending(self, actor: str) -> None:
        """Finish what a killed mover has left behind."""
        for document in self._old_reader.documents(KIND):
            token, _, witness = document.name.rpartition("-")
            if token != self._token:
                continue
            if self._new_reader.job_states([JobId(witness)])[0] is not None:
                self._record_copied(msgspec.json.decode(document.body, type=list[str]))
            self._drop_sentinel(document.name, JobId(witness), actor)

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
