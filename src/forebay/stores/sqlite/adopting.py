"""Jobs of another store, taken in with all that is known of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from forebay.domain.job import Job
from forebay.domain.lifecycle import JobState
from forebay.domain.moving import Whole, waiting_state
from forebay.domain.note import MAX_STEPS
from forebay.domain.share import SHARE
from forebay.domain.workflow import Aftermath
from forebay.stores.adopting import attempt_values, edges_as_they_stand, job_values
from forebay.stores.moving import GathersWholes
from forebay.stores.rows import Row, line_text, progress_text
from forebay.stores.sqlite.inserting import leave_to_old
from forebay.stores.sqlite.sharing import join
from forebay.stores.sqlite.transaction import Transaction

T = TypeVar("T")


class SqliteAdopting(ABC):
    """The part of a handle to write that takes in jobs of another store."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, durable: bool = False, moves: bool = True) -> T: ...

    def adopt(self, jobs: Sequence[Whole]) -> list[bool]:
        def adopt(tx: Transaction) -> list[bool]:
            new = [_adopted(tx, whole) for whole in jobs]
            tx.counted_all()  # each is, and whatever came before them
            return new

        # The other store may let go of them as soon as this is answered.
        return self._write(adopt, durable=True)


class ShowsSqliteWholes(GathersWholes):
    """The part of a handle to look that shows jobs whole."""

    @abstractmethod
    def _looked(self, name: str, values: dict[str, object]) -> list[Row]: ...

    def _once_until(self, job: Job) -> int | None:
        values: dict[str, object] = {"queue": job.queue, "key": job.once_key, "job_id": job.id}
        return next((until for (until,) in self._looked("once_until", values)), None)


def _adopted(tx: Transaction, whole: Whole) -> bool:
    whole.check()
    job = whole.job
    if tx.find(job.id) is not None:
        return False
    leave_to_old(tx, job.id)
    tx.existing_queue(job.queue)
    if job.unique_key is not None and whole.takes_key:
        holder = tx.key_holder(job.queue, "unique", job.unique_key)
        if holder is None:
            tx.take_key(job.queue, "unique", job.unique_key, job.id, None)
        else:
            whole = whole.without_key(holder)
    if job.once_key is not None and whole.once_until is not None and whole.once_until > tx.now:
        tx.take_key(job.queue, "once", job.once_key, job.id, whole.once_until)
    unmet = _keep_edges(tx, whole)
    seq = tx.next_seq()
    (_end if job.is_final else _wait)(tx, whole.job, seq, unmet)
    _keep_history(tx, whole, seq)
    return True


def _keep_edges(tx: Transaction, whole: Whole) -> int:
    """Write the edges to the parents of a job; how many of them block it."""
    edges = edges_as_they_stand(whole.edges, tx.states(edge.parent for edge in whole.edges))
    for edge in edges.all:
        row: list[object] = [edge.child, edge.number, edge.parent]
        tx.run_rows("edges_add", (edge.on_failure.value, edge.state.value), row, len(row))
        tx.now_has_edges()
    for parent, aftermath in edges.ended:
        tx.list_aftermath([parent], aftermath)
    return edges.unmet


def _wait(tx: Transaction, job: Job, seq: int, unmet: int) -> None:
    is_behind = False
    if job.sequence is not None:
        is_behind = tx.is_after_others(job.sequence)
        tx.join_sequence(job.sequence, job.id)
    state = waiting_state(job, tx.now, is_blocked=is_behind or unmet > 0)
    is_pending = state is JobState.PENDING
    where = tx.place(job.queue, job.ready_at, job.priority, job.failures, job.deadline_at)
    values = {
        "seq": seq,
        "state": state.value,
        "rank": where.rank,
        "capped": where.capped and is_pending,
        "rescore_at": where.rescore_at if is_pending else None,
        "unmet": unmet,
    }
    tx.run("adopt_live", {**job_values(job), **values})
    tx.count(job.queue, state, 1)
    tx.has_news = True
    if is_pending:
        join(tx, job.queue, job.limit_keys.get(SHARE), [seq])


def _end(tx: Transaction, job: Job, seq: int, _: int) -> None:
    table = "dead" if job.state is JobState.DEAD else "finished"
    tx.run(f"adopt_{table}", {**job_values(job), "seq": seq})
    tx.count(job.queue, job.state, 1)
    tx.list_aftermath([job.id], Aftermath(job.state.value))


def _keep_history(tx: Transaction, whole: Whole, seq: int) -> None:
    for attempt in whole.attempts:
        tx.run("attempt_add", attempt_values(attempt))
    notes = whole.notes
    if notes.progress is not None:
        at = {"attempt": notes.progress.attempt, "at": notes.progress.at}
        tx.run("note_progress", {"seq": seq, **at, "body": progress_text(notes.progress)})
    for line in notes.lines:
        said = {"attempt": line.attempt, "at": line.at, "place": line.place, "body": line_text(line)}
        tx.run("note_line", {"seq": seq, **said})
    for step in notes.steps:
        done = {"name": step.name, "attempt": step.attempt, "at": step.at, "body": step.result}
        tx.run("note_step", {"seq": seq, **done, "most": MAX_STEPS})
    tx.record_all(whole.events)
