"""Caller of a request: its name, its key, and what the key allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from forebay.domain.api_key import ApiKey
from forebay.domain.job import ALERT_QUEUE
from forebay.errors import Forbidden, JobNotFound
from forebay.service.client_rates_and_quotas import ClientUsage
from forebay.service.required_roles import ADMINS, CONSUMERS, REQUIRED_ROLES, VIEWERS


class Caller:
    """Authenticated client of one request.

    `key` is None where the server asks for no key. `has_token` is false if another program vouches for the
    client: the embedding app, or a proxy with a client certificate.
    """

    def __init__(
        self,
        name: str,
        key: ApiKey | None,
        request: str = "",
        headers: Mapping[str, str] | None = None,
        current_key: Callable[[], Awaitable[ApiKey]] | None = None,
        *,
        has_token: bool = True,
        usage: ClientUsage | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.has_token: bool = key is not None and has_token
        self.request = request
        self.headers: Mapping[str, str] = headers or {}
        self._current_key = current_key
        self.usage = usage

    @property
    def actor(self) -> str:
        """Name of the caller in the audit log."""
        return f"{self.name}#{self.request}" if self.request else self.name

    def reserve_wait(self, group: Hashable = None) -> AbstractContextManager[None]:
        """Count a waiting request of this client while the block lasts; raises TooManyRequests beyond its
        quota."""
        return nullcontext() if self.usage is None else self.usage.reserve_wait(group)

    def reserve_stream(self, group: Hashable = None) -> AbstractContextManager[None]:
        """Count a stream of this client while the block lasts; raises TooManyRequests beyond its quota."""
        return nullcontext() if self.usage is None else self.usage.reserve_stream(group)

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count a large request as in flight while the block lasts; raises TooManyRequests."""
        if self.usage is None:
            yield
            return
        self.usage.hold_bytes(size)
        try:
            yield
        finally:
            self.usage.release_bytes(size)

    def spend(self, data: bytes) -> None:
        """Count the bytes of a request or an answer."""
        if self.usage is not None:
            self.usage.spend(len(data))

    def may(self, operation: str, queue: str | None = None) -> bool:
        """Return whether the caller may do this to a queue, or to something that belongs to no queue."""
        needed = REQUIRED_ROLES.get(operation)
        if needed is None or self.key is None:
            return needed is not None
        if queue == ALERT_QUEUE and needed.isdisjoint(VIEWERS):
            # A forged delivery would be sent under the channel's signature, and a claimed one would never be
            # sent. So every change there is for administrators, who may write channels and their secrets.
            needed, queue = ADMINS, None
        return self.key.may(needed, queue)

    def may_in_all_queues(self, operation: str) -> bool:
        """Return whether the caller may do this to a job of any queue, the queue of alert deliveries
        included.

        Operations that need a lease skip that queue, because no client can hold a lease on a delivery. This
        check stands before every ack.
        """
        return self.may(operation) and (
            REQUIRED_ROLES[operation] == CONSUMERS or self.may(operation, ALERT_QUEUE)
        )

    def check(self, operation: str, queue: str | None = None) -> None:
        """Raise Forbidden unless the caller may do this."""
        if not self.may(operation, queue):
            raise self._forbidden_error(operation, f" for queue {queue}" if queue else " for all queues")

    def check_any_queue(self, operation: str) -> None:
        """Raise Forbidden if the caller may do this to no queue at all. This check needs no look at the
        request's body."""
        if self.key is not None and not self.key.has(REQUIRED_ROLES.get(operation, ())):
            raise self._forbidden_error(operation, "")

    def _forbidden_error(self, operation: str, scope_text: str) -> Forbidden:
        if scope_text.endswith(f" {ALERT_QUEUE}") and self.key is not None:
            return Forbidden(
                f"{self.name} may not {operation}: the queue {ALERT_QUEUE} is for deliveries of alerts, "
                "and that needs the role admin for all queues"
            )
        roles = " or ".join(sorted(REQUIRED_ROLES.get(operation, ("none",))))
        return Forbidden(f"{self.name} may not {operation}: that needs the role {roles}{scope_text}")

    async def recheck(self, operation: str = "", *queues: str) -> None:
        """Check again after a long wait, in which the key may have changed.

        Raises Unauthenticated for a key that is no longer valid, Forbidden for one that no longer allows this
        to these queues.
        """
        if self._current_key is not None:
            now = Caller(self.name, await self._current_key())
            for queue in queues:
                now.check(operation, queue)

    def may_see(self, queue: str) -> bool:
        """Return whether the caller may know the jobs of a queue."""
        return self.may("job", queue)

    def may_read(self, queue: str | None = None) -> bool:
        """Return whether the caller may read results, steps and log lines of a queue unmasked. For viewers
        and operators, values under names that look secret are masked."""
        return self.may("enqueue", queue) or self.may("claim", queue)

    def check_job(self, operation: str, job_id: str, queue: str) -> None:
        """Raise JobNotFound for a job of a queue that the caller may not see, Forbidden if it may see but not
        do this."""
        if not self.may(operation, queue) and not self.may_see(queue):
            raise JobNotFound(f"there is no job {job_id}")
        self.check(operation, queue)
