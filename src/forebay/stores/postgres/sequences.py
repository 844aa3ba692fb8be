"""Sequences: of the jobs of one, the first may run; the others are blocked until it is final or gone.

All who join or leave a sequence hold its lock from before they look until they commit. So numbers are given
in the order of commits; and whoever comes while the job before it ends is seen by the one who lets the next
run, or sees that there is nobody before it. Ends take this lock before those of edges and blocked jobs.
Revivals and numbers that come up while the list is worked on take it later: of two that wait for each other
the server ends one, and its transaction is made again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from forebay.domain.dependencies import DependencyEvent
from forebay.domain.job import Job, JobId, NewJob
from forebay.stores.postgres.edges import CHECK
from forebay.stores.postgres.transaction import Transaction


class SequenceWriter:
    """The sequences of one insert.

    In a caller's transaction nothing is locked: it may be open for as long as it likes. Its jobs are blocked,
    and come last in their sequences when somebody hears of the commit.
    """

    def __init__(self, tx: Transaction, jobs: Iterable[NewJob], *, is_caller_tx: bool) -> None:
        self._tx = tx
        self._is_caller_tx = is_caller_tx
        self._members: list[tuple[str, JobId]] = []
        names = {job.sequence for job in jobs if job.sequence is not None}
        brought = [] if is_caller_tx else [job.id for job in jobs if job.id is not None]
        others = _find_left_behind(tx, brought)
        self._occupied = set(names if is_caller_tx else _lock_sequences(tx, names | others))
        if others:
            _rename(tx, brought)

    def must_wait(self, name: str | None) -> bool:
        """Whether a job that comes last in a sequence now comes after others."""
        return name in self._occupied

    def join(self, name: str, job_id: JobId) -> None:
        self._occupied.add(name)
        self._members.append((name, job_id))

    def flush(self) -> None:
        """Write what has been gathered."""
        if self._members and self._is_caller_tx:
            self._tx.run("sequences_add_unordered", _columns(self._members))
            self._tx.add_to_outbox([(job_id, CHECK) for _, job_id in self._members])
        elif self._members:
            self._tx.run("sequences_add", _columns(self._members))


def _find_left_behind(tx: Transaction, ids: Sequence[JobId]) -> set[str]:
    """The sequences in which ids stand that somebody brings: those of jobs whose ends were not heard of."""
    return {name for (name,) in tx.all("sequences_of", {"ids": list(ids)})} if ids else set()


def _rename(tx: Transaction, ids: Sequence[JobId]) -> None:
    """Jobs that do not live any more stand in their sequences under ids of nobody, until the list comes to
    them. By their own ids they would be taken for the jobs that are brought now, and stay for ever."""
    fresh = [tx.new_id() for _ in ids]
    gone = tx.all("sequences_rename", {"ids": list(ids), "new_ids": fresh})
    tx.add_to_outbox([(job_id, DependencyEvent.DELETED.value) for (job_id,) in gone])


def rejoin(tx: Transaction, jobs: Iterable[Job]) -> set[JobId]:
    """Jobs that are revived come last in their sequences; those that come after others. One of a caller's
    transaction that nobody has heard of yet gets its number here."""
    joined = [(job.sequence, job.id) for job in jobs if job.sequence is not None]
    if not joined:
        return set()
    ids = [job_id for _, job_id in joined]
    _lock_sequences(tx, {name for name, _ in joined})
    tx.run("sequences_assign", {"ids": ids})
    tx.run("sequences_add", _columns(joined))
    return {job_id for (job_id,) in tx.all("sequences_waiting", {"ids": ids})}


def assign_positions(tx: Transaction, ids: Sequence[JobId]) -> list[JobId]:
    """Jobs of a caller's transaction get their turns; those that are the first of their sequences. One that
    has its turn already was told so when it got it."""
    names = [name for (name,) in tx.all("sequences_unassigned", {"ids": list(ids)})]
    if not names:
        return []
    _lock_sequences(tx, names)
    fresh = {job_id for (job_id,) in tx.all("sequences_assign", {"ids": list(ids)})}
    return [job_id for _, _, job_id in tx.all("sequences_first", {"names": names}) if job_id in fresh]


def leave(tx: Transaction, ids: Sequence[JobId]) -> list[JobId]:
    """Jobs that do not live any more are out of their sequences; which ones are the first there now."""
    names = [name for (name,) in tx.all("sequences_of", {"ids": list(ids)})] if ids else []
    if not names:
        return []
    _lock_sequences(tx, names)
    left: dict[str, int] = {}
    for name, turn in tx.all("sequences_remove", {"ids": list(ids)}):
        if turn is not None:
            left[name] = min(turn, left.get(name, turn))
    rows = tx.all("sequences_first", {"names": sorted(left)}) if left else []
    return [job_id for name, turn, job_id in rows if turn > left[name]]


def _lock_sequences(tx: Transaction, names: Collection[str]) -> list[str]:
    """Lock sequences; which of them have jobs."""
    if not names:
        return []
    tx.run("sequences_lock", {"names": sorted(names)})
    return [name for (name,) in tx.all("sequences_among", {"names": sorted(names)})]


def _columns(members: Sequence[tuple[str, JobId]]) -> dict[str, object]:
    return {"names": [name for name, _ in members], "ids": [job_id for _, job_id in members]}
