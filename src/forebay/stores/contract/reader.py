"""Reader protocol: the read side of the store contract."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.store_health import ServerUsage, StoreHealth
from forebay.stores.contract.audit_log import AuditLogReader
from forebay.stores.contract.concurrency_and_rate_limits import LimitReader
from forebay.stores.contract.documents import DocumentReader
from forebay.stores.contract.job_import_and_export import JobExportReader
from forebay.stores.contract.job_reader import JobReader
from forebay.stores.contract.metrics import MetricReader
from forebay.stores.contract.queues import QueueReader
from forebay.stores.contract.schedules import ScheduleReader
from forebay.stores.contract.workers_and_commands import WorkerReader


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
    """Read side of a store. It never blocks writers, and ends its transaction with each answer."""

    def now(self) -> int:
        """Return the time of the store's clock."""
        ...

    def server_usage(self) -> ServerUsage:
        """Return how much of its server's memory and connections is used."""
        ...

    def health(self) -> StoreHealth:
        """Check invariants: damaged files, wrong counts, jobs in two places, jobs that run without a lease or
        wait in no order. Also jobs that were due a minute before the maintenance task "promote" was last
        acquired and have not been moved.
        """
        ...

    def close(self) -> None:
        """Close the handle; closing twice is allowed."""
        ...
