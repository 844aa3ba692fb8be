"""Queries of the audit log: actions with their actor, time and changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from forebay.domain.job_history import ACTIONS, Event, EventKind
from forebay.domain.job_query import MAX_PAGE, check_limit
from forebay.stores.contract.reader import Reader

# Bound on the entries that are scanned for one page, matching or not.
MAX_SCANNED: Final = 20_000


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of audit entries; None matches any value. `actor` is a name without its request; `since` and
    `until` are instants, the second one excluded."""

    kinds: frozenset[EventKind] | None = ACTIONS
    actor: str | None = None
    request: str | None = None
    queue: str | None = None
    job_id: str | None = None
    since: int | None = None
    until: int | None = None

    def matches(self, event: Event) -> bool:
        if self.kinds is not None and event.kind not in self.kinds:
            return False
        if (self.since is not None and event.occurred_at < self.since) or (
            self.until is not None and event.occurred_at >= self.until
        ):
            return False
        conditions = (
            (self.actor, event.actor_name),
            (self.request, event.request_id),
            (self.queue, event.queue),
            (self.job_id, event.job_id),
        )
        return all(required is None or required == actual for required, actual in conditions)


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries with their numbers, newest first. The next page begins below `after`; None is the end."""

    entries: tuple[tuple[int, Event], ...]
    after: int | None


def audit_page(reader: Reader, query: AuditQuery, *, limit: int = 100, after: int | None = None) -> AuditPage:
    """Return matching entries, newest first. A page may be short, or empty, and not be the last one."""
    check_limit(limit)
    entries: list[tuple[int, Event]] = []
    last: int | None = None
    log = _read_log(reader, query, after)
    for last, event in islice(log, MAX_SCANNED):
        if query.matches(event):
            entries.append((last, event))
        if len(entries) == limit:
            break
    return AuditPage(entries=tuple(entries), after=None if next(log, None) is None else last)


def audit_entries(reader: Reader, query: AuditQuery) -> Iterator[tuple[int, Event]]:
    """Return all matching entries, newest first."""
    return (entry for entry in _read_log(reader, query, None) if query.matches(entry[1]))


def _read_log(reader: Reader, query: AuditQuery, after: int | None) -> Iterator[tuple[int, Event]]:
    while page := reader.audit(limit=MAX_PAGE, after=after):
        yield from page
        after = page[-1][0]
        if _all_before(page, query.since):
            return


def _all_before(page: list[tuple[int, Event]], since: int | None) -> bool:
    """Return whether no later entry follows: times need not fall with the numbers, but nearly do."""
    return since is not None and all(event.occurred_at < since for _, event in page)
