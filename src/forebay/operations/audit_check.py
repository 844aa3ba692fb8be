"""Check of the audit log: each entry of its hash chain must follow the one before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from forebay.domain.audit_hash_chain import START, ChainLine, ChainLink, find_flaw
from forebay.domain.job import DAY_MS
from forebay.domain.job_history import AUDIT_RETENTION_MS
from forebay.domain.job_query import MAX_PAGE
from forebay.stores.contract.reader import Reader

# The anchor was old when it was written; the clock may have been set back by this much since.
_CLOCK_MS: Final = DAY_MS


class AuditFlaw(msgspec.Struct, frozen=True, kw_only=True):
    """The first entry that breaks the chain. `number` is that of the log, None for a missing entry."""

    position: int
    number: int | None
    reason: str


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check. `unchained` entries were written since the chain was last extended, and are not
    checked. The next check after a bounded one starts at `next_after`."""

    lines: int
    head: ChainLink | None
    unchained: int
    flaw: AuditFlaw | None
    next_after: int | None = None


def check_audit(
    reader: Reader, *, after: int = 0, limit: int | None = None, exported: Mapping[int, str] | None = None
) -> AuditCheck:
    """Check the chain, or up to `limit` entries of it from position `after` on.

    With `exported`, hashes by position, the entries must equal those of an export. That detects a chain that
    was truncated or rewritten as a whole.
    """
    exported = exported or {}
    now = reader.now()
    head: ChainLink | None = None
    lines, reason, line = 0, None, None
    # The entry `after` is read again: its own hash is checked, and the next entry must follow it.
    for line in islice(read_chain(reader, max(0, after - 1)), limit):
        reason = _flaw_of(line, head, after, now) or _difference(line, exported)
        if reason is not None:
            break
        head, lines = line.link, lines + 1
    flaw = None
    if line is not None and reason is not None:
        flaw = AuditFlaw(position=line.position, number=line.number, reason=reason)
    is_cut = limit is not None and lines == limit
    if flaw is None and not is_cut:
        flaw = _missing_end(head, exported)
    return AuditCheck(
        lines=lines,
        head=head,
        unchained=reader.count_unchained(),
        flaw=flaw,
        next_after=head.position if is_cut and head is not None and flaw is None else None,
    )


def read_chain(reader: Reader, after: int) -> Iterator[ChainLine]:
    """Return the entries of the chain after a position."""
    while page := reader.audit_chain(limit=MAX_PAGE, after=after):
        yield from page
        after = page[-1].position


def _flaw_of(line: ChainLine, head: ChainLink | None, after: int, now: int) -> str | None:
    if head is None and after == 0:
        if line.position == 1:
            head = START
        elif line.event.occurred_at > now - AUDIT_RETENTION_MS + _CLOCK_MS:
            return "the lines before it are gone, and it is not old enough to be the anchor"
    elif head is None:
        head = ChainLink(after - 1, line.previous)
    return find_flaw(line, head)


def _difference(line: ChainLine, exported: Mapping[int, str]) -> str | None:
    is_different = exported.get(line.position, line.hash) != line.hash
    return "it is not the line that was exported" if is_different else None


def _missing_end(head: ChainLink | None, exported: Mapping[int, str]) -> AuditFlaw | None:
    last, reached = max(exported, default=0), 0 if head is None else head.position
    if last <= reached:
        return None
    reason = f"lines up to position {last} were exported, and the log ends before"
    return AuditFlaw(position=reached + 1, number=None, reason=reason)
