"""The part of the seam that keeps the audit log: actions of operators, linked to a chain of hashes."""

from __future__ import annotations

from typing import Protocol

from forebay.domain.audit_chain import ChainLine
from forebay.domain.history import Event


class AuditLogStore(Protocol):
    """The write side of the audit log. Its lines are written by the calls that they are about."""

    def chain_audit(self, limit: int = 1_000) -> int:
        """Append up to `limit` committed lines to the chain; return how many. Lines are written without a
        lock of the log, so that one action never waits for another one: the order of the chain is the order
        in which this call finds them. One call at a time appends; a second one returns 0 or goes on behind
        the first."""
        ...


class AuditLogReader(Protocol):
    """The read side of the audit log."""

    def audit(self, *, limit: int = 100, after: int | None = None) -> list[tuple[int, Event]]:
        """The audit log, and events of jobs and queues that are no actions, with their numbers, newest first,
        below number `after`. The former stays when its job goes, the latter do not."""
        ...

    def audit_chain(self, *, limit: int = 100, after: int = 0) -> list[ChainLine]:
        """Lines of the chain from behind position `after` on. The first one that is left may be older than
        the log is kept: it is the anchor of those behind it."""
        ...

    def count_unchained(self) -> int:
        """How many lines are not part of the chain yet."""
        ...
