"""Hash chain of the audit log: each line carries the hash of the line before it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from forebay.domain.job_history import Event, EventKind


class ChainLink(NamedTuple):
    """Position and hash of one line: all that the next line needs to know of it."""

    position: int
    hash: str


# Before the first line.
START: Final = ChainLink(0, "0" * 64)


class ChainLine(msgspec.Struct, frozen=True, kw_only=True):
    """Line of the audit log with its place in the chain. Positions have no gaps; numbers may have."""

    position: int
    previous: str
    hash: str
    number: int
    event: Event

    @property
    def link(self) -> ChainLink:
        return ChainLink(self.position, self.hash)


def hash_line(previous: ChainLink, number: int, event: Event) -> str:
    """Return the hash of the line that follows `previous`."""
    # An older program reads an unknown kind as a comment whose detail begins with it. No action is a comment,
    # so that both forms give one text, and programs of two releases agree about the hash.
    words = event.detail if event.kind is EventKind.COMMENT else f"{event.kind}: {event.detail}"
    content = (
        previous.position + 1,
        previous.hash,
        number,
        event.occurred_at,
        event.job_id,
        event.queue,
        event.attempt,
        event.actor,
        words,
        event.changes,
    )
    # Late, because it loads OpenSSL: a supervisor, which opens a store, stays small without it.
    from hashlib import sha256  # noqa: PLC0415

    return sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def extend_chain(head: ChainLink, lines: Iterable[tuple[int, Event]]) -> list[ChainLine]:
    """Return these lines as they follow `head`, in the order given."""
    chained = []
    for number, event in lines:
        digest = hash_line(head, number, event)
        line = ChainLine(
            position=head.position + 1, previous=head.hash, hash=digest, number=number, event=event
        )
        chained.append(line)
        head = line.link
    return chained


def find_flaw(line: ChainLine, before: ChainLink | None) -> str | None:
    """Return why a line does not follow the line `before` it, or None if it does. Without `before` the line
    is only held against its own hash."""
    if before is not None and line.position != before.position + 1:
        return f"expected position {before.position + 1}: lines are missing or stand twice"
    if before is not None and line.previous != before.hash:
        return "it does not carry the hash of the line before it"
    if line.hash != hash_line(ChainLink(line.position - 1, line.previous), line.number, line.event):
        return "its content does not fit its hash"
    return None
