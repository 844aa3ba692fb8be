"""Slots of a worker: the leases that it holds, which of them run, and the free slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forebay.domain.job import JobId
from forebay.domain.lease import Lease
from forebay.worker.assigned_job import Assignment, ExecutorKind
from forebay.worker.lease_table import LeaseTable


class Slots:
    """All leases of one worker. Changed by the coordinator alone, read by the renewal too.

    The key is the lease and not the job. A worker that lost a lease may claim the next attempt at the same
    job while the lost one still runs. Each has a slot.

    With a lease table, each lease has a row there while it is held: see `worker.lease_table`.

    `abandoned` are attempts that were abandoned and whose code still runs. Such an attempt has no lease, and
    its slot is free from the moment at which another thread has replaced its own.
    """

    def __init__(self, threads: int, coroutines: int = 0, isolated: int = 0) -> None:
        self.sizes: Mapping[ExecutorKind, int] = {
            ExecutorKind.CALLS: threads,
            ExecutorKind.COROUTINES: coroutines,
            ExecutorKind.ISOLATED: isolated,
        }
        self._assignments: dict[Lease, Assignment] = {}
        self._free = dict(self.sizes)
        self._abandoned: tuple[Assignment, ...] = ()
        self.lease_table: LeaseTable | None = None
        self.completed = 0
        self.failed = 0
        self.recent: tuple[JobId, ...] = ()  # the latest jobs that have run here, for other threads

    def add(self, assignments: Iterable[Assignment]) -> None:
        """Hold these leases. None of them is held already: see `find_duplicates`."""
        for assignment in assignments:
            self._assignments[assignment.lease] = assignment
            self._free[assignment.kind] -= 1
            assignment.slots_taken = 1
            if self.lease_table is not None:
                assignment.lease_row = self.lease_table.write(assignment.job, assignment.leased_at)

    def find_duplicates(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        """Return those of the new assignments whose leases other assignments hold here."""
        held = self._assignments
        return [assignment for assignment in assignments if assignment.lease in held]

    def renew(self, reclaimed: Assignment, leased_at: float) -> Assignment:
        """Record that the store has given a lease a second time: the assignment that has it goes on with
        it."""
        assignment = self._assignments[reclaimed.lease]
        assignment.job = reclaimed.job
        assignment.mark_renewed(leased_at)
        if assignment.lease_row is not None:
            assignment.lease_row.renew(leased_at)
        return assignment

    def end(self, assignment: Assignment) -> None:
        """Release a lease. Each assignment gives back its own slot and its own row, once."""
        if self._assignments.get(assignment.lease) is assignment:
            del self._assignments[assignment.lease]
        if assignment.abandoned_at is None:
            self.vacate(assignment)
        row, assignment.lease_row = assignment.lease_row, None
        if row is not None:
            row.free()

    def abandon(self, assignment: Assignment, now: float) -> None:
        """Record that the attempt was abandoned while its code still runs."""
        assignment.abandoned_at = now
        self._abandoned = (*self._abandoned, assignment)

    def release_abandoned(self, assignment: Assignment) -> None:
        """Release the slot of an abandoned attempt whose code has ended."""
        self._abandoned = tuple(one for one in self._abandoned if one is not assignment)
        self.vacate(assignment)

    def occupy(self, assignment: Assignment) -> None:
        """Take all slots of this kind while this code runs: no other event loop can be started."""
        added = self.sizes[assignment.kind] - assignment.slots_taken
        self._free[assignment.kind] -= added
        assignment.slots_taken += added

    def vacate(self, assignment: Assignment) -> None:
        """Free the slot, whatever happens to the lease; doing this twice is fine."""
        self._free[assignment.kind] += assignment.slots_taken
        assignment.slots_taken = 0

    @property
    def abandoned(self) -> tuple[Assignment, ...]:
        """Abandoned attempts, as of the coordinator's last check."""
        return self._abandoned

    @property
    def abandoned_now(self) -> int:
        """Number of abandoned calls that still run. From any thread."""
        return sum(assignment.ended_at is None for assignment in self._abandoned)

    def free(self, kind: ExecutorKind) -> int:
        """Return how many more jobs could run at once; below 0 when some wait."""
        return self._free[kind]

    def __iter__(self) -> Iterator[Assignment]:
        return iter(list(self._assignments.values()))

    def __len__(self) -> int:
        return len(self._assignments)

    def leases(self) -> list[Lease]:
        return [assignment.lease for assignment in self]
