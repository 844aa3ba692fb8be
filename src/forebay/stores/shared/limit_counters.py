"""Counters of limits and of token buckets while an engine claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from forebay.domain.concurrency_and_rate_limits import Bucket, Limit, limit_scope, scopes_of, task_scope

# Jobs that one claim unparks, and limit lanes that it rechecks for that.
MAX_UNPARKED: Final = 1_000
MAX_RECHECKS: Final = 100
# Recheck interval of a limit lane without a running job whose end would release a slot.
RECHECK_MS: Final = 1_000


class StoredLimit(NamedTuple):
    """Limit as it is stored."""

    limit: Limit
    bucket: Bucket


class LimitCounter:
    """Counter of one limit during a claim, under the limit's lock: no other transaction counts or takes
    meanwhile."""

    __slots__ = ("bucket", "ends_at", "has_changed", "limit", "running", "scope")

    def __init__(
        self, stored: StoredLimit, running: int, *, scope: str | None = None, ends_at: int | None = None
    ) -> None:
        self.limit: Limit = stored.limit
        self.bucket: Bucket = stored.bucket
        self.scope: str = scope or stored.limit.scope  # what it counts: of a limit by key, one value
        # Jobs of its scope with a lease that has not ended; 0 where the limit does not need it.
        self.running: int = running
        self.ends_at: int | None = ends_at  # when the first of these leases ends
        self.has_changed: bool = False

    def room(self, now: int) -> int | None:
        """Return how many jobs may start; None for any number."""
        room = None
        if self.limit.concurrency is not None:
            room = max(0, self.limit.concurrency - self.running)
        if self.limit.rate is not None:
            tokens = self.limit.tokens(self.bucket, now)
            room = tokens if room is None else min(room, tokens)
        return room

    def is_full(self, now: int) -> bool:
        """Return whether not even one job may start."""
        limit = self.limit
        if limit.concurrency is not None and self.running >= limit.concurrency:
            return True
        return limit.rate is not None and limit.tokens(self.bucket, now) <= 0

    def take(self, jobs: int, tokens: int, now: int) -> None:
        """Record that jobs have started, and the tokens that they cost together. A bucket may owe up to
        its burst, and then no job starts before it has a token again."""
        self.running += jobs
        # After the clock was set back the bucket is written at once, so that time counts again from there.
        if self.limit.rate is not None and (tokens or self.bucket.refilled_at > now):
            self.bucket = self.limit.spend(self.bucket, tokens, now)
            self.has_changed = True

    def wait_ms(self, now: int) -> int | None:
        """Return the wait until the rate has a token; None if it has one, or if there is no rate."""
        if self.limit.rate is None or self.limit.tokens(self.bucket, now):
            return None
        return self.limit.wait_ms(self.bucket, now)

    def recheck_at(self, now: int, unparked: int) -> int:
        """Return when to recheck the limit's lane, after `unparked` jobs left it: with the next token, or
        when the first lease ends. A released slot makes that earlier."""
        limit = self.limit
        if limit.rate is not None and (limit.concurrency is None or self.running < limit.concurrency):
            return now + max(1, limit.wait_ms(limit.spend(self.bucket, unparked, now), now))
        return max(now + 1, self.ends_at or now + RECHECK_MS)


def bucket_conversion_params(old: Limit, new: Limit, now: int) -> dict[str, object]:
    """Return the parameters with which the SQL engines convert the buckets of a key to another limit, as
    `convert_bucket` does."""
    return {
        "scope": new.scope,
        "now": now,
        "old_rate": old.rate or 0,
        "old_per_ms": old.per_ms,
        "old_full": old.burst_size * old.per_ms,
        "per_ms": new.per_ms,
        "full": new.burst_size * new.per_ms,
    }


CounterLoader = Callable[[Limit, str], LimitCounter]


class LimitBudget:
    """Limits of one claim. Claims ask for room, and record what they started.

    Limits of a task or a key are counted when a job comes that they apply to: `load` counts the running jobs
    under one of them.
    """

    def __init__(
        self,
        counters: Iterable[LimitCounter],
        now: int,
        narrow: Iterable[Limit] = (),
        load: CounterLoader | None = None,
    ) -> None:
        self._counters = {counter.scope: counter for counter in counters}
        self._narrow = {limit.scope: limit for limit in narrow}
        kinds = {limit.kind: limit for limit in self._narrow.values() if limit.kind is not None}
        self._kinds = [(kind, f"{kinds[kind].scope}:", kinds[kind]) for kind in sorted(kinds)]
        self._scopes_of_tasks: dict[str, list[str]] = {}
        self._limit_of: dict[str, Limit] = {}  # by scopes that were requested
        self._load = load
        self._now = now
        self._waits: list[int] = []
        self._has_token_costs = False  # whether a job has started that does not cost exactly one token
        # Tokens that jobs of the claimed queue have cost beyond one each. They are taken together with one
        # token a job: a refund that comes first would be lost in a full bucket.
        self._extra_tokens = 0
        self.has_refund: bool = False  # whether tokens were refunded that other claims may take

    @property
    def has_narrow(self) -> bool:
        """Return whether limits apply to single jobs."""
        return bool(self._narrow)

    def room(self, queue: str, limit: int) -> int:
        """Return how many of `limit` jobs of a queue may start."""
        rooms = [counter.room(self._now) for counter in self._counters_of(queue)]
        return min([limit, *(room for room in rooms if room is not None)])

    def record_started(self, queue: str, jobs: int, allowed: int) -> None:
        """Record that `jobs` of a queue have started, of as many as the limits allowed."""
        for counter in self._counters_of(queue):
            counter.take(jobs, jobs + self._extra_tokens, self._now)
        self._extra_tokens = 0
        if jobs == allowed or self._has_token_costs:
            waits = [
                wait
                for counter in self._counters_of(queue)
                if (wait := counter.wait_ms(self._now)) is not None
            ]
            # More jobs may wait, and all of the queue's limits have to have room.
            self._waits += [max(waits)] if waits else []

    def is_rate_exhausted(self, queue: str, jobs: int) -> bool:
        """Return whether the rate is exhausted. Counts `jobs` that have started but are not recorded yet."""
        return self._has_token_costs and any(
            counter.limit.rate is not None
            and counter.limit.tokens(counter.bucket, self._now) <= jobs + self._extra_tokens
            for counter in self._counters_of(queue)
        )

    def scopes_for(self, task: str, keys: Mapping[str, str]) -> list[str]:
        """Return the scopes of such a job, by its task and its keys, that have a limit."""
        # Without helpers: this runs for each candidate.
        if not self._narrow:
            return []
        of_task = self._scopes_of_tasks.get(task)
        if of_task is None:
            of_task = self._scopes_of_tasks[task] = [
                scope for scope in (task_scope(task),) if scope in self._narrow
            ]
        if not keys:
            return of_task
        scopes = of_task.copy()
        for kind, prefix, limit in self._kinds:
            if kind in keys:
                scope = prefix + keys[kind]
                self._limit_of[scope] = limit
                scopes.append(scope)
        return scopes

    def first_full_scope(self, scopes: Iterable[str]) -> str | None:
        """Return the first scope of a job without room for it; None if the job may start."""
        for scope in scopes:
            if self._counter(scope).is_full(self._now):
                return scope
        return None

    def start(self, scopes: Iterable[str], ends_at: int, cost: int) -> None:
        """Record the start of a job in these scopes, with a lease that ends at `ends_at`."""
        for scope in scopes:
            counter = self._counter(scope)
            counter.take(1, cost, self._now)
            if counter.ends_at is None or ends_at < counter.ends_at:
                counter.ends_at = ends_at
        if cost != 1:
            self._has_token_costs = True
            self._extra_tokens += cost - 1

    def charge(self, scopes: Iterable[str], tokens: int) -> None:
        """Charge tokens that an attempt has cost beyond those taken at its start."""
        for scope in scopes:
            if (counter := self._counters.get(scope) or self.find_counter(scope)) is not None:
                counter.take(0, tokens, self._now)
                # Parked jobs are rechecked because of the released slot.
                self.has_refund |= (
                    tokens < 0 and counter.limit.rate is not None and not counter.limit.is_narrow
                )

    def missing_limits(self, scopes: Iterable[str]) -> dict[str, Limit]:
        """Return the scopes among these that have a limit without a counter, for engines that load many at
        once; `add` takes the counters."""
        counters, known, missing = self._counters, self._limit_of, {}
        for scope in scopes:
            if scope not in counters:
                limit = known.get(scope) or self._narrow.get(limit_scope(scope))
                if limit is not None:
                    missing[scope] = limit
        return missing

    def add(self, counter: LimitCounter) -> None:
        self._counters[counter.scope] = counter

    def find_counter(self, scope: str) -> LimitCounter | None:
        """Return the counter of a scope of a task or a key; None if it has no limit any more."""
        limit = self._narrow.get(limit_scope(scope))
        return None if limit is None else self._load_counter(limit, scope)

    @property
    def changed_counters(self) -> list[LimitCounter]:
        """Return the counters whose buckets are to be written."""
        return [counter for counter in self._counters.values() if counter.has_changed]

    def add_wait(self, ms: int | None) -> None:
        """Record that another claim is worth it after this time."""
        self._waits += [] if ms is None else [max(0, ms)]

    def next_wait(self, next_due_ms: int | None) -> int | None:
        """Return the wait until another claim is worth it: until a job is due, or a limit has room."""
        waits = self._waits if next_due_ms is None else [*self._waits, next_due_ms]
        return min(waits, default=None)

    def _counters_of(self, queue: str) -> list[LimitCounter]:
        return [self._counters[scope] for scope in scopes_of(queue) if scope in self._counters]

    def _counter(self, scope: str) -> LimitCounter:
        return self._counters.get(scope) or self._load_counter(self._narrow[limit_scope(scope)], scope)

    def _load_counter(self, limit: Limit, scope: str) -> LimitCounter:
        if scope not in self._counters and self._load is not None:
            self._counters[scope] = self._load(limit, scope)
        return self._counters[scope]
