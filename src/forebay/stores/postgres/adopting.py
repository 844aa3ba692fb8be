"""Jobs of another store, taken in with all that is known of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.moving import Whole, waiting_state
from forebay.domain.note import MAX_STEPS
from forebay.domain.share import SHARE, gate_of
from forebay.domain.workflow import Aftermath
from forebay.errors import StoreBusy
from forebay.stores.adopting import attempt_values, edges_as_they_stand, job_values
from forebay.stores.moving import GathersWholes
from forebay.stores.postgres.connection import TryAgain
from forebay.stores.postgres.edges import Old, held_or_busy
from forebay.stores.postgres.inserting import busy_key
from forebay.stores.postgres.scheduling import Looks
from forebay.stores.postgres.sequences import rejoin
from forebay.stores.postgres.sharing import come
from forebay.stores.postgres.transaction import Key, Transaction
from forebay.stores.rows import line_text, progress_text

T = TypeVar("T")


class PostgresAdopting(ABC):
    """The part of a handle to write that takes in jobs of another store."""

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T: ...

    def adopt(self, jobs: Sequence[Whole]) -> list[bool]:
        for whole in jobs:
            whole.check()
        return self._write(lambda tx: _adopt(tx, jobs)) if jobs else []


class ShowsPostgresWholes(GathersWholes):
    """The part of a handle to look that shows jobs whole."""

    @abstractmethod
    def _looking(self) -> AbstractContextManager[Looks]: ...

    def _once_until(self, job: Job) -> int | None:
        values = {"queue": job.queue, "key": job.once_key, "job_id": job.id}
        with self._looking() as look:
            return next((until for (until,) in look.all("once_until", values)), None)


def _adopt(tx: Transaction, wholes: Sequence[Whole]) -> list[bool]:
    given = list(dict.fromkeys(whole.job.id for whole in wholes))
    seqs = dict(zip(given, (seq for (seq,) in tx.all("seqs", {"jobs": len(given)})), strict=True))
    new = _held(tx, seqs)
    for name in sorted({whole.job.queue for whole in wholes}):
        tx.existing_queue(name)
    answers = []
    for whole in wholes:
        answers.append(whole.job.id in new)
        if answers[-1]:
            new.discard(whole.job.id)
            _take_in(tx, whole, seqs[whole.job.id])
    return answers


def _held(tx: Transaction, seqs: dict[JobId, int]) -> set[JobId]:
    """Which of these ids are nobody's, and ours until the transaction ends."""
    values = {"ids": list(seqs), "seqs": list(seqs.values())}
    held = [job_id for (job_id,) in tx.all("adopt_hold", values)]
    tx.run("adopt_let_go", {"ids": held})
    old = Old(tx, sorted(held))
    # A later statement than the one that may have waited: it sees what others have ended meanwhile.
    ended = {row[0] for row in tx.all("ended_ids", {"ids": sorted(held)})}
    new = set(held) - ended
    old.leave(sorted(new))
    return new


def _take_in(tx: Transaction, whole: Whole, seq: int) -> None:
    job = whole.job
    if job.unique_key is not None and whole.takes_key:
        key = Key(job.queue, "unique", job.unique_key)
        holder = tx.key_holders([key]).get(key)
        if holder is not None:
            whole = whole.without_key(holder)
        elif key in tx.busy_keys:
            raise StoreBusy(busy_key(key))
        elif not tx.take_keys([(key, job.id, None)]):
            raise TryAgain
    if job.once_key is not None and whole.once_until is not None and whole.once_until > tx.now:
        # One that somebody else holds stays theirs.
        tx.take_keys([(Key(job.queue, "once", job.once_key), job.id, whole.once_until)])
    unmet = _keep_edges(tx, whole)
    (_end if job.is_final else _wait)(tx, whole.job, seq, unmet)
    _keep_history(tx, whole)


def _keep_edges(tx: Transaction, whole: Whole) -> int:
    """Write the edges to the parents of a job; how many of them block it. The parents are held, as those of a
    new job are: one that we find alive ends after us, and so finds the edge."""
    if not whole.edges:
        return 0
    edges = edges_as_they_stand(whole.edges, held_or_busy(tx, {edge.parent for edge in whole.edges}))
    for edge in edges.all:
        alike = {"on_failure": edge.on_failure.value, "state": edge.state.value}
        row = {"children": [edge.child], "numbers": [edge.number], "parents": [edge.parent]}
        tx.run("edges_add", {**alike, **row})
    tx.list_aftermaths([(parent, aftermath.value) for parent, aftermath in edges.ended])
    return edges.unmet


def _wait(tx: Transaction, job: Job, seq: int, unmet: int) -> None:
    unmet += len(rejoin(tx, [job]))
    state = waiting_state(job, tx.now, is_blocked=unmet > 0)
    is_pending = state is JobState.PENDING
    where = tx.place(job.queue, job.ready_at, job.priority, job.failures, job.deadline_at)
    values = {
        "seq": seq,
        "state": state.value,
        "gate": gate_of(job.limit_keys),
        "rank": where.rank,
        "capped": where.capped and is_pending,
        "rescore_at": where.rescore_at if is_pending else None,
        "unmet": unmet,
    }
    tx.run("adopt_live", {**job_values(job), **values})
    tx.count(job.queue, state, 1)
    tx.has_news = tx.has_new_jobs = True
    if is_pending:
        come(tx, [(job.queue, job.limit_keys.get(SHARE))])


def _end(tx: Transaction, job: Job, seq: int, _: int) -> None:
    table = "dead" if job.state is JobState.DEAD else "finished"
    tx.run(f"adopt_{table}", {**job_values(job), "seq": seq})
    tx.count(job.queue, job.state, 1)
    tx.list_if_concerned([job.id], Aftermath(job.state.value))


def _keep_history(tx: Transaction, whole: Whole) -> None:
    job_id, notes = whole.job.id, whole.notes
    for attempt in whole.attempts:
        tx.run("attempt_add", attempt_values(attempt))
    if notes.progress is not None:
        at = {"attempt": notes.progress.attempt, "at": notes.progress.at}
        tx.run("note_progress", {"job_id": job_id, **at, "body": progress_text(notes.progress).encode()})
    for line in notes.lines:
        said = {"attempt": line.attempt, "at": line.at, "place": line.place, "body": line_text(line).encode()}
        tx.run("note_line", {"job_id": job_id, **said})
    for step in notes.steps:
        done = {"name": step.name, "attempt": step.attempt, "at": step.at, "body": step.result}
        tx.run("note_step", {"job_id": job_id, **done, "most": MAX_STEPS})
    tx.record_all(whole.events)
