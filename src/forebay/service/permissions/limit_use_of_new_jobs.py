"""Checks of new jobs against limits that all keys share.

A rate is spent by jobs of every queue that it covers, and a limit by task or by key counts jobs of all
queues. So a key may name only tasks and limit keys that it was granted. The cost of a job of a key that is
not for all queues is at most the burst of each of its limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.domain.concurrency_and_rate_limits import Limit, narrow_scopes, scopes_of
from forebay.domain.job import QueueName
from forebay.errors import Forbidden
from forebay.service.permissions.authorized_request import AuthorizedRequest


class LimitedJob(Protocol):
    """Fields of a job by which limits count it."""

    @property
    def task(self) -> str: ...

    @property
    def queue(self) -> QueueName | str: ...

    @property
    def limit_keys(self) -> dict[str, str]: ...

    @property
    def cost(self) -> int: ...


async def check_limits(permit: AuthorizedRequest, operation: str, jobs: Sequence[LimitedJob]) -> None:
    """Raise Forbidden for a job with a task, a limit key or a cost that the key was not granted.

    Only a job that costs more than one token needs a read of the limits: every bucket holds one.
    """
    caller = permit.caller
    if caller.key is None:
        return
    is_for_all = caller.may(operation)
    for job in jobs:
        if not caller.key.may_name(job.task):
            raise Forbidden(
                f"{caller.name} may not enqueue {job.task!r:.120}: an administrator can give another key the "
                f"grant task:{job.task:.100}"
            )
        if job.limit_keys and not caller.key.may_use_limit_keys(job.limit_keys, is_for_all=is_for_all):
            wanted = ", ".join(f"limit:{kind}={value}" for kind, value in job.limit_keys.items())
            raise Forbidden(
                f"{caller.name} may not use these limit keys, which all queues share: an administrator can "
                f"give another key the grant {wanted:.300}"
            )
    costly = [job for job in jobs if job.cost > 1]
    if costly and not is_for_all:
        found = await permit.service.pool.read(lambda reader: reader.limits())
        limits = {limit.scope: limit for limit in found if limit.rate is not None}
        for job in costly:
            _check_cost(caller.name, job, limits)


def _check_cost(name: str, job: LimitedJob, limits: Mapping[str, Limit]) -> None:
    narrow = [scope for scope, _ in narrow_scopes(job.task, job.limit_keys)]
    for scope in (*scopes_of(job.queue), *narrow):
        limit = limits.get(scope)
        if limit is not None and job.cost > limit.burst_size:
            raise Forbidden(
                f"{name} may not enqueue a job that costs {job.cost:,}: the limit of {scope} holds "
                f"{limit.burst_size:,} tokens, and more needs the role produce for all queues"
            )
