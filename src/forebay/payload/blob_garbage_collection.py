"""Garbage collection of blobs: those without a job in their store are removed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from forebay.domain.job import DAY_MS
from forebay.payload.blob_stores import ORPHAN_AGE_MS, Blobs, blob_name
from forebay.payload.encryption_and_offload import PayloadPipeline
from forebay.payload.store_move_records import AFTER_MOVE_MS, keeps_blobs
from forebay.stores.contract.reader import Reader

MAX_PAGES: Final = 10  # pages of blobs per collection: the worker that runs it has jobs too

logger: logging.Logger = logging.getLogger(__name__)


class BlobCollector:
    """Removes blobs without a job, page by page. It begins where its last collection has ended."""

    def __init__(self, pipeline: PayloadPipeline, reader: Callable[[], Reader]) -> None:
        self._pipeline = pipeline
        self._new_reader = reader
        self._scanned_to = ""
        self._has_logged = False

    def collect(self, blobs: Blobs) -> None:
        """Remove blobs without a job in this store."""
        for _ in range(MAX_PAGES):
            orphans = self._find_orphans(blobs)
            self.remove(orphans)
            if not orphans:
                break

    def keeps_blobs(self) -> bool:
        """Return whether blobs stay because a move goes on, or has just ended."""
        reader = self._new_reader()
        try:
            return keeps_blobs(reader)
        finally:
            reader.close()

    def remove(self, names: Iterable[str]) -> None:
        """Remove these blobs if that is possible now."""
        unused = list(names)
        if self._pipeline.blobs is None or not unused:
            return
        try:
            self._pipeline.blobs.delete(unused)
        except Exception as exc:
            # No error for the caller, and no sign that the store is unavailable: a later collection finds
            # them again.
            logger.warning("blobs of deleted jobs stay for now: %s", exc)

    def _find_orphans(self, blobs: Blobs) -> list[str]:
        """Return the blobs of the next page that have no job in this store."""
        try:
            texts = blobs.names(self._pipeline.store_id(), after=self._scanned_to)
        except Exception as exc:  # a user's own blob store may raise anything
            logger.warning("blobs cannot be listed: %s", exc)
            return []
        self._scanned_to = texts[-1] if texts else ""
        names = [name for text in texts if (name := blob_name(text)) is not None]
        reader = self._new_reader()
        try:
            # The clock first: a blob that is old by it has its row, or will never have one.
            now, ids = reader.now(), list(dict.fromkeys(name.job for name in names))
            jobs = reader.jobs(ids, with_payload=False)
            deleted = {job_id for job_id, job in zip(ids, jobs, strict=True) if job is None}
            # After the jobs were read. A move is announced in the new store before that gets the blob id of
            # the old one, so the announcement is visible. If the move has ended since the jobs were read, its
            # end is younger than `AFTER_MOVE_MS`. The marker of the old store is written before the first job
            # is copied: without a marker, no other store refers to these blobs.
            if deleted and keeps_blobs(reader):
                self._log_once()
                return []
        finally:
            reader.close()
        return [str(name) for name in names if name.job in deleted and name.written_at < now - ORPHAN_AGE_MS]

    def _log_once(self) -> None:
        if not self._has_logged:
            self._has_logged = True
            logger.info(
                "blobs without a job are not removed while this store is moved, and for %s days after",
                AFTER_MOVE_MS // DAY_MS,
            )
