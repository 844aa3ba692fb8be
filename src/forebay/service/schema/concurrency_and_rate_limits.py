"""Limits: requests, views and usage."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from forebay.domain.concurrency_and_rate_limits import MAX_LIMIT, Limit
from forebay.domain.job import DAY_MS
from forebay.operations.limit_status import LimitState, LimitStatus
from forebay.service.schema.base import RequestModel, ResponseModel, length, seconds


class LimitRequest(RequestModel, frozen=True, kw_only=True):
    """Limit of a scope: `concurrency` jobs run at once, `rate` jobs start in `per_seconds`. A scope is
    `global`, `queue:NAME`, `task:NAME` or `key:KIND`."""

    scope: Annotated[str, Meta(min_length=1, max_length=200)]
    concurrency: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    rate: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None
    per_seconds: Annotated[float, Meta(ge=0.001, le=DAY_MS / 1_000)] = 1
    burst: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] | None = None

    def limit(self) -> Limit:
        return Limit(
            scope=self.scope,
            concurrency=self.concurrency,
            rate=self.rate,
            per_ms=length(self.per_seconds) or 1,
            burst=self.burst,
        )


class LimitView(ResponseModel, frozen=True, kw_only=True):
    """Limit of a scope."""

    scope: str
    concurrency: int | None
    rate: int | None
    per_seconds: float
    burst: int | None


class LimitUsageView(ResponseModel, frozen=True, kw_only=True):
    """A limit with its usage. `running` jobs count under it, and `tokens` more may start by its rate.

    `state` is `at_limit` while as many jobs run as may, `out_of_tokens` while the rate has no token, else
    `open`. For a limit by key, `running` counts all values, `tokens` is null, and `at_limit` says that jobs
    of some value wait. `waiting` jobs could start without the limit; `waiting_workers` could claim them."""

    scope: str
    concurrency: int | None
    rate: int | None
    per_seconds: float
    burst: int | None
    state: LimitState
    running: int
    tokens: int | None
    waiting: int
    waiting_workers: list[str]


class LimitList(ResponseModel, frozen=True, kw_only=True):
    """Limits by scope."""

    limits: list[LimitUsageView]


def limit_view(limit: Limit) -> LimitView:
    return LimitView(
        scope=limit.scope,
        concurrency=limit.concurrency,
        rate=limit.rate,
        per_seconds=seconds(limit.per_ms) or 0.0,
        burst=limit.burst,
    )


def limit_usage_view(status: LimitStatus) -> LimitUsageView:
    limit = limit_view(status.usage.limit)
    return LimitUsageView(
        **asdict(limit),
        state=status.state,
        running=status.usage.running,
        tokens=status.usage.tokens,
        waiting=status.waiting,
        waiting_workers=list(status.waiting_workers),
    )
