"""Which leases this worker holds, which of them run, and how much room there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from math import inf

from forebay.app.context import JobContext
from forebay.domain.job import Job, JobId
from forebay.domain.lease import Lease
from forebay.worker.page import Line, Page


class Kind(IntEnum):
    """What runs a task; each kind has slots of its own."""

    CALLS = 0  # blocking tasks, on threads
    COROUTINES = 1  # on one event loop
    ISOLATED = 2  # in processes of their own, which can be killed


class Assignment:
    """One claimed job on its way through an executor.

    Whoever takes the ticket decides: the executor, which then runs the job, or the coordinator, which then
    hands it back. Taking it is one bytecode, so no lock is needed.

    `stop` is why it shall stop, `stopped_by` is what its executor has raised in it.
    """

    __slots__ = (
        "_tickets",
        "asked_at",
        "asks",
        "claimed_at",
        "context",
        "ended_at",
        "is_stuck",
        "job",
        "kind",
        "lease",
        "leased_at",
        "line",
        "renew_at",
        "seat",
        "start_by",
        "started_at",
        "stop",
        "stopped_by",
    )

    def __init__(
        self, job: Job, claimed_at: float, *, leased_at: float | None = None, kind: Kind = Kind.CALLS
    ) -> None:
        self.job: Job = job
        self.lease: Lease = Lease(job.id, job.attempt)
        self.context: JobContext = JobContext(job)
        self.claimed_at: float = claimed_at
        self.kind: Kind = kind
        self.renew_at: float = 0.0
        self.start_by: float = 0.0
        self.leased_at: float = claimed_at if leased_at is None else leased_at
        self.renewed(self.leased_at)
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self.line: Line | None = None  # where a supervisor reads of it
        self.seat: object = None  # where its executor runs it
        self.stop: BaseException | None = None
        self.asked_at: float = 0.0
        self.asks: int = 0
        self.stopped_by: BaseException | None = None
        self.is_stuck: bool = False
        self._tickets = [None]

    def take(self) -> bool:
        """Whether the job is the caller's now, to run it or to hand it back."""
        try:
            self._tickets.pop()
        except IndexError:
            return False
        return True

    def began(self, now: float) -> bool:
        """Say that the job begins now, before any of it does; whoever runs jobs calls this. False when the
        supervisor has given it back, because this process was silent: then it must not be run."""
        if self.line is not None and not self.line.start(now):
            return False
        self.started_at = now
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether nobody has taken it yet, to run it or to hand it back."""
        return bool(self._tickets)

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.ended_at is None

    def renewed(self, now: float) -> None:
        """The lease is fresh at this time. A third of its length later it should be renewed, and with less
        than a third left the job is not started any more."""
        job = self.job
        length_ms = max((job.lease_expires_at or 0) - (job.started_at or 0), 0)
        self.start_by = now + length_ms / 1_500
        self.renew_at = now + length_ms / 3_000

    def lost(self) -> None:
        """The lease is gone for good. It is not renewed again, and if the job has not started it never is."""
        self.start_by = -inf
        self.renew_at = inf


class Slots:
    """All leases of one worker. Changed by the coordinator alone, read by the renewal too.

    Kept by lease and not by job: a worker that lost a lease may be given the next attempt at the same job
    while the lost one still runs, and each has a slot.

    With a page, each lease has a line there while it is held: see `worker.page`.
    """

    def __init__(self, threads: int, coroutines: int = 0, isolated: int = 0) -> None:
        self.sizes: Mapping[Kind, int] = {
            Kind.CALLS: threads,
            Kind.COROUTINES: coroutines,
            Kind.ISOLATED: isolated,
        }
        self._held: dict[Lease, Assignment] = {}
        self._free = dict(self.sizes)
        self.page: Page | None = None
        self.completed = 0
        self.failed = 0
        self.recent: tuple[JobId, ...] = ()  # what has run here last, for those who ask from other threads

    def add(self, assignments: Iterable[Assignment]) -> None:
        for one in assignments:
            self._held[one.lease] = one
            self._free[one.kind] -= 1
            if self.page is not None:
                one.line = self.page.write(one.job, one.leased_at)

    def end(self, assignment: Assignment) -> None:
        if self._held.pop(assignment.lease, None) is not None:
            self._free[assignment.kind] += 1
            if assignment.line is not None:
                assignment.line.free()

    def free(self, kind: Kind) -> int:
        """How many more could run at once; below 0 when some wait."""
        return self._free[kind]

    def __iter__(self) -> Iterator[Assignment]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def leases(self) -> list[Lease]:
        return [one.lease for one in self]
