"""Sequential jobs: the first job of a sequence may run; the others are blocked until it is final or removed.

A transaction that joins or leaves a sequence holds its lock from before it reads it until it commits. So
positions are given in the order of commits. An insert that runs while the previous job ends is either seen by
the transaction that releases the next job, or sees an empty sequence. Ends take this lock before those of
edges and blocked jobs. Revivals and positions assigned during propagation take it later: after a deadlock the
server ends one of the two, and its transaction is retried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import Job, JobId, NewJob
from forebay.stores.postgres.dependency_edges import CHECK
from forebay.stores.postgres.transaction import Transaction


class SequenceWriter:
    """Sequences of one insert.

    A caller transaction takes no lock, since it may stay open for any time. Its jobs are blocked, and are
    appended to their sequences when their outbox entry is processed.
    """

    def __init__(self, tx: Transaction, jobs: Iterable[NewJob], *, is_caller_tx: bool) -> None:
        self._tx = tx
        self._is_caller_tx = is_caller_tx
        self._members: list[tuple[str, JobId]] = []
        names = {job.sequence for job in jobs if job.sequence is not None}
        given = [] if is_caller_tx else [job.id for job in jobs if job.id is not None]
        left_behind = _find_left_behind(tx, given)
        self._occupied = set(names if is_caller_tx else _lock_sequences(tx, names | left_behind))
        if left_behind:
            _rename(tx, given)

    def must_wait(self, name: str | None) -> bool:
        """Return whether a job appended to a sequence now comes after other jobs."""
        return name in self._occupied

    def join(self, name: str, job_id: JobId) -> None:
        self._occupied.add(name)
        self._members.append((name, job_id))

    def flush(self) -> None:
        """Store the collected members."""
        if self._members and self._is_caller_tx:
            self._tx.run("sequences_add_unordered", _columns(self._members))
            self._tx.add_to_outbox([(job_id, CHECK) for _, job_id in self._members])
        elif self._members:
            self._tx.run("sequences_add", _columns(self._members))


def _find_left_behind(tx: Transaction, ids: Sequence[JobId]) -> set[str]:
    """Return the sequences that still have given ids, of old jobs whose ends are not propagated yet."""
    return {name for (name,) in tx.all("sequences_of", {"ids": list(ids)})} if ids else set()


def _rename(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Give removed jobs unused ids in their sequences, until their ends are propagated.

    By their own ids they would be taken for the new jobs with these ids, and stay for ever.
    """
    new_ids = [tx.new_id() for _ in ids]
    renamed = tx.all("sequences_rename", {"ids": list(ids), "new_ids": new_ids})
    tx.add_to_outbox([(job_id, DependencyEvent.DELETED.value) for (job_id,) in renamed])


def rejoin(tx: Transaction, jobs: Iterable[Job]) -> set[JobId]:
    """Append revived jobs to their sequences; return those that come after others.

    A job of a caller transaction that has no position yet gets it here.
    """
    joined = [(job.sequence, job.id) for job in jobs if job.sequence is not None]
    if not joined:
        return set()
    ids = [job_id for _, job_id in joined]
    _lock_sequences(tx, {name for name, _ in joined})
    tx.run("sequences_assign", {"ids": ids})
    tx.run("sequences_add", _columns(joined))
    return {job_id for (job_id,) in tx.all("sequences_waiting", {"ids": ids})}


def assign_positions(tx: Transaction, ids: Sequence[JobId]) -> list[JobId]:
    """Give jobs of a caller transaction their positions; return those that are first of their sequences.

    A job that had its position already was returned when it got it.
    """
    names = [name for (name,) in tx.all("sequences_unassigned", {"ids": list(ids)})]
    if not names:
        return []
    _lock_sequences(tx, names)
    assigned = {job_id for (job_id,) in tx.all("sequences_assign", {"ids": list(ids)})}
    return [job_id for _, _, job_id in tx.all("sequences_first", {"names": names}) if job_id in assigned]


def leave(tx: Transaction, ids: Sequence[JobId]) -> list[JobId]:
    """Remove final jobs from their sequences; return the jobs that are first there now."""
    names = [name for (name,) in tx.all("sequences_of", {"ids": list(ids)})] if ids else []
    if not names:
        return []
    _lock_sequences(tx, names)
    left: dict[str, int] = {}
    for name, position in tx.all("sequences_remove", {"ids": list(ids)}):
        if position is not None:
            left[name] = min(position, left.get(name, position))
    rows = tx.all("sequences_first", {"names": sorted(left)}) if left else []
    return [job_id for name, position, job_id in rows if position > left[name]]


def _lock_sequences(tx: Transaction, names: Collection[str]) -> list[str]:
    """Lock sequences; return those that have jobs."""
    if not names:
        return []
    tx.run("sequences_lock", {"names": sorted(names)})
    return [name for (name,) in tx.all("sequences_among", {"names": sorted(names)})]


def _columns(members: Sequence[tuple[str, JobId]]) -> dict[str, object]:
    return {"names": [name for name, _ in members], "ids": [job_id for _, job_id in members]}
