"""Protocols of the store contract for the audit log: operators' actions in a hash chain."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.audit_hash_chain import ChainLine
from forebay.domain.job_history import Event


class AuditLogStore(Protocol):
    """Write side of the audit log. Each line is written by the call that it describes."""

    def chain_audit(self, limit: int = 1_000) -> int:
        """Append up to `limit` committed lines to the chain and return how many. Lines are written without a
        lock on the log, so no action waits for another one: the order of the chain is the order in which this
        call finds them. One call at a time appends; a second one returns 0 or continues behind the first.
        """
        ...


class AuditLogReader(Protocol):
    """Read side of the audit log."""

    def audit(self, *, limit: int = 100, after: int | None = None) -> list[tuple[int, Event]]:
        """Return the audit log, and the events of jobs and queues that are no actions, with their numbers,
        newest first, below number `after`. Lines of the audit log outlive their job, the events do not.
        """
        ...

    def audit_chain(self, *, limit: int = 100, after: int = 0) -> list[ChainLine]:
        """Return lines of the chain after position `after`. The first line that is left may be older than the
        retention of the log: it is the anchor of those behind it.
        """
        ...

    def count_unchained(self) -> int:
        """Return how many lines are not part of the chain yet."""
        ...
