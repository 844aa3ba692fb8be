"""How much one call of the store may ask for. Everybody's calls go through the same few threads, so none may
be as large as its caller likes; what it brings along is bounded by the size of a request."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.job import DAY_MS, MIN_LEASE_MS, check_whole
from forebay.domain.text import clean
from forebay.domain.worker import MAX_BEAT_MS, MIN_BEAT_MS, SHOWN_JOBS, WorkerInfo
from forebay.errors import InvalidJob
from forebay.stores.wire import JOBS_AT_ONCE

MOST: Final = 10_000
MAX_HOST: Final = 255
_LISTS: Final = ("ids", "names", "queues", "workers", "wants", "dead")


def bounded(operation: str, asked: Any) -> None:
    """Raise InvalidJob for a call that asks for too much, and cut what can be had in several parts."""
    for name in _LISTS:
        if len(getattr(asked, name, None) or ()) > MOST:
            raise InvalidJob(f"a call takes at most {MOST:,} {name}", field=name)
    if operation == "jobs" and len(set(asked.ids)) != len(asked.ids):
        raise InvalidJob("each job is asked for once", field="ids")
    if operation == "jobs" and len(asked.ids) > JOBS_AT_ONCE:
        raise InvalidJob(f"at most {JOBS_AT_ONCE:,} jobs are shown at once", field="ids")
    limit = getattr(asked, "limit", None)
    if isinstance(limit, int):  # and no Limit
        check_whole("limit", limit, 0, MOST)
    _check_lease(getattr(asked, "lease_ms", None))
    if operation == "exchange":
        for want in asked.wants:
            _check_lease(want.lease_ms)
        # Whoever has room for more asks again.
        asked.room = min(asked.room, MOST)
        asked.wants = [want._replace(most=min(want.most, MOST)) for want in asked.wants]


def _check_lease(lease_ms: int | None) -> None:
    if lease_ms is not None:
        check_whole("lease_ms", lease_ms, MIN_LEASE_MS, DAY_MS)


def sane(worker: WorkerInfo) -> WorkerInfo:
    """What a worker says about itself as far as it can be true: everybody who looks at workers reckons with
    it."""
    return replace(
        worker,
        host=clean(worker.host)[:MAX_HOST],
        beat_ms=min(max(worker.beat_ms, MIN_BEAT_MS), MAX_BEAT_MS),
        running=worker.running[:SHOWN_JOBS],
    )
