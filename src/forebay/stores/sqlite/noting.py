"""What running attempts say, kept with their jobs."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.domain.job import WorkerId
from forebay.domain.note import MAX_LINES, MAX_STEPS, Note, Notes, as_kept
from forebay.stores.protocol import Refusal
from forebay.stores.rows import json_text, line_text, progress_text
from forebay.stores.sqlite.settling import Token, relocated, token_values, why_refused
from forebay.stores.sqlite.transaction import Transaction


def keep_notes(tx: Transaction, worker: WorkerId, notes: Sequence[Note]) -> tuple[Refusal, ...]:
    """Keep what the holders of leases say; answers whose lease is not held."""
    refused: list[Refusal] = []
    for note in notes:
        token = token_values(worker, note.lease.job_id, note.lease.attempt)
        # The transaction has the write lock: a lease that is held here is held when the notes are written.
        if _is_held(tx, token) or (relocated(tx, token) and _is_held(tx, token)):
            _keep(tx, token, as_kept(note, tx.now))
        else:
            refused.append(Refusal(lease=note.lease, reason=why_refused(tx, token)))
    return tuple(refused)


def forget_notes(tx: Transaction, seqs: Sequence[int]) -> None:
    """The notes of jobs go with them."""
    if seqs and tx.one("notes_any", {}) is not None:
        tx.run("notes_remove", {"seqs": json_text(seqs)})


def _is_held(tx: Transaction, token: Token) -> bool:
    return tx.one("held", token) is not None


def _keep(tx: Transaction, token: Token, news: Notes) -> None:
    common = {"seq": token["seq"], "attempt": token["attempt"], "at": tx.now}
    if news.progress is not None:
        tx.run("note_progress", {**common, "body": progress_text(news.progress)})
    for line in news.lines:
        tx.run("note_line", {**common, "at": line.at, "place": line.place, "body": line_text(line)})
    if news.lines:
        tx.run("note_lines_trim", {"seq": token["seq"], "most": MAX_LINES})
    for step in news.steps:
        tx.run("note_step", {**common, "name": step.name, "body": step.result, "most": MAX_STEPS})
