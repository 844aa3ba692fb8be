"""The part of the seam by which jobs go from one store to another, with all that is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forebay.domain.job import JobId
from forebay.domain.store_move import JobExport


class JobImportStore(Protocol):
    """The write side."""

    def import_jobs(self, exports: Sequence[JobExport]) -> list[bool]:
        """Take in jobs of another store, in the order given; whether each was new. One whose id is here
        already stays as it is: so what was offered once can be offered again. Parents come before children.

        A job keeps its id and all that `Whole` holds, and gets a seq, a rank and a gate of this store. A
        running one raises IllegalTransition. Neither the length nor the rates nor the state of its queue
        matter, and one that nobody has made is made with default settings. A live job comes last in its
        sequence, and is blocked by what blocks it here: edges are as given, but for open ones, which follow
        their parents; a parent that is not here counts as completed. Keys are taken where nobody has them;
        a live job whose unique key another one has comes without it, with a NOTE event. What a final job
        means for those here that wait for it is put on the list, as with every end."""
        ...


class JobExportReader(Protocol):
    """The read side."""

    def export_jobs(self, ids: Sequence[JobId]) -> list[JobExport | None]:
        """These jobs with all that is known of them, in the order asked; None for unknown ids."""
        ...
