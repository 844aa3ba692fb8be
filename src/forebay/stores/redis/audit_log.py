"""Audit log of the Redis engine. Lua has no SHA-256, so the hashes of the chain are computed here."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final

import msgspec

from forebay.domain.audit_hash_chain import START, ChainLine, ChainLink, extend_chain
from forebay.domain.job_history import Event
from forebay.domain.job_query import check_limit
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.rows import event_from_packed

_decode: Final = msgspec.msgpack.Decoder(tuple[int, str, str, int]).decode


class RedisAuditLogStore:
    """Write side of the audit log."""

    _connection: Connection

    def chain_audit(self, limit: int = 1_000) -> int:
        # Optimistic: the script appends only behind the last link that was read here.
        packed_link, _, ids, packed = self._connection.run("audit_rest", {"limit": limit})
        last = START if packed_link is None else _link(packed_link)
        links = [
            (line.position, line.previous, line.hash, line.number)
            for line in extend_chain(last, _events(ids, packed))
        ]
        if not links:
            return 0
        return int(self._connection.run("chain_audit", {"last_position": last.position, "links": links}))


class RedisAuditLogReader:
    """Read side of the audit log."""

    _connection: Connection

    def audit(self, *, limit: int = 100, after: int | None = None) -> list[tuple[int, Event]]:
        check_limit(limit)
        lines, actions, numbers, events = self._connection.run("audit", {"limit": limit, "after": after})
        found = [*_events(lines, actions), *_events(numbers, events)]
        return nlargest(limit, found, key=lambda line: line[0])

    def audit_chain(self, *, limit: int = 100, after: int = 0) -> list[ChainLine]:
        check_limit(limit)
        links, packed = self._connection.run("audit_chain", {"limit": limit, "after": after})
        lines = zip(map(_decode, links), packed, strict=True)
        return [
            ChainLine(
                position=position,
                previous=previous,
                hash=digest,
                number=number,
                event=event_from_packed(event),
            )
            for (position, previous, digest, number), event in lines
            if event is not None
        ]

    def count_unchained(self) -> int:
        return int(self._connection.run("audit_rest", {"limit": 0})[1])


def _link(packed: bytes) -> ChainLink:
    position, _, digest, _ = _decode(packed)
    return ChainLink(position, digest)


def _events(numbers: Sequence[Any], packed: Sequence[bytes | None]) -> list[tuple[int, Event]]:
    return [
        (int(number), event_from_packed(event))
        for number, event in zip(numbers, packed, strict=True)
        if event is not None
    ]
