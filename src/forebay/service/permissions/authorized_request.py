"""Who asks, and the service that they ask: the operations are only to be had with leave."""

from __future__ import annotations

from forebay.domain.job import JobId
from forebay.errors import Forbidden, ForebayError
from forebay.service.auth import Caller
from forebay.service.schema.job_views import JobListItem, redact_list_item
from forebay.service.service import Service


class AuthorizedRequest:
    """One request of one caller."""

    __slots__ = ("caller", "service")

    def __init__(self, service: Service, caller: Caller) -> None:
        self.service: Service = service  # for what needs nobody's leave
        self.caller: Caller = caller

    @property
    def actor(self) -> str:
        """Who asks, for the record."""
        return self.caller.actor

    def authorize(self, operation: str, *queues: str) -> Service:
        """The operations, for one that who asks may do to all these queues, or to what belongs to none;
        raises Forbidden. Everybody gets the service from here and below, so none can forget to ask."""
        for queue in queues or (None,):
            self.caller.check(operation, queue)
        return self.service

    def check_text(self, text: str | None, *queues: str) -> None:
        """Raise Forbidden for a search by text in queues that they may not claim from: it is compared with
        arguments as they are stored, so whether it fits would tell what a mask hides."""
        for queue in queues or (None,):
            if text is not None and not self.caller.may("claim", queue):
                where = f"queue {queue}" if queue else "all queues"
                raise Forbidden(
                    f"{self.caller.name} may not search by text: it finds masked secrets too, and needs the "
                    f"role consume for {where}; search by task, tags or metadata instead"
                )

    def redact_items(self, found: list[JobListItem]) -> list[JobListItem]:
        """Lines of a list as they may be seen: a job may have ended because of one of a hidden queue."""
        return found if self.caller.may("job") else [redact_list_item(line) for line in found]

    async def authorize_jobs(self, operation: str, *ids: str) -> Service:
        """The same for what is done to jobs; raises JobNotFound or Forbidden for the first that they may
        not."""
        for error in (await self.find_refusals(operation, *ids)).values():
            raise error
        return self.service

    async def find_refusals(self, operation: str, *ids: str) -> dict[str, ForebayError]:
        """With which of these jobs who asks may not do this, and what to answer instead. Only a key that is
        not for every queue costs a look at theirs.

        A job that is moved to another queue between the look and the deed was one that they might have dealt
        with a moment ago.
        """
        refused = dict[str, ForebayError]()
        if not self.caller.may_in_all_queues(operation):
            distinct = list(map(JobId, dict.fromkeys(ids)))
            found = await self.service.pool.jobs(distinct, with_payload=False)
            for job_id, job in zip(distinct, found, strict=True):
                try:
                    if job is not None:  # else the operation says so
                        self.caller.check_job(operation, job_id, job.queue)
                except ForebayError as exc:
                    refused[job_id] = exc
        return refused
