"""RQ's jobs on Redis: `rq:queue:NAME` lists ids, `rq:scheduled:NAME` and `rq:deferred:NAME` are sorted sets
of them, and `rq:job:ID` is the job itself."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from forebay.integrations.importers.redis_client import SourceRedis
from forebay.integrations.importers.rq_message import NO_RETRY, SYSTEM, RqTimes, parent_ids, read_job
from forebay.integrations.importers.source import (
    PAGE_SIZE,
    FoundJob,
    ImportCandidate,
    UnreadableMessage,
    make_candidates,
)

_JOB: Final = "rq:job:"
_QUEUES: Final = "rq:queues"
_QUEUE: Final = "rq:queue:"
_SCHEDULED: Final = "rq:scheduled:"
_DEFERRED: Final = "rq:deferred:"
_WORKERS: Final = "rq:workers"
_NEVER: Final = 10**12  # seconds; a score may be infinite, and no job of Forebay can be due later


class RqPlace(NamedTuple):
    """An id in a list or a sorted set of a queue."""

    key: str
    job_id: str

    @property
    def queue(self) -> str:
        return self.key.split(":", 2)[2]


class RqSource:
    """Jobs of RQ in one database of a Redis server; `only` names queues, without it all are searched for."""

    system: Final = SYSTEM
    default_policy: Final = NO_RETRY
    distinguishes_copies: Final = False

    def __init__(self, server: SourceRedis, *, only: Sequence[str] = (), trust_pickle: bool = False) -> None:
        self._server = server
        self._only = tuple(only)
        self._trust_pickle = trust_pickle
        self._removed: dict[str, int] = {}

    def busy(self) -> str:
        with self._server.use_client() as client:
            names = sorted(name_bytes.decode() for name_bytes in client.smembers(_WORKERS))
            alive = [name.rpartition(":")[2] for name in names if client.exists(name)]
        return f"workers of RQ: {', '.join(alive)}" if alive else ""

    def count(self) -> int:
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for queue in self._queues():
                pipe.llen(_QUEUE + queue)
                pipe.zcard(_SCHEDULED + queue)
                pipe.zcard(_DEFERRED + queue)
            return sum(pipe.execute())

    def pages(self) -> Iterator[Sequence[FoundJob]]:
        for queue in self._queues():
            yield from self._queue_pages(queue)
        for queue in self._queues():
            yield from self._scheduled_pages(queue)
        yield from self._deferred_pages()

    def prepare(self, found: Sequence[FoundJob]) -> list[ImportCandidate | None]:
        return make_candidates(found)

    def remove(self, places: Sequence[Hashable]) -> list[bool]:
        rq_places = [place for place in places if isinstance(place, RqPlace)]
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for place in rq_places:
                if place.key.startswith(_QUEUE):
                    pipe.lrem(place.key, 1, place.job_id)
                else:
                    pipe.zrem(place.key, place.job_id)
            removed = [bool(reply) for reply in pipe.execute()]
            # A job that was gone from its place belongs to another program, which needs its data.
            keys = [
                key
                for place, is_removed in zip(rq_places, removed, strict=True)
                if is_removed
                for key in _keys_of(place.job_id)
            ]
            if keys:
                client.delete(*keys)
        for place, is_removed in zip(rq_places, removed, strict=True):
            self._removed[place.key] = self._removed.get(place.key, 0) + is_removed
        return removed

    def close(self) -> None:
        self._server.close()

    def _queues(self) -> tuple[str, ...]:
        if self._only:
            return self._only
        with self._server.use_client() as client:
            return tuple(sorted(key.decode().removeprefix(_QUEUE) for key in client.smembers(_QUEUES)))

    def _queue_pages(self, queue: str) -> Iterator[list[FoundJob]]:
        for ids in self._id_pages(_QUEUE + queue):
            yield self._load_page(_QUEUE + queue, queue, ids)

    def _scheduled_pages(self, queue: str) -> Iterator[list[FoundJob]]:
        key = _SCHEDULED + queue
        for ids in self._id_pages(key):
            with self._server.use_client() as client:
                scores = client.zmscore(key, ids)
            due = {
                job_id: int(min(max(score, 0), _NEVER) * 1_000)
                for job_id, score in zip(ids, scores, strict=True)
                if score is not None
            }
            yield self._load_page(key, queue, ids, due=due)

    def _id_pages(self, key: str) -> Iterator[list[str]]:
        """Yield the ids of a list or a sorted set, in order; between two pages some of them may have been
        removed."""
        seen = 0
        self._removed[key] = 0
        while True:
            first = seen - self._removed[key]
            with self._server.use_client() as client:
                read = client.lrange if key.startswith(_QUEUE) else client.zrange
                ids = [member.decode(errors="replace") for member in read(key, first, first + PAGE_SIZE - 1)]
            if not ids:
                return
            seen += len(ids)
            yield ids

    def _deferred_pages(self) -> Iterator[list[FoundJob]]:
        """Yield pages in waves, so that each job comes after its parents."""
        waiting: dict[str, RqPlace] = {}
        for queue in self._queues():
            with self._server.use_client() as client:
                ids = [job_id.decode(errors="replace") for job_id in client.zrange(_DEFERRED + queue, 0, -1)]
            waiting |= {job_id: RqPlace(_DEFERRED + queue, job_id) for job_id in ids}
        fields = self._load_hashes(list(waiting))
        parents = {job_id: _parents(fields[job_id]) for job_id in waiting}
        while waiting:
            free = [job_id for job_id in waiting if not any(parent in waiting for parent in parents[job_id])]
            # Jobs in a cycle wait for ever, there and here: the importer reports them.
            wave = [(job_id, waiting.pop(job_id)) for job_id in free or list(waiting)]
            yield [
                FoundJob(
                    place,
                    self._parse_job(
                        job_id, fields[job_id], place.queue, parents=self._load_states(parents[job_id])
                    ),
                )
                for job_id, place in wave
            ]

    def _load_page(
        self, key: str, queue: str, ids: Sequence[str], *, due: Mapping[str, int] | None = None
    ) -> list[FoundJob]:
        fields = self._load_hashes(ids)
        return [
            FoundJob(
                RqPlace(key, job_id),
                self._parse_job(job_id, fields[job_id], queue, run_at=(due or {}).get(job_id)),
            )
            for job_id in ids
        ]

    def _parse_job(
        self,
        job_id: str,
        fields: Mapping[str, bytes],
        queue: str,
        *,
        run_at: int | None = None,
        parents: Mapping[str, str | None] | None = None,
    ) -> Any:
        times = RqTimes(run_at, self._load_expiry(job_id) if fields.get("ttl") else None)
        return read_job(job_id, fields, queue, trust_pickle=self._trust_pickle, times=times, parents=parents)

    def _load_expiry(self, job_id: str) -> int | None:
        with self._server.use_client() as client:
            remaining_ms = client.pttl(_JOB + job_id)
            seconds, micros = client.time()
        return int(seconds * 1_000 + micros // 1_000 + remaining_ms) if remaining_ms > 0 else None

    def _load_hashes(self, ids: Sequence[str]) -> dict[str, dict[str, bytes]]:
        with self._server.use_client() as client:
            pipe = client.pipeline(transaction=False)
            for job_id in ids:
                pipe.hgetall(_JOB + job_id)
            answers = pipe.execute() if ids else []
        return {
            job_id: {name.decode(errors="replace"): value for name, value in answer.items()}
            for job_id, answer in zip(ids, answers, strict=True)
        }

    def _load_states(self, ids: Sequence[str]) -> dict[str, str | None]:
        with self._server.use_client() as client:
            states = [client.hget(_JOB + job_id, "status") for job_id in ids]
        return {
            job_id: None if state is None else state.decode()
            for job_id, state in zip(ids, states, strict=True)
        }


def _parents(fields: Mapping[str, bytes]) -> list[str]:
    try:
        return parent_ids(fields)
    except UnreadableMessage:
        return []  # decoding the job raises it again, and the job is skipped


def _keys_of(job_id: str) -> tuple[str, ...]:
    # With two colons, as RQ writes it.
    return f"{_JOB}{job_id}", f"{_JOB}{job_id}:dependents", f"{_JOB}:{job_id}:dependencies"
