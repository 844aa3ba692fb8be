"""`app.limits`: bounds on concurrent jobs and on the rate of starts."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.app.client import Client
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.durations_and_instants import Duration, duration_within
from forebay.domain.job import DAY_MS


class Limits:
    """The limits of a store. A change applies from the next claim of every worker.

    app.limits.set("global", concurrency=50)
    app.limits.set("queue:mail", rate=10, per=60, burst=20)
    app.limits.set("task:report", concurrency=2)
    app.limits.set("key:tenant", concurrency=3)  # for each value of the key by itself
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def set(
        self,
        scope: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Duration = 1,
        burst: int | None = None,
    ) -> Limit:
        """Set or replace the limit of a scope: "global", "queue:NAME", "task:NAME" or "key:KIND". The last
        one applies to each value of a key of this kind separately.

        At most `concurrency` jobs run at once, and at most `rate` start in `per`. After a pause `burst` jobs
        may start together, by default twice the rate. An option that is left out sets no limit. Raises
        ConfigError for a wrong value.
        """
        per_ms = duration_within("per", per, 1, DAY_MS)
        limit = Limit(scope=scope, concurrency=concurrency, rate=rate, per_ms=per_ms, burst=burst)
        self._client.write(lambda store: store.save_limit(limit, actor=self._client.actor))
        return limit

    async def set_async(
        self,
        scope: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Duration = 1,
        burst: int | None = None,
    ) -> Limit:
        """`set` for coroutines."""
        return await self._client.run_in_thread(
            self.set, scope, concurrency=concurrency, rate=rate, per=per, burst=burst
        )

    def remove(self, scope: str) -> bool:
        """Remove the limit of a scope; return whether there was one."""
        return self._client.write(lambda store: store.drop_limit(scope, actor=self._client.actor))

    async def remove_async(self, scope: str) -> bool:
        """`remove` for coroutines."""
        return await self._client.run_in_thread(self.remove, scope)

    def list(self) -> Sequence[Limit]:
        """Return all limits, by scope."""
        return self._client.read(lambda reader: reader.limits())

    async def list_async(self) -> Sequence[Limit]:
        """`list` for coroutines."""
        return await self._client.run_in_thread(self.list)
