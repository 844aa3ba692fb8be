"""Assigned job: one claimed job on its way through an executor, and who owns its start and its outcome."""

from __future__ import annotations

from enum import IntEnum
from math import inf

from forebay.app.job_context import JobContext
from forebay.domain.job import Job
from forebay.domain.lease import Lease, renewal_ms
from forebay.worker.lease_table import LeaseRow


class ExecutorKind(IntEnum):
    """What runs a task; each kind has slots of its own."""

    CALLS = 0  # blocking tasks, on threads
    COROUTINES = 1  # on one event loop
    ISOLATED = 2  # in processes of their own, which can be killed


class Assignment:
    """One claimed job on its way through an executor.

    Three questions are decided by ownership. Acquiring it is one bytecode, so no lock is needed, and each is
    acquired once.

    - `acquire`: the executor runs the job, or the coordinator hands it back.
    - `conclude`: the executor reports the outcome, or the coordinator abandons the attempt and settles it.
    - `acquire_slot`: the thread of an abandoned attempt goes on with other jobs when it comes back, or the
      coordinator replaces it with another thread, and it ends.

    `stop_reason` is why it shall stop, `stopped_by` is what its executor has raised in it. It is abandoned at
    `abandon_at`; `abandoned_at` is when it was.
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
        self.lease_row: LeaseRow | None = None  # its row in the lease table, for the supervisor
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
        self._slot_ownership: list[None] | None = None  # few are ever abandoned

    def acquire(self) -> bool:
        """Return whether the caller now owns the start of the job, to run it or to hand it back."""
        try:
            self._start_ownership.pop()
        except IndexError:
            return False
        return True

    def conclude(self) -> bool:
        """Return whether the caller now owns the outcome. False for an attempt that was abandoned, or that
        has an outcome."""
        try:
            self._outcome_ownership.pop()
        except IndexError:
            return False
        return True

    def give_up(self, reason: BaseException) -> bool:
        """Take the outcome from the code that still runs; false if that has reported it."""
        # Before ownership of the outcome is gone: the thread checks its slot as soon as it finds none.
        self._slot_ownership = [None]
        if not self.conclude():
            return False
        self.stopped_by = reason
        return True

    def acquire_slot(self) -> bool:
        """Return whether the caller now owns the thread slot of this abandoned attempt."""
        try:
            (self._slot_ownership or []).pop()
        except IndexError:
            return False
        return True

    def mark_started(self, now: float) -> bool:
        """Mark the job as started, before any of it runs; every executor calls this. False when the
        supervisor has given the job back, because this process was silent: then it must not be run."""
        if self.lease_row is not None and not self.lease_row.start(now):
            return False
        self.started_at = now
        return True

    @property
    def seconds(self) -> float | None:
        """How long the attempt has run until it ended or was abandoned."""
        ended = self.ended_at if self.abandoned_at is None else self.abandoned_at
        return None if self.started_at is None or ended is None else ended - self.started_at

    @property
    def is_waiting(self) -> bool:
        """Whether the start is not owned yet, neither to run the job nor to hand it back."""
        return bool(self._start_ownership)

    @property
    def is_concluded(self) -> bool:
        """Whether its outcome is reported: nothing is left to stop, though its lease may be held for long."""
        return not self._outcome_ownership

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.ended_at is None

    def mark_renewed(self, now: float) -> None:
        """Record that the lease is fresh at this time.

        It should be renewed a third of its length later, or sooner: see `renewal_ms`. With less than a third
        left the job is not started any more.
        """
        job = self.job
        length_ms = max((job.lease_expires_at or 0) - (job.started_at or 0), 0)
        self.start_by = now + length_ms / 1_500
        self.renew_at = now + renewal_ms(length_ms) / 1_000

    def mark_lost(self) -> None:
        """Record that the lease is lost for good: it is not renewed again, and a job that has not started
        never is."""
        self.start_by = -inf
        self.renew_at = inf
