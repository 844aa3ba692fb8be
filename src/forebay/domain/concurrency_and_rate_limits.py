"""Limits: how many jobs may run at once, and how many may start in a time.

A rate is a token bucket. It counts parts of a token: a token has as many parts as the rate's time has
milliseconds. So a bucket gains `rate` parts in each millisecond, and nothing is ever rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from forebay.domain.job import DAY_MS, QueueName
from forebay.domain.job_validation import check_kind, check_queue_name, check_task_name
from forebay.errors import ConfigError, InvalidJob

GLOBAL: Final = "global"
MAX_LIMIT: Final = 1_000_000
_QUEUE: Final = "queue:"
_TASK: Final = "task:"
_KEY: Final = "key:"
_CHECKS: Final[dict[str, Callable[[str], None]]] = {
    _QUEUE: check_queue_name,
    _TASK: check_task_name,
    _KEY: check_kind,
}


def queue_scope(queue: str) -> str:
    """Return the scope of all jobs of one queue."""
    return f"{_QUEUE}{queue}"


def scopes_of(queue: str) -> tuple[str, str]:
    """Return the scopes of a job of this queue, in the order in which they are locked."""
    return GLOBAL, queue_scope(queue)


def task_scope(task: str) -> str:
    """Return the scope of all jobs of one task."""
    return f"{_TASK}{task}"


def key_scope(kind: str) -> str:
    """Return the scope of all jobs with a key of this kind, for each value separately."""
    return f"{_KEY}{kind}"


def narrow_scopes(task: str, keys: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the scopes of a job that not all jobs of its queue have: the limit's scope, and the counted
    scope."""
    yield task_scope(task), task_scope(task)
    for kind in sorted(keys):
        yield key_scope(kind), f"{_KEY}{kind}:{keys[kind]}"


def limit_scope(scope: str) -> str:
    """Return the scope of the limit that counts this one: for a key, the scope of its kind."""
    return ":".join(scope.split(":", 2)[:2]) if scope.startswith(_KEY) else scope


class Bucket(NamedTuple):
    """Token bucket: what a rate had left at a time, in parts of a token."""

    token_parts: int
    refilled_at: int


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limit of a scope: at most `concurrency` jobs run at once, and at most `rate` of them start in `per_ms`.

    A scope is "global" for all jobs, "queue:NAME", "task:NAME", or "key:KIND" for the jobs of each value of
    such a key. None is no limit. After a pause `burst` may start together, by default twice the rate.
    """

    scope: str
    concurrency: int | None = None
    rate: int | None = None
    per_ms: int = 1_000
    burst: int | None = None

    def __post_init__(self) -> None:
        _check_scope(self.scope)
        if self.concurrency is None and self.rate is None:
            raise ConfigError(f"the limit of {self.scope} needs a concurrency or a rate")
        for name in ("concurrency", "rate", "burst"):
            value = getattr(self, name)
            if value is not None:
                _check_integer(name, value, MAX_LIMIT)
        _check_integer("per_ms", self.per_ms, DAY_MS)
        if self.rate is None and (self.burst is not None or self.per_ms != 1_000):  # noqa: PLR2004 - the default
            raise ConfigError("burst and per_ms go with a rate")

    @property
    def queue(self) -> QueueName | None:
        """Return the queue of the scope; None for another scope."""
        return QueueName(self.scope.removeprefix(_QUEUE)) if self.scope.startswith(_QUEUE) else None

    @property
    def kind(self) -> str | None:
        """Return the kind of key of the scope; None for another scope."""
        return self.scope.removeprefix(_KEY) if self.scope.startswith(_KEY) else None

    @property
    def is_narrow(self) -> bool:
        """Return whether it applies to some jobs of a queue only: jobs at the limit must not delay the
        others."""
        return self.scope.startswith((_TASK, _KEY))

    @property
    def burst_size(self) -> int:
        """Return how many jobs may start together after a pause."""
        return self.burst or min(2 * (self.rate or 0), MAX_LIMIT)

    def full_bucket(self, now: int) -> Bucket:
        """Return the bucket of an unused limit."""
        return Bucket(self.burst_size * self.per_ms, now)

    def refill(self, bucket: Bucket, now: int) -> Bucket:
        """Return the bucket at another time. A clock that was set back gives nothing, and counts from
        there. A debt from before the limit was lowered counts as far as `spend` allows one."""
        full = self.burst_size * self.per_ms
        rate = self.rate or 0
        # More time than it takes to fill the bucket does not matter; the bound keeps the numbers small.
        elapsed = min(max(0, now - bucket.refilled_at), self.per_ms * MAX_LIMIT)
        return Bucket(min(full, max(-full, bucket.token_parts) + elapsed * rate), now)

    def tokens(self, bucket: Bucket, now: int) -> int:
        """Return how many jobs may start."""
        return max(0, self.refill(bucket, now).token_parts // self.per_ms)

    def spend(self, bucket: Bucket, jobs: int, now: int) -> Bucket:
        """Return the bucket after this many tokens are spent; a negative number is refunded, as far as there
        is room.

        A bucket owes at most its burst: limits are shared, and one expensive job must not stop the others for
        hours. A refund is at most a burst too, because the start of the job took hardly more.
        """
        full = self.burst_size * self.per_ms
        parts, refilled_at = self.refill(bucket, now)
        left = parts - max(-full, jobs * self.per_ms)
        return Bucket(max(-full, min(full, left)), refilled_at)

    def wait_ms(self, bucket: Bucket, now: int) -> int:
        """Return the time until the next job may start."""
        missing = self.per_ms - self.refill(bucket, now).token_parts
        return max(0, -(-missing // (self.rate or 1)))

    def convert_bucket(self, old: Limit | None, bucket: Bucket, now: int) -> Bucket:
        """Return the bucket of this limit in place of another one: what is left of the old one, as far as
        there is room. So a change allows no burst."""
        if old is None or old.rate is None or self.rate is None:
            return self.full_bucket(now)
        left = old.refill(bucket, now).token_parts * self.per_ms // old.per_ms
        return Bucket(min(left, self.burst_size * self.per_ms), now)


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a limit: its running jobs, and how many may start by its rate. For a limit by key `running`
    is of all values together, and `tokens` is None, since each value has its own."""

    limit: Limit
    running: int
    tokens: int | None = None

    @property
    def is_at_limit(self) -> bool:
        """Return whether so many jobs run that no other may start."""
        concurrency = self.limit.concurrency
        return self.limit.kind is None and concurrency is not None and self.running >= concurrency

    @property
    def is_out_of_tokens(self) -> bool:
        """Return whether no other job may start before the rate has a token again."""
        return self.tokens == 0


def usage_of(limit: Limit, bucket: Bucket, running: int, now: int) -> LimitUsage:
    """Return the usage of a limit from its stored bucket."""
    has_tokens = limit.rate is not None and limit.kind is None
    return LimitUsage(limit=limit, running=running, tokens=limit.tokens(bucket, now) if has_tokens else None)


def _check_scope(scope: str) -> None:
    if scope == GLOBAL:
        return
    kind, colon, name = str(scope).partition(":")
    check = _CHECKS.get(kind + colon)
    if check is None:
        raise ConfigError(
            f"{scope!r} is no scope of a limit: there are {GLOBAL}, queue:NAME, task:NAME and key:KIND"
        )
    try:
        check(name)
    except InvalidJob as exc:
        raise ConfigError(f"the scope of a limit: {exc}") from exc


def _check_integer(name: str, value: int, maximum: int) -> None:
    if type(value) is not int or not 1 <= value <= maximum:
        raise ConfigError(f"{name} must be a whole number from 1 to {maximum}, not {value!r}")
