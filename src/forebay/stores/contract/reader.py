"""The seam between Forebay and a storage engine: the whole contract, written once.

An `Engine` is an address. It opens handles: a `Store` to write, a `Reader` to look, `Wakeups` to listen.
A handle is blocking, cheap to open and used by one thread at a time. Engines know nothing of tasks,
retries or policies; the suite in `tests/stores/contract` speaks for this page.

Rules that hold for every method of `Store`:

- One call is one transaction: it happens whole or not at all. A call that raises `StoreUnavailable` may
  have happened if the answer was lost; all others that raise have changed nothing. Nor has one that
  raises `StoreBusy`: another transaction, mostly a caller's own, holds a key, an id or a job that it needs.
- Every time is the store's own clock; callers speak in delays.
- Every transition is guarded in the statement that makes it, by the state the job must be in and, for
  lease holders, by job id, attempt and worker id. What the guard refuses is reported, never half done.
- Whatever ends, moves or deletes a job keeps the counts by queue and state right, and frees only keys
  that name this very job.
"""

from __future__ import annotations

from typing import Protocol

from forebay.domain.query import ServerUsage, StoreHealth
from forebay.stores.contract.audit_log import AuditLogReader
from forebay.stores.contract.documents import DocumentReader
from forebay.stores.contract.job_import import JobExportReader
from forebay.stores.contract.jobs import JobReader
from forebay.stores.contract.limits import LimitReader
from forebay.stores.contract.metrics import MetricReader
from forebay.stores.contract.queues import QueueReader
from forebay.stores.contract.schedules import ScheduleReader
from forebay.stores.contract.workers import WorkerReader


class Reader(
    JobReader,
    QueueReader,
    WorkerReader,
    ScheduleReader,
    LimitReader,
    DocumentReader,
    AuditLogReader,
    MetricReader,
    JobExportReader,
    Protocol,
):
    """The read side. It never blocks writers, and ends its transaction with each answer."""

    def now(self) -> int:
        """The store's clock."""
        ...

    def server_usage(self) -> ServerUsage:
        """How much of its server's memory and connections is used."""
        ...

    def health(self) -> StoreHealth:
        """Look for what should never be: damaged files, counts that do not add up, jobs in two places, jobs
        that run without a lease or wait in no order, and jobs that were due a minute before the duty
        "promote" was last taken and have not been moved."""
        ...

    def close(self) -> None:
        """Let go of the handle; closing twice is fine."""
        ...
