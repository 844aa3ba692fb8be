"""Check of the blobs of moved jobs."""

from __future__ import annotations

from forebay.domain.job import Job, JobId
from forebay.payload.blob_stores import Blobs, blob_name
from forebay.payload.encryption_and_offload import blob_of


class BlobCheck:
    """Checks that the blobs of jobs exist, and counts the jobs whose blobs it cannot check."""

    def __init__(self, blobs: Blobs | None) -> None:
        self._blobs = blobs
        self._names: dict[str, set[str]] = {}  # by the id of their store
        self.unchecked: int = 0
        self.missing: list[JobId] = []

    def check_job(self, job: Job) -> None:
        """Check the blobs of a job of the new store."""
        names = [name for data in (job.payload, job.result) if (name := blob_of(data)) is not None]
        if not names:
            return
        if self._blobs is None:
            self.unchecked += 1
        elif not all([self._is_there(self._blobs, name) for name in names]):
            self.missing.append(job.id)

    def _is_there(self, blobs: Blobs, name: str) -> bool:
        """Return whether a blob exists. Names are listed once: one request covers 1,000 blobs, and no content
        is read. A blob that was written after the listing is read by its name."""
        parts = blob_name(name)
        if parts is None:
            return False
        if parts.store not in self._names:
            self._names[parts.store] = _list_names(blobs, parts.store)
        return name in self._names[parts.store] or blobs.get(name) is not None


def _list_names(blobs: Blobs, store: str) -> set[str]:
    names: set[str] = set()
    after = ""
    while page := blobs.names(store, after=after):
        names.update(page)
        after = page[-1]
    return names
