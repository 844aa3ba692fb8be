"""Where Huey keeps tasks on Redis.

`huey.redis.NAME` is a list, new ones on the left, or with priorities a sorted set of messages behind eight
bytes of time; `huey.schedule.NAME` is a sorted set. Revocations lie among the results. What is about to be
stored elsewhere is noted in `forebay.import.huey`, which is gone when all of it has been taken out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from forebay.integrations.moving_in.found import AT_ONCE, REMEMBERED_MS, Begun, Found, Left, Waiting
from forebay.integrations.moving_in.huey import SYSTEM
from forebay.integrations.moving_in.huey_reading import Reading, left_revoked, new_word, revocations
from forebay.integrations.moving_in.redis_side import RedisSide
from forebay.integrations.moving_in.rq import NO_RETRY
from forebay.stores.statements import load_statements

_QUEUE: Final = "huey.redis."
_SCHEDULE: Final = "huey.schedule."
_RESULTS: Final = "huey.results."
_EXPIRING: Final = "huey.r."
_BLOCKING: Final = ("brpop", "blpop", "bzpopmin", "rpop", "zpopmin")
_PREFIX: Final = 8
_KEPT_SECONDS: Final = REMEMBERED_MS // 1_000


_NOTES: Final = "forebay.import.huey"
_SCRIPTS: Final = load_statements("forebay.integrations.moving_in", "lua", ".lua")


def stored_name(side: RedisSide, name: str) -> str:
    """The name under which Redis has the tasks of a Huey. Huey takes all but letters, digits and underscores
    out of it, unless it was made with clean_name=False."""
    with side.asked() as client:
        is_there = client.exists(_QUEUE + name, _SCHEDULE + name)
    return name if is_there else re.sub("[^A-Za-z0-9_]", "", name)


class Kept(NamedTuple):
    """A message in a list or a sorted set; `name` and `word` once it has been noted."""

    key: str
    is_list: bool
    raw: bytes
    name: str = ""
    word: str = ""


class HueyRedisSource:
    """Tasks of Huey in one database of a Redis server."""

    system: Final = SYSTEM
    default_policy: Final = NO_RETRY
    tells_copies: Final = True

    def __init__(self, side: RedisSide, reading: Reading) -> None:
        self._side = side
        self._reading = reading
        self._removed: dict[str, int] = {}

    def busy(self) -> str:
        found = self._side.waiting_clients(_BLOCKING)
        return f"clients that wait for tasks, as Huey's consumers do: {', '.join(found)}" if found else ""

    def count(self) -> int:
        with self._side.asked() as client:
            return sum(
                client.llen(key) if self._is_list(key) else client.zcard(key)
                for name in self._names()
                for key in (_QUEUE + name, _SCHEDULE + name)
            )

    def pages(self) -> Iterator[Sequence[Found]]:
        for name in self._names():
            for key in (_QUEUE + name, _SCHEDULE + name):
                yield from self._pages_of(name, key)

    def begun(self, found: Sequence[Found]) -> list[Begun | None]:
        met: Counter[Hashable] = Counter()
        noted = []
        with self._side.asked() as client:
            pipe = client.pipeline(transaction=False)
            for place, what in found:
                if isinstance(place, Kept) and isinstance(what, Waiting):
                    met.update((place, what.key))
                    noted.append((place, what.key))
                    asked = (place.raw, int(place.is_list), what.key, met[place], met[what.key])
                    pipe.eval(_SCRIPTS["note"], 2, place.key, _NOTES, *asked, new_word(), _KEPT_SECONDS)
            words = [word and word.decode() for word in pipe.execute()]
        return [
            Begun(f"{key}:{word}", place._replace(name=key, word=word)) if word else None
            for (place, key), word in zip(noted, words, strict=True)
        ]

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        kept = [place for place in places if isinstance(place, Kept)]
        with self._side.asked() as client:
            pipe = client.pipeline(transaction=False)
            for place in kept:
                asked = (place.raw, int(place.is_list), place.name, place.word)
                pipe.eval(_SCRIPTS["take"], 2, place.key, _NOTES, *asked)
            done = [bool(each) for each in pipe.execute()]
        for place, gone in zip(kept, done, strict=True):
            self._removed[place.key] = self._removed.get(place.key, 0) + gone
        return done

    def close(self) -> None:
        self._side.close()

    def _names(self) -> tuple[str, ...]:
        if self._reading.only:
            return self._reading.only
        found = {
            key.removeprefix(start) for start in (_QUEUE, _SCHEDULE) for key in self._side.names(f"{start}*")
        }
        return tuple(sorted(found))

    def _is_list(self, key: str) -> bool:
        with self._side.asked() as client:
            return bool(client.type(key) == b"list")

    def _pages_of(self, name: str, key: str) -> Iterator[list[Found]]:
        is_list = self._is_list(key)
        has_time = not is_list and key.startswith(_QUEUE)
        seen = 0
        self._removed[key] = 0
        while raws := self._next(key, seen - self._removed[key], is_list=is_list):
            seen += len(raws)
            page = []
            for raw in raws:
                what = self._reading.message(raw[_PREFIX:] if has_time else raw, name)
                page.append(Found(Kept(key, is_list, raw), self._unless_revoked(what, name)))
            yield page

    def _next(self, key: str, skip: int, *, is_list: bool) -> list[bytes]:
        if is_list:
            return self._side.tail(key, skip)
        with self._side.asked() as client:
            found: list[bytes] = client.zrange(key, skip, skip + AT_ONCE - 1)
        return found

    def _unless_revoked(self, what: Waiting | Left, name: str) -> Waiting | Left:
        if isinstance(what, Left):
            return what
        with self._side.asked() as client:
            pipe = client.pipeline(transaction=False)
            for key in revocations(what):
                pipe.hexists(_RESULTS + name, key)
                pipe.exists(f"{_EXPIRING}{name}.{key}")
            is_revoked = any(pipe.execute())
        return left_revoked(what) if is_revoked else what
