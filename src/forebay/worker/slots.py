"""Which leases this worker holds, which of them run, and how much room there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from math import inf

from forebay.app.context import JobContext
from forebay.domain.job import Job, JobId
from forebay.domain.lease import Lease, renewal_ms
from forebay.worker.lease_table import LeaseRow, LeaseTable


class ExecutorKind(IntEnum):
    """What runs a task; each kind has slots of its own."""

    CALLS = 0  # blocking tasks, on threads
    COROUTINES = 1  # on one event loop
    ISOLATED = 2  # in processes of their own, which can be killed


class Assignment:
    """One claimed job on its way through an executor.

    Three questions are decided by tickets. Taking one is one bytecode, so no lock is needed, and each is
    taken once.

    - `take`: the executor runs the job, or the coordinator hands it back.
    - `conclude`: the executor tells the outcome, or the coordinator gives the attempt up and settles it.
    - `acquire_slot`: the thread of an attempt that was given up goes on with other jobs when it comes back,
    or
      the coordinator has another thread take its place, and it ends.

    `stop` is why it shall stop, `stopped_by` is what its executor has raised in it. `abandon_at` is when it
    is given up, `abandoned_at` when it was.
    """

    __slots__ = (
        "_outcome_ownership",
        "_slot_ownership",
        "_start_ownership",
        "abandon_at",
        "abandoned_at",
        "claimed_at",
        "context",
        "ended_at",
        "is_stuck",
        "job",
        "kind",
        "lease",
        "lease_row",
        "leased_at",
        "renew_at",
        "slot",
        "slots_taken",
        "start_by",
        "started_at",
        "stop_reason",
        "stop_requested_at",
        "stop_requests",
        "stopped_by",
    )

    def __init__(
        self,
        job: Job,
        claimed_at: float,
        *,
        leased_at: float | None = None,
        kind: ExecutorKind = ExecutorKind.CALLS,
    ) -> None:
        self.job: Job = job
        self.lease: Lease = Lease(job.id, job.attempt)
        self.context: JobContext = JobContext(job)
        self.claimed_at: float = claimed_at
        self.kind: ExecutorKind = kind
        self.renew_at: float = 0.0
        self.start_by: float = 0.0
        self.leased_at: float = claimed_at if leased_at is None else leased_at
        self.mark_renewed(self.leased_at)
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.lease_row: LeaseRow | None = None  # where a supervisor reads of it
        self.slot: object = None  # where its executor runs it
        self.stop_reason: BaseException | None = None
        self.stop_requested_at: float = 0.0
        self.stop_requests: int = 0
        self.stopped_by: BaseException | None = None
        self.is_stuck: bool = False
        self.abandon_at: float = inf
        self.abandoned_at: float | None = None
        self.slots_taken: int = 0
        self._start_ownership = [None]
        self._outcome_ownership = [None]
        self._slot_ownership: list[None] | None = None  # few are ever given up

    def acquire(self) -> bool:
        """Whether the job is the caller's now, to run it or to hand it back."""
        try:
            self._start_ownership.pop()
        except IndexError:
            return False
        return True

    def conclude(self) -> bool:
        """Whether the outcome is the caller's to tell. False for an attempt that was given up, or has one."""
        try:
            self._outcome_ownership.pop()
        except IndexError:
            return False
        return True

    def give_up(self, reason: BaseException) -> bool:
        """Take the outcome from the code that still runs; false if that has told it."""
        # Before the ticket is gone: the thread looks for its place as soon as it finds no ticket.
        self._slot_ownership = [None]
        if not self.conclude():
            return False
        self.stopped_by = reason
        return True

    def acquire_slot(self) -> bool:
        """Whether the place of the thread that runs this abandoned attempt is the caller's."""
        try:
            (self._slot_ownership or []).pop()
        except IndexError:
            return False
        return True

    def mark_started(self, now: float) -> bool:
        """Say that the job begins now, before any of it does; whoever runs jobs calls this. False when the
        supervisor has given it back, because this process was silent: then it must not be run."""
        if self.lease_row is not None and not self.lease_row.start(now):
            return False
        self.started_at = now
        return True

    @property
    def seconds(self) -> float | None:
        """How long the attempt has run until it ended or was given up."""
        ended = self.ended_at if self.abandoned_at is None else self.abandoned_at
        return None if self.started_at is None or ended is None else ended - self.started_at

    @property
    def is_waiting(self) -> bool:
        """Whether nobody has taken it yet, to run it or to hand it back."""
        return bool(self._start_ownership)

    @property
    def is_concluded(self) -> bool:
        """Whether its outcome is told: nothing is left to stop, though its lease may be held for long."""
        return not self._outcome_ownership

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.ended_at is None

    def mark_renewed(self, now: float) -> None:
        """The lease is fresh at this time. It should be renewed a third of its length later, or sooner: see
        `renewal_ms`. With less than a third left the job is not started any more."""
        job = self.job
        length_ms = max((job.lease_expires_at or 0) - (job.started_at or 0), 0)
        self.start_by = now + length_ms / 1_500
        self.renew_at = now + renewal_ms(length_ms) / 1_000

    def mark_lost(self) -> None:
        """The lease is gone for good. It is not renewed again, and if the job has not started it never is."""
        self.start_by = -inf
        self.renew_at = inf


class Slots:
    """All leases of one worker. Changed by the coordinator alone, read by the renewal too.

    Kept by lease and not by job: a worker that lost a lease may be given the next attempt at the same job
    while the lost one still runs, and each has a slot.

    With a page, each lease has a line there while it is held: see `worker.page`.

    `abandoned` is code of attempts that were given up and that still runs. Such an attempt has no lease, and
    its slot is free from the moment at which another thread has taken the place of its own.
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
        self.recent: tuple[JobId, ...] = ()  # what has run here last, for those who ask from other threads

    def add(self, assignments: Iterable[Assignment]) -> None:
        """Hold these leases. None of them is held already: see `held`."""
        for one in assignments:
            self._assignments[one.lease] = one
            self._free[one.kind] -= 1
            one.slots_taken = 1
            if self.lease_table is not None:
                one.lease_row = self.lease_table.write(one.job, one.leased_at)

    def find_duplicates(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        """Those of the new assignments whose leases are held here by others."""
        held = self._assignments
        return [one for one in assignments if one.lease in held]

    def renew(self, reclaimed: Assignment, leased_at: float) -> Assignment:
        """The store has given a lease a second time: the assignment that has it goes on with it."""
        one = self._assignments[reclaimed.lease]
        one.job = reclaimed.job
        one.mark_renewed(leased_at)
        if one.lease_row is not None:
            one.lease_row.renew(leased_at)
        return one

    def end(self, assignment: Assignment) -> None:
        """Let go of a lease. Each assignment gives back its own slot and its own line, once."""
        if self._assignments.get(assignment.lease) is assignment:
            del self._assignments[assignment.lease]
        if assignment.abandoned_at is None:
            self.vacate(assignment)
        line, assignment.lease_row = assignment.lease_row, None
        if line is not None:
            line.free()

    def abandon(self, assignment: Assignment, now: float) -> None:
        """The attempt was given up and its code still runs."""
        assignment.abandoned_at = now
        self._abandoned = (*self._abandoned, assignment)

    def release_abandoned(self, assignment: Assignment) -> None:
        """The code of an abandoned attempt has ended."""
        self._abandoned = tuple(one for one in self._abandoned if one is not assignment)
        self.vacate(assignment)

    def occupy(self, assignment: Assignment) -> None:
        """No other event loop can be started: all slots of this kind are taken while this code runs."""
        more = self.sizes[assignment.kind] - assignment.slots_taken
        self._free[assignment.kind] -= more
        assignment.slots_taken += more

    def vacate(self, assignment: Assignment) -> None:
        """The slot is free again, whatever becomes of the lease; doing this twice is fine."""
        self._free[assignment.kind] += assignment.slots_taken
        assignment.slots_taken = 0

    @property
    def abandoned(self) -> tuple[Assignment, ...]:
        """What was given up, as of the coordinator's last look."""
        return self._abandoned

    @property
    def abandoned_now(self) -> int:
        """How many abandoned calls still run. From any thread."""
        return sum(one.ended_at is None for one in self._abandoned)

    def free(self, kind: ExecutorKind) -> int:
        """How many more could run at once; below 0 when some wait."""
        return self._free[kind]

    def __iter__(self) -> Iterator[Assignment]:
        return iter(list(self._assignments.values()))

    def __len__(self) -> int:
        return len(self._assignments)

    def leases(self) -> list[Lease]:
        return [one.lease for one in self]
