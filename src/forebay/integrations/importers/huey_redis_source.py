"""Source of Huey's tasks on Redis.

`huey.redis.NAME` is a list, new ones on the left, or with priorities a sorted set of messages behind eight
bytes of time; `huey.schedule.NAME` is a sorted set. Revocations are among the results. Messages that are
about to be stored in the target are recorded in `forebay.import.huey`, until all of them have been removed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from forebay.integrations.importers.huey_message import SYSTEM
from forebay.integrations.importers.huey_options import HueyReadOptions, new_token
from forebay.integrations.importers.huey_revocation import make_revoked, revocation_keys
from forebay.integrations.importers.redis_client import SourceRedis
from forebay.integrations.importers.rq_message import NO_RETRY
from forebay.integrations.importers.source import (
    IDEMPOTENCY_TTL_MS,
    PAGE_SIZE,
    ForeignJob,
    FoundJob,
    ImportCandidate,
    SkippedJob,
)
from forebay.stores.shared.statement_loader import read_files

_QUEUE: Final = "huey.redis."
_SCHEDULE: Final = "huey.schedule."
_RESULTS: Final = "huey.results."
_EXPIRING: Final = "huey.r."
_BLOCKING: Final = ("brpop", "blpop", "bzpopmin", "rpop", "zpopmin")
_PREFIX: Final = 8
_NOTE_TTL_SECONDS: Final = IDEMPOTENCY_TTL_MS // 1_000


_NOTES: Final = "forebay.import.huey"
_SCRIPTS: Final = read_files("forebay.integrations.importers", "lua", ".lua")


def find_stored_name(server: SourceRedis, name: str) -> str:
    """Return the name that a Huey's tasks have on Redis. Huey keeps only letters, digits and underscores of a
    name, unless it was created with clean_name=False."""
    with server.use_client() as client:
        is_there = client.exists(_QUEUE + name, _SCHEDULE + name)
    return name if is_there else re.sub("[^A-Za-z0-9_]", "", name)


class HueyRedisMessage(NamedTuple):
    """A message in a list or a sorted set; `name` and `word` once it is recorded."""

    key: str
    is_list: bool
    raw: bytes
    name: str = ""
    token: str = ""


class HueyRedisSource:
    """Tasks of Huey in one database of a Redis server."""

    system: Final = SYSTEM
    default_policy: Final = NO_RETRY
    distinguishes_copies: Final = True

    def __init__(self, server: SourceRedis, options: HueyReadOptions) -> None:
        self._server = server
        self._options = options
        self._removed: dict[str, int] = {}

    def busy(self) -> str:
        clients = self._server.waiting_clients(_BLOCKING)
        return f"clients that wait for tasks, as Huey's consumers do: {', '.join(clients)}" if clients else ""

    def count(self) -> int:
        with self._server.use_client() as client:
            return sum(
                client.llen(key) if self._is_list(key) else client.zcard(key)
                for name in self._names()
                for key in (_QUEUE + name, _SCHEDULE + name)
            )

    def pages(self) -> Iterator[Sequence[FoundJob]]:
        for name in self._names():
            for key in (_QUEUE + name, _SCHEDULE + name):
                yield from self._pages_of(name, key)

    def prepare(self, found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
        seen: Counter[Hashable] = Counter()
        recorded = []
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for place, message in found:
                if isinstance(place, HueyRedisMessage) and isinstance(message, ForeignJob):
                    seen.update((place, message.key))
                    recorded.append((place, message.key))
                    arguments = (place.raw, int(place.is_list), message.key, seen[place], seen[message.key])
                    pipe.eval(
                        _SCRIPTS["note"], 2, place.key, _NOTES, *arguments, new_token(), _NOTE_TTL_SECONDS
                    )
            tokens = [token and token.decode() for token in pipe.execute()]
        return [
            ImportCandidate(f"{key}:{token}", place._replace(name=key, token=token)) if token else None
            for (place, key), token in zip(recorded, tokens, strict=True)
        ]

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        messages = [place for place in places if isinstance(place, HueyRedisMessage)]
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for place in messages:
                arguments = (place.raw, int(place.is_list), place.name, place.token)
                pipe.eval(_SCRIPTS["take"], 2, place.key, _NOTES, *arguments)
            removed = [bool(reply) for reply in pipe.execute()]
        for place, is_removed in zip(messages, removed, strict=True):
            self._removed[place.key] = self._removed.get(place.key, 0) + is_removed
        return removed

    def close(self) -> None:
        self._server.close()

    def _names(self) -> tuple[str, ...]:
        if self._options.only:
            return self._options.only
        names = {
            key.removeprefix(start)
            for start in (_QUEUE, _SCHEDULE)
            for key in self._server.names(f"{start}*")
        }
        return tuple(sorted(names))

    def _is_list(self, key: str) -> bool:
        with self._server.use_client() as client:
            return bool(client.type(key) == b"list")

    def _pages_of(self, name: str, key: str) -> Iterator[list[FoundJob]]:
        is_list = self._is_list(key)
        has_time = not is_list and key.startswith(_QUEUE)
        seen = 0
        self._removed[key] = 0
        while raws := self._load_page(key, seen - self._removed[key], is_list=is_list):
            seen += len(raws)
            page = []
            for raw in raws:
                message = self._options.parse(raw[_PREFIX:] if has_time else raw, name)
                page.append(
                    FoundJob(HueyRedisMessage(key, is_list, raw), self._skip_if_revoked(message, name))
                )
            yield page

    def _load_page(self, key: str, skip: int, *, is_list: bool) -> list[bytes]:
        if is_list:
            return self._server.tail(key, skip)
        with self._server.use_client() as client:
            raws: list[bytes] = client.zrange(key, skip, skip + PAGE_SIZE - 1)
        return raws

    def _skip_if_revoked(self, message: ForeignJob | SkippedJob, name: str) -> ForeignJob | SkippedJob:
        if isinstance(message, SkippedJob):
            return message
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for key in revocation_keys(message):
                pipe.hexists(_RESULTS + name, key)
                pipe.exists(f"{_EXPIRING}{name}.{key}")
            is_revoked = any(pipe.execute())
        return make_revoked(message) if is_revoked else message
