"""Permission rules of remote store reads: named jobs and queues, or all that the caller may see.

A job of a hidden queue is reported as missing, and no visible record names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.dependencies import Edge
from forebay.domain.job import JobId, QueueName
from forebay.domain.job_history import Event, Timeline
from forebay.domain.job_query import Page
from forebay.domain.job_views import JobStateInfo, JobSummary
from forebay.domain.metrics import MetricPage
from forebay.domain.progress import JobProgress
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.stored_document import CHANNEL, Document
from forebay.operations.alerts.stored_rules_alerts_and_channels import ALERT, BOARD, RULE
from forebay.operations.gradual_revive import KIND as GRADUAL_REVIVE
from forebay.payload.alert_channel_encryption import mask_channel
from forebay.payload.codec import mask_call
from forebay.payload.store_identity import BLOB_PREFIX_KIND
from forebay.service.api_keys import KIND
from forebay.service.browser_sessions import KIND as SESSION
from forebay.service.caller import Caller
from forebay.service.permissions.remote_store_access import (
    ResultFilter,
    StoreAccess,
    StoreCallRule,
    redact_reason,
)

PRIVATE_KINDS: Final = (KIND, SESSION, CHANNEL)
# Operation that allows reads of documents of a kind; other kinds need the permission to read keys.
_KIND_OPERATIONS: Final = {**dict.fromkeys((ALERT, BOARD, RULE), "alerts"), GRADUAL_REVIVE: "gradual_revives"}


def job_rule(empty: Any) -> StoreCallRule:
    """Return the rule for a read of one job; `empty` is the result for a hidden one."""

    async def rule(access: StoreAccess, call_args: Any) -> ResultFilter | None:
        if not await access.find_forbidden("job", [call_args.job_id]):
            return None
        return _replace_with(empty)

    return rule


async def progress(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    """Hide the progress of a job of a hidden queue, and mask it for a caller that may only view."""
    if access.caller.may("job") and access.caller.may_read():
        return None
    job = (await access.load_jobs([call_args.job_id])).get(call_args.job_id)
    if job is None or not access.caller.may_see(job.queue):
        return _replace_with(JobProgress())

    async def narrow(found: JobProgress) -> JobProgress:
        return access.redact_progress(job.queue, found)

    return narrow


def queues_rule(field: str) -> StoreCallRule:
    """Return the rule for a read of queues: the named ones, or all visible ones."""

    async def rule(access: StoreAccess, call_args: Any) -> ResultFilter | None:
        named = getattr(call_args, field)
        access.check_queues("queue", named)
        return None if named or access.caller.may("queues") else _visible_only(access.caller)

    return rule


def _replace_with(result: Any) -> ResultFilter:
    async def narrow(_: Any) -> Any:
        return result

    return narrow


def _visible_only(caller: Caller) -> ResultFilter:
    async def narrow(found: Any) -> Any:
        if isinstance(found, Mapping):
            return {name: record for name, record in found.items() if caller.may("queues", name)}
        return [record for record in found if caller.may("queues", _queue_of(record))]

    return narrow


def _queue_of(record: Any) -> QueueName:
    name: QueueName = record.queue if hasattr(record, "queue") else record.name
    return name


async def jobs(access: StoreAccess, _: Any) -> ResultFilter | None:
    return None if access.caller.may("claim") else access.redact_jobs


async def job_states(access: StoreAccess, _: Any) -> ResultFilter | None:
    async def narrow(found: list[JobStateInfo | None]) -> list[JobStateInfo | None]:
        return [
            replace(state, reason=redact_reason(state.reason))
            if state is not None and access.caller.may_see(state.queue)
            else None
            for state in found
        ]

    return None if access.caller.may("job") else narrow


async def history(access: StoreAccess, _: Any) -> ResultFilter | None:
    async def narrow(found: Timeline | None) -> Timeline | None:
        [job] = await access.redact_jobs([None if found is None else found.job])
        if found is None or job is None:
            return None
        hidden = await access.find_hidden([found.job.parent_id])
        events = tuple(_redact_event(event, hidden) for event in found.events)
        return replace(
            found, job=job, events=events, progress=access.redact_progress(job.queue, found.progress)
        )

    return None if access.caller.may("claim") else narrow


def _redact_event(event: Event, hidden: Iterable[JobId]) -> Event:
    detail = event.detail
    for job_id in hidden:
        detail = detail.replace(job_id, "a job of another queue")
    return event if detail == event.detail else replace(event, detail=detail)


async def schedules(access: StoreAccess, _: Any) -> ResultFilter | None:
    async def narrow(found: list[Schedule]) -> list[Schedule]:
        return [replace(schedule, definition=_mask_definition(schedule.definition)) for schedule in found]

    access.caller.check("schedules")
    return None if access.caller.may("claim") else narrow


def _mask_definition(definition: ScheduleDefinition) -> ScheduleDefinition:
    job = definition.job
    return replace(definition, job=job.with_payload(mask_call(job.payload)))


async def search(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    access.check_queues("search", call_args.query.queues)
    if not call_args.query.queues:
        access.caller.check("search")
    access.check_text(call_args.query.text, *call_args.query.queues)

    async def narrow(page: Page) -> Page:
        return replace(page, jobs=tuple(access.redact_summaries(page.jobs)))

    return None if access.caller.may("job") else narrow


async def peek(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    access.caller.check("peek", call_args.queue)

    async def narrow(found: list[JobSummary]) -> list[JobSummary]:
        return access.redact_summaries(found)

    return None if access.caller.may("job") else narrow


async def lanes(access: StoreAccess, _: Any) -> ResultFilter | None:
    return None if access.caller.may("queues") else _visible_only(access.caller)


async def dependencies(access: StoreAccess, _: Any) -> ResultFilter | None:
    if access.caller.may("job"):
        return None

    async def narrow(found: list[Edge]) -> list[Edge]:
        forbidden = await access.find_forbidden(
            "job", (job_id for edge in found for job_id in (edge.parent, edge.child))
        )
        return [edge for edge in found if forbidden.isdisjoint((edge.parent, edge.child))]

    return narrow


async def metrics(access: StoreAccess, _: Any) -> ResultFilter | None:
    may = access.caller.may

    async def narrow(page: MetricPage) -> MetricPage:
        return page._replace(rows=[row for row in page.rows if may("queue_metrics", row.queue)])

    return None if may("queue_metrics") else narrow


async def documents(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    # Programs with a blob store read the store's id, which is in the names of their blobs.
    if call_args.kind != BLOB_PREFIX_KIND:
        access.caller.check(_KIND_OPERATIONS.get(call_args.kind, "keys"))
    return _mask_channels if call_args.kind == CHANNEL else None


async def _mask_channels(found: list[Document]) -> list[Document]:
    # For administrators too: a stored secret is never shown again.
    return list(map(mask_channel, found))
