"""Authorized request: the caller and the service, which is handed out only with a permission check."""

from __future__ import annotations

from forebay.domain.job import JobId
from forebay.errors import Forbidden, ForebayError
from forebay.service.caller import Caller
from forebay.service.schema.job_views import JobListItem, redact_list_item
from forebay.service.service import Service


class AuthorizedRequest:
    """One request of one caller."""

    __slots__ = ("caller", "service")

    def __init__(self, service: Service, caller: Caller) -> None:
        self.service: Service = service  # only for what needs no permission
        self.caller: Caller = caller

    @property
    def actor(self) -> str:
        """Name of the caller in the audit log."""
        return self.caller.actor

    def authorize(self, operation: str, *queues: str) -> Service:
        """Return the service for an operation on all these queues, or on something that belongs to no queue.

        Raises Forbidden. All permission functions get the service from here, so none can forget the check.
        """
        for queue in queues or (None,):
            self.caller.check(operation, queue)
        return self.service

    def check_text(self, text: str | None, *queues: str) -> None:
        """Raise Forbidden for a search by text in queues that the caller may not claim from.

        The text is compared with arguments as they are stored, so a match would reveal what a mask hides.
        """
        for queue in queues or (None,):
            if text is not None and not self.caller.may("claim", queue):
                where = f"queue {queue}" if queue else "all queues"
                raise Forbidden(
                    f"{self.caller.name} may not search by text: it finds masked secrets too, and needs the "
                    f"role consume for {where}; search by task, tags or metadata instead"
                )

    def redact_items(self, found: list[JobListItem]) -> list[JobListItem]:
        """Return list items as the caller may see them: a reason may name a job of a hidden queue."""
        return found if self.caller.may("job") else [redact_list_item(item) for item in found]

    async def authorize_jobs(self, operation: str, *ids: str) -> Service:
        """Return the service for an operation on these jobs; raises JobNotFound or Forbidden for the first
        forbidden one."""
        for error in (await self.find_refusals(operation, *ids)).values():
            raise error
        return self.service

    async def find_refusals(self, operation: str, *ids: str) -> dict[str, ForebayError]:
        """Return the errors for the jobs that the caller may not do this to.

        Only a key that is not for all queues costs a read of the jobs. A job that is moved to another queue
        between this check and the operation was allowed a moment ago.
        """
        refused = dict[str, ForebayError]()
        if not self.caller.may_in_all_queues(operation):
            distinct = list(map(JobId, dict.fromkeys(ids)))
            found = await self.service.pool.jobs(distinct, with_payload=False)
            for job_id, job in zip(distinct, found, strict=True):
                try:
                    if job is not None:  # else the operation reports it
                        self.caller.check_job(operation, job_id, job.queue)
                except ForebayError as exc:
                    refused[job_id] = exc
        return refused
