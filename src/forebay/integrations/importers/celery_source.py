"""Celery's tasks on Redis.

A queue is a list for each step of priority, `name` for 0 and `name<06><16>step` for the others; new messages
come on the left. The hash `unacked` has the messages that a worker has taken, until it acknowledges them.
Tasks with an `eta` that a worker holds until their time are there too. A worker that is stopped in order puts
them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from forebay.domain.retry_policy import DEFAULT_POLICY
from forebay.integrations.importers.celery_message import SYSTEM, read_message
from forebay.integrations.importers.redis_client import SourceRedis
from forebay.integrations.importers.source import (
    PAGE_SIZE,
    FoundJob,
    ImportCandidate,
    SkippedJob,
    make_candidates,
)

_SEP: Final = "\x06\x16"
_BINDING: Final = "_kombu.binding."
_UNACKED: Final = "unacked"
_INDEX: Final = "unacked_index"
_STEPS: Final = 10
# Queues for messages between workers.
_NOT_TASKS: Final = ("celeryev", "celery.pidbox", "reply.celery.pidbox")
_SUFFIXES: Final = (".celery.pidbox", ".reply.celery.pidbox")
_BLOCKING: Final = ("brpop", "blpop", "bzpopmin")


class QueuedMessage(NamedTuple):
    """A message in the list of a queue."""

    key: str
    raw: bytes


class UnackedMessage(NamedTuple):
    """A message that a worker has taken."""

    tag: str


class _Delivery(msgspec.Struct):
    routing_key: str


class _Properties(msgspec.Struct):
    delivery_info: _Delivery


class _Message(msgspec.Struct):
    properties: _Properties
    body: str


class CelerySource:
    """Tasks of Celery in one database of a Redis server; `only` names queues, without it all are searched
    for."""

    system: Final = SYSTEM
    default_policy: Final = DEFAULT_POLICY
    distinguishes_copies: Final = False

    def __init__(self, server: SourceRedis, *, only: Sequence[str] = (), prefix: str = "") -> None:
        self._server = server
        self._only = tuple(only)
        self._prefix = prefix
        self._removed: Counter[str] = Counter()

    def busy(self) -> str:
        clients = self._server.waiting_clients(_BLOCKING)
        return f"clients that wait for tasks, as Celery's workers do: {', '.join(clients)}" if clients else ""

    def count(self) -> int:
        keys = self._lists()
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for _, key in keys:
                pipe.llen(key)
            listed = sum(pipe.execute()) if keys else 0
        return int(listed) + sum(1 for _ in self._unacked_jobs())

    def pages(self) -> Iterator[Sequence[FoundJob]]:
        for queue, key in self._lists():
            yield from self._pages_of(queue, key)
        unacked = self._unacked_jobs()
        while page := list(islice(unacked, PAGE_SIZE)):
            yield page

    def prepare(self, found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
        return make_candidates(found)

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for place in places:
                if isinstance(place, QueuedMessage):
                    # From the right, where the oldest are and the import began.
                    pipe.lrem(place.key, -1, place.raw)
                elif isinstance(place, UnackedMessage):
                    pipe.hdel(self._prefix + _UNACKED, place.tag)
            removed = [bool(reply) for reply in pipe.execute()]
            tags = [place.tag for place in places if isinstance(place, UnackedMessage)]
            if tags:
                client.zrem(self._prefix + _INDEX, *tags)
        for place, is_removed in zip(places, removed, strict=True):
            if isinstance(place, QueuedMessage):
                self._removed[place.key] += is_removed
        return removed

    def close(self) -> None:
        self._server.close()

    def _pages_of(self, queue: str, key: str) -> Iterator[list[FoundJob]]:
        seen = 0
        self._removed[key] = 0
        while raws := self._server.tail(key, seen - self._removed[key]):
            seen += len(raws)
            yield [FoundJob(QueuedMessage(key, raw), read_message(raw, queue)) for raw in raws]

    def _unacked_jobs(self) -> Iterator[FoundJob]:
        tables: dict[str, list[list[str]]] = {}
        seen = set[str]()
        with self._server.use_client() as client:
            for tag, raw in client.hscan_iter(self._prefix + _UNACKED, count=PAGE_SIZE):
                name = tag.decode(errors="replace")
                if name in seen:
                    continue  # a scan may return an element twice
                seen.add(name)
                message = self._parse_unacked(raw, tables)
                if not self._only or message.queue in self._only:
                    yield FoundJob(UnackedMessage(name), message)

    def _parse_unacked(self, raw: bytes, tables: dict[str, list[list[str]]]) -> Any:
        try:
            message, exchange, routing_key = msgspec.json.decode(raw, type=tuple[Any, str | None, str | None])
        except (msgspec.MsgspecError, RecursionError) as exc:
            return SkippedJob(
                id="?", queue="?", reason=f"a message that a worker has taken cannot be read: {exc!s:.80}"
            )
        queue = self._find_queue(exchange or "", routing_key or "", tables)
        return read_message(msgspec.json.encode(message), queue)

    def _find_queue(self, exchange: str, routing_key: str, tables: dict[str, list[list[str]]]) -> str:
        """Return the queue that a message was routed to; by default it has the name of the routing key."""
        if exchange not in tables:
            tables[exchange] = self._load_bindings(f"{self._prefix}{_BINDING}{exchange}")
        for key, _, queue in tables[exchange]:
            if key == routing_key:
                return queue
        return routing_key

    def _lists(self) -> list[tuple[str, str]]:
        """Return every list of every queue, the most urgent first."""
        names = self._only or self._queues()
        steps = ["", *(f"{_SEP}{step}" for step in range(1, _STEPS))]
        return [(name, f"{self._prefix}{name}{step}") for name in names for step in steps]

    def _queues(self) -> tuple[str, ...]:
        """Return the queues from the broker's bindings, and from lists whose messages were sent to a queue of
        that name. A server that was emptied while its producers ran has lost the bindings."""
        bound = {
            queue
            for table in self._server.names(f"{self._prefix}{_BINDING}*")
            if table.removeprefix(self._prefix + _BINDING) not in _NOT_TASKS
            for _, _, queue in self._load_bindings(table)
        }
        keys = self._server.names(f"{self._prefix}*", kind="list")
        names = {key: key.removeprefix(self._prefix).partition(_SEP)[0] for key in keys}
        listed = {name for key, name in names.items() if self._find_routing_key(key) == name}
        return tuple(sorted(queue for queue in bound | listed if not queue.endswith(_SUFFIXES)))

    def _find_routing_key(self, key: str) -> str | None:
        with self._server.use_client() as client:
            last = client.lindex(key, -1) or b""
        try:
            return msgspec.json.decode(last, type=_Message).properties.delivery_info.routing_key
        except (msgspec.MsgspecError, RecursionError):
            return None

    def _load_bindings(self, table: str) -> list[list[str]]:
        with self._server.use_client() as client:
            rows = [member.decode(errors="replace").split(_SEP) for member in client.smembers(table)]
        return sorted(row for row in rows if len(row) == 3 and row[2])  # noqa: PLR2004 - key, pattern, queue
