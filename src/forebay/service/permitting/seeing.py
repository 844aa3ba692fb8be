"""What a caller of the store may look at: jobs, queues and the rest that it names, or all that it may see.

A job of a queue that a caller may not see is answered as if there were none, and nothing that it does see
names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from forebay.app.alert_records import ALERT, BOARD, RULE
from forebay.app.channel_encryption import mask_channel
from forebay.app.codec import masked_call
from forebay.app.ramping import KIND as RAMP
from forebay.app.store_identity import BLOBS
from forebay.domain.document import CHANNEL, Document
from forebay.domain.history import Event, Timeline
from forebay.domain.job import JobId, JobSummary, QueueName
from forebay.domain.metrics import MetricPage
from forebay.domain.note import Notes
from forebay.domain.query import Fate, Page
from forebay.domain.schedule import Definition, Schedule
from forebay.domain.workflow import Edge
from forebay.service.auth import Caller
from forebay.service.keys import KIND
from forebay.service.permitting.reach import Narrow, Need, Reach, nobody_named
from forebay.service.sessions import KIND as SESSION

PRIVATE: Final = (KIND, SESSION, CHANNEL)
# Which operation one must be allowed to look at documents of a kind; others are for who may look at keys.
_OF_KINDS: Final = {**dict.fromkeys((ALERT, BOARD, RULE), "alerts"), RAMP: "ramps"}


def about_job(nothing: Any) -> Need:
    """For a look at one job: `nothing` is the answer where there is none."""

    async def need(reach: Reach, asked: Any) -> Narrow | None:
        if not await reach.beyond("job", [asked.job_id]):
            return None
        return _instead(nothing)

    return need


async def notes(reach: Reach, asked: Any) -> Narrow | None:
    """For a look at the notes of a job: none of a hidden queue, and masked for a caller that only looks."""
    if reach.caller.may("job") and reach.caller.may_read():
        return None
    job = (await reach.looked_at([asked.job_id])).get(asked.job_id)
    if job is None or not reach.caller.may_see(job.queue):
        return _instead(Notes())

    async def narrow(found: Notes) -> Notes:
        return reach.notes_of(job.queue, found)

    return narrow


def about_queues(field: str) -> Need:
    """For a look at queues: those that are named, or all that the caller may see."""

    async def need(reach: Reach, asked: Any) -> Narrow | None:
        named = getattr(asked, field)
        reach.check("queue", named)
        return None if named or reach.caller.may("queues") else _only(reach.caller)

    return need


def _instead(answer: Any) -> Narrow:
    async def narrow(_: Any) -> Any:
        return answer

    return narrow


def _only(caller: Caller) -> Narrow:
    async def narrow(found: Any) -> Any:
        if isinstance(found, Mapping):
            return {name: one for name, one in found.items() if caller.may("queues", name)}
        return [one for one in found if caller.may("queues", _queue_of(one))]

    return narrow


def _queue_of(one: Any) -> QueueName:
    name: QueueName = one.queue if hasattr(one, "queue") else one.name
    return name


async def jobs(reach: Reach, _: Any) -> Narrow | None:
    return None if reach.caller.may("claim") else reach.shown


async def fates(reach: Reach, _: Any) -> Narrow | None:
    async def narrow(found: list[Fate | None]) -> list[Fate | None]:
        seen = (None if fate is None or not reach.caller.may_see(fate.queue) else fate for fate in found)
        return [None if fate is None else replace(fate, reason=nobody_named(fate.reason)) for fate in seen]

    return None if reach.caller.may("job") else narrow


async def history(reach: Reach, _: Any) -> Narrow | None:
    async def narrow(found: Timeline | None) -> Timeline | None:
        [job] = await reach.shown([None if found is None else found.job])
        if found is None or job is None:
            return None
        hidden = await reach.hidden([found.job.parent_id])
        events = tuple(_hushed(event, hidden) for event in found.events)
        return replace(found, job=job, events=events, notes=reach.notes_of(job.queue, found.notes))

    return None if reach.caller.may("claim") else narrow


def _hushed(event: Event, hidden: Iterable[JobId]) -> Event:
    detail = event.detail
    for job_id in hidden:
        detail = detail.replace(job_id, "a job of another queue")
    return event if detail == event.detail else replace(event, detail=detail)


async def schedules(reach: Reach, _: Any) -> Narrow | None:
    async def narrow(found: list[Schedule]) -> list[Schedule]:
        return [replace(one, definition=_shown(one.definition)) for one in found]

    reach.caller.check("schedules")
    return None if reach.caller.may("claim") else narrow


def _shown(definition: Definition) -> Definition:
    job = definition.job
    return replace(definition, job=job.with_payload(masked_call(job.payload)))


async def search(reach: Reach, asked: Any) -> Narrow | None:
    reach.check("search", asked.query.queues)
    if not asked.query.queues:
        reach.caller.check("search")
    reach.check_text(asked.query.text, *asked.query.queues)

    async def narrow(page: Page) -> Page:
        return replace(page, jobs=tuple(reach.lines_of(page.jobs)))

    return None if reach.caller.may("job") else narrow


async def peek(reach: Reach, asked: Any) -> Narrow | None:
    reach.caller.check("peek", asked.queue)

    async def narrow(found: list[JobSummary]) -> list[JobSummary]:
        return reach.lines_of(found)

    return None if reach.caller.may("job") else narrow


async def held(reach: Reach, _: Any) -> Narrow | None:
    return None if reach.caller.may("queues") else _only(reach.caller)


async def edges(reach: Reach, _: Any) -> Narrow | None:
    if reach.caller.may("job"):
        return None

    async def narrow(found: list[Edge]) -> list[Edge]:
        beyond = await reach.beyond("job", (job_id for edge in found for job_id in (edge.parent, edge.child)))
        return [edge for edge in found if beyond.isdisjoint((edge.parent, edge.child))]

    return narrow


async def metrics(reach: Reach, _: Any) -> Narrow | None:
    may = reach.caller.may

    async def narrow(page: MetricPage) -> MetricPage:
        return page._replace(rows=[row for row in page.rows if may("queue_metrics", row.queue)])

    return None if may("queue_metrics") else narrow


async def documents(reach: Reach, asked: Any) -> Narrow | None:
    # Programs with a place for blobs ask for the store's id, which is in the names of theirs.
    if asked.kind != BLOBS:
        reach.caller.check(_OF_KINDS.get(asked.kind, "keys"))
    return _without_secrets if asked.kind == CHANNEL else None


async def _without_secrets(found: list[Document]) -> list[Document]:
    # Also for administrators: secrets that the store has are never shown again.
    return list(map(mask_channel, found))
