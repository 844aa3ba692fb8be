"""What running attempts say, kept with their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import MAX_LINES, MAX_STEPS, Note, Notes, as_kept
from forebay.stores.postgres.settling import lock_leases, why_refused
from forebay.stores.postgres.transaction import Transaction
from forebay.stores.protocol import Refusal
from forebay.stores.rows import line_text, progress_text


def keep_notes(tx: Transaction, worker: WorkerId, notes: Sequence[Note]) -> tuple[Refusal, ...]:
    """Keep what the holders of leases say; answers whose lease is not held.

    The leases are locked, so one that is held here is held when the notes are written.
    """
    held = lock_leases(tx, (note.lease.job_id for note in notes))
    refused: list[Refusal] = []
    for note in notes:
        lease = held.get(note.lease.job_id)
        if lease is not None and (lease.attempt, lease.worker) == (note.lease.attempt, worker):
            _keep(tx, note.lease, as_kept(note, tx.now))
        else:
            refused.append(Refusal(lease=note.lease, reason=why_refused(tx, worker, note.lease)))
    return tuple(refused)


def _keep(tx: Transaction, lease: Lease, news: Notes) -> None:
    common = {"job_id": lease.job_id, "attempt": lease.attempt, "at": tx.now}
    if news.progress is not None:
        tx.run("note_progress", {**common, "body": progress_text(news.progress).encode()})
    for line in news.lines:
        body = line_text(line).encode()
        tx.run("note_line", {**common, "at": line.at, "place": line.place, "body": body})
    if news.lines:
        tx.run("note_lines_trim", {"job_id": lease.job_id, "most": MAX_LINES})
    for step in news.steps:
        tx.run("note_step", {**common, "name": step.name, "body": step.result, "most": MAX_STEPS})
