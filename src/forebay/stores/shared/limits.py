"""The part of the seam that keeps limits, and what they leave for the claims of one exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from forebay.domain.limits import Bucket, Limit, limit_scope, scopes_of, task_scope

# Jobs that one claim brings back from behind gates, and gates that it looks at for that.
MAX_UNPARKED: Final = 1_000
MAX_RECHECKS: Final = 100
# After so long somebody looks again behind a gate that nobody seems to keep closed.
RECHECK_MS: Final = 1_000


class StoredLimit(NamedTuple):
    """A limit as it is stored."""

    limit: Limit
    bucket: Bucket


class LimitCounter:
    """One limit while an exchange claims: under its lock, so that nobody else counts or takes meanwhile."""

    __slots__ = ("bucket", "ends_at", "has_changed", "limit", "running", "scope")

    def __init__(
        self, stored: StoredLimit, running: int, *, scope: str | None = None, ends_at: int | None = None
    ) -> None:
        self.limit: Limit = stored.limit
        self.bucket: Bucket = stored.bucket
        self.scope: str = scope or stored.limit.scope  # what it counts: of a limit by key, one value
        # Jobs of its scope with a lease that has not ended; 0 where nobody asks for it.
        self.running: int = running
        self.ends_at: int | None = ends_at  # when the first of these leases ends
        self.has_changed: bool = False

    def room(self, now: int) -> int | None:
        """How many may start; None for any number."""
        most = None
        if self.limit.concurrency is not None:
            most = max(0, self.limit.concurrency - self.running)
        if self.limit.rate is not None:
            tokens = self.limit.tokens(self.bucket, now)
            most = tokens if most is None else min(most, tokens)
        return most

    def is_full(self, now: int) -> bool:
        """Whether not even one may start."""
        limit = self.limit
        if limit.concurrency is not None and self.running >= limit.concurrency:
            return True
        return limit.rate is not None and limit.tokens(self.bucket, now) <= 0

    def take(self, jobs: int, tokens: int, now: int) -> None:
        """Record that jobs have started, and what they cost together. A bucket may owe up to its burst, and
        then no job starts before it has a token again."""
        self.running += jobs
        # Of a clock that was set back note is taken at once, so that time counts again from there.
        if self.limit.rate is not None and (tokens or self.bucket.refilled_at > now):
            self.bucket = self.limit.spend(self.bucket, tokens, now)
            self.has_changed = True

    def wait_ms(self, now: int) -> int | None:
        """After how long its rate lets somebody in; None if it does, or if that is not what holds jobs up."""
        if self.limit.rate is None or self.limit.tokens(self.bucket, now):
            return None
        return self.limit.wait_ms(self.bucket, now)

    def recheck_at(self, now: int, unparked: int) -> int:
        """When to look again behind its gate, once `unparked` jobs were brought back: with its next token, or
        when the first lease ends. Whoever frees a place before makes that earlier."""
        limit = self.limit
        if limit.rate is not None and (limit.concurrency is None or self.running < limit.concurrency):
            return now + max(1, limit.wait_ms(limit.spend(self.bucket, unparked, now), now))
        return max(now + 1, self.ends_at or now + RECHECK_MS)


def bucket_conversion_params(old: Limit, new: Limit, now: int) -> dict[str, object]:
    """What the engines on SQL need to give the buckets of a key to another limit, as `convert_bucket`
    does."""
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
    """The limits of one exchange. Claims ask for room, and say what they took.

    Limits of a task or a key are looked at when a job comes that they are for: `load` counts what runs under
    one of them.
    """

    def __init__(
        self,
        counters: Iterable[LimitCounter],
        now: int,
        narrow: Iterable[Limit] = (),
        load: CounterLoader | None = None,
    ) -> None:
        self._counters = {gauge.scope: gauge for gauge in counters}
        self._narrow = {limit.scope: limit for limit in narrow}
        kinds = {limit.kind: limit for limit in self._narrow.values() if limit.kind is not None}
        self._kinds = [(kind, f"{kinds[kind].scope}:", kinds[kind]) for kind in sorted(kinds)]
        self._scopes_of_tasks: dict[str, list[str]] = {}
        self._limit_of: dict[str, Limit] = {}  # by scopes that were asked for
        self._load = load
        self._now = now
        self._waits: list[int] = []
        self._has_token_costs = (
            False  # whether a job has started that costs another number of tokens than one
        )
        # What jobs of the queue that is claimed from have cost beyond one each. It is taken with their
        # number: what a free job gives back before anything is taken would be lost in a full bucket.
        self._extra_tokens = 0
        self.has_refund: bool = False  # whether tokens were given back that jobs of other claims may have

    @property
    def has_narrow(self) -> bool:
        """Whether single jobs have to be looked at."""
        return bool(self._narrow)

    def room(self, queue: str, limit: int) -> int:
        """How many of `limit` jobs of a queue may start."""
        rooms = [gauge.room(self._now) for gauge in self._counters_of(queue)]
        return min([limit, *(room for room in rooms if room is not None)])

    def record_started(self, queue: str, jobs: int, allowed: int) -> None:
        """So many jobs of a queue have started, of as many as the limits left room for."""
        for gauge in self._counters_of(queue):
            gauge.take(jobs, jobs + self._extra_tokens, self._now)
        self._extra_tokens = 0
        if jobs == allowed or self._has_token_costs:
            waits = [
                wait for gauge in self._counters_of(queue) if (wait := gauge.wait_ms(self._now)) is not None
            ]
            # There may be more to start, and all of its limits have to let it in.
            self._waits += [max(waits)] if waits else []

    def is_rate_exhausted(self, queue: str, jobs: int) -> bool:
        """Whether jobs that cost more than a token have used up what there was room for, once so many of a
        queue have started that it was not said of yet."""
        return self._has_token_costs and any(
            gauge.limit.rate is not None
            and gauge.limit.tokens(gauge.bucket, self._now) <= jobs + self._extra_tokens
            for gauge in self._counters_of(queue)
        )

    def scopes_for(self, task: str, keys: Mapping[str, str]) -> list[str]:
        """The scopes of a task or a key that such a job is in, and that have a limit."""
        # Written out: this is asked for each job that comes.
        if not self._narrow:
            return []
        of_task = self._scopes_of_tasks.get(task)
        if of_task is None:
            of_task = self._scopes_of_tasks[task] = [of for of in (task_scope(task),) if of in self._narrow]
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
        """Which of the scopes of a job has no room for it; None if it may start."""
        for scope in scopes:
            if self._counter(scope).is_full(self._now):
                return scope
        return None

    def start(self, scopes: Iterable[str], ends_at: int, cost: int) -> None:
        """A job with these scopes has started, with a lease that ends then."""
        for scope in scopes:
            gauge = self._counter(scope)
            gauge.take(1, cost, self._now)
            if gauge.ends_at is None or ends_at < gauge.ends_at:
                gauge.ends_at = ends_at
        if cost != 1:
            self._has_token_costs = True
            self._extra_tokens += cost - 1

    def charge(self, scopes: Iterable[str], tokens: int) -> None:
        """An attempt has cost so much more than was taken when it started."""
        for scope in scopes:
            if (gauge := self._counters.get(scope) or self.find_counter(scope)) is not None:
                gauge.take(0, tokens, self._now)
                # Who waits behind a gate is told by the place that was freed.
                self.has_refund |= tokens < 0 and gauge.limit.rate is not None and not gauge.limit.is_narrow

    def missing_limits(self, scopes: Iterable[str]) -> dict[str, Limit]:
        """Which of these scopes have a limit that nobody has looked at yet, for engines that ask for many at
        once; `add` takes the answers."""
        gauges, known, missing = self._counters, self._limit_of, {}
        for scope in scopes:
            if scope not in gauges:
                limit = known.get(scope) or self._narrow.get(limit_scope(scope))
                if limit is not None:
                    missing[scope] = limit
        return missing

    def add(self, counter: LimitCounter) -> None:
        self._counters[counter.scope] = counter

    def find_counter(self, scope: str) -> LimitCounter | None:
        """What counts a scope of a task or a key; None if there is no limit for it any more."""
        limit = self._narrow.get(limit_scope(scope))
        return None if limit is None else self._load_counter(limit, scope)

    @property
    def changed_counters(self) -> list[LimitCounter]:
        """Those whose buckets are to be written."""
        return [gauge for gauge in self._counters.values() if gauge.has_changed]

    def add_wait(self, ms: int | None) -> None:
        """It is worth to ask again after this time."""
        self._waits += [] if ms is None else [max(0, ms)]

    def next_wait(self, next_due_ms: int | None) -> int | None:
        """After how long it is worth to ask again: when a job is due, or when a limit lets one in."""
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
