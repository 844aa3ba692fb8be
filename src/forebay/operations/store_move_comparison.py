"""Comparison of the two stores of a move, job by job."""

from __future__ import annotations

from typing import Final

from forebay.domain.job import Job, JobId
from forebay.domain.store_move import MoveComparison, fingerprint
from forebay.errors import IllegalTransition
from forebay.operations.store_move_blob_check import BlobCheck
from forebay.payload.blob_stores import Blobs
from forebay.payload.store_move_records import CopiedIds

_CHECKSUM: Final = 1 << 64


class ComparisonBuilder:
    """Builder of a comparison. `copied` has the ids of jobs that were copied to the new store."""

    def __init__(self, copied: CopiedIds, blobs: Blobs | None) -> None:
        self._copied = copied
        self._blobs = BlobCheck(blobs)
        self._jobs = self._forgotten = self._old_sum = self._new_sum = 0
        self._missing: list[JobId] = []
        self._different: list[JobId] = []

    def add(self, old: Job, new: Job | None) -> None:
        """Compare a job of the old store with the same job of the new store, if it is there."""
        self._jobs += 1
        if new is None and old.id in self._copied:
            self._forgotten += 1
            return
        # The outcome is compared too, unless the job was revived in the new store.
        with_end = old.is_final and new is not None and new.is_final and old.updated_at == new.updated_at
        old_print = fingerprint(old, with_end=with_end)
        new_print = 0 if new is None else fingerprint(new, with_end=with_end)
        self._old_sum += old_print
        self._new_sum += new_print
        if new is None:
            self._missing.append(old.id)
            return
        if old_print != new_print or new.attempt < old.attempt:
            self._different.append(old.id)
        self._blobs.check_job(new)

    def result(self) -> MoveComparison:
        return MoveComparison(
            jobs=self._jobs,
            forgotten=self._forgotten,
            missing=tuple(self._missing),
            different=tuple(self._different),
            without_blob=tuple(self._blobs.missing),
            blobs_unchecked=self._blobs.unchecked,
            old_checksum=f"{self._old_sum % _CHECKSUM:016x}",
            new_checksum=f"{self._new_sum % _CHECKSUM:016x}",
        )


def check_agreement(comparison: MoveComparison, old: str, new: str) -> None:
    """Raise IllegalTransition unless all jobs of the old store are in the new one."""
    if comparison.without_blob:
        number = len(comparison.without_blob)
        raise IllegalTransition(
            f"the blobs of {number:,} {'job' if number == 1 else 'jobs'} are missing, "
            f"{comparison.without_blob[0]} among them, so none is taken out; restore the blobs, "
            f"or delete these jobs in {new}"
        )
    if not comparison.agrees:
        raise IllegalTransition(
            f"{len(comparison.missing):,} jobs of {old} are missing in {new} and "
            f"{len(comparison.different):,} differ there, so none is taken out"
        )
