"""Protocols of the store contract to move jobs with their history between stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.job import JobId
from forebay.domain.store_move import JobExport


class JobImportStore(Protocol):
    """Write side of job import."""

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        """Import jobs of another store, in the order given; return whether each was new. A job whose id
        exists here stays as it is, so a repeated import is safe. Parents come before children.

        A job keeps its id and all other values of its `JobExport`, and gets a seq, a rank and a lane of this
        store. A running one raises IllegalTransition. Length, rates and state of its queue do not matter, and
        an unknown queue is created with default settings. A live job comes last in its sequence, and is
        blocked if its edges or its sequence block it here. Edges are stored as given, except open ones, which
        follow their parents; a parent that is not here counts as completed. Keys are taken where they are
        free; a live job whose unique key is taken comes without it, with a COMMENT event. The end of a final
        job is added to the dependency outbox, as every end is.
        """
        ...


class JobExportReader(Protocol):
    """Read side of job export."""

    def export_jobs(self, ids: Sequence[JobId]) -> list[JobExport | None]:
        """Return these jobs with history, progress and edges, in the order given; None for unknown ids."""
        ...
