"""How far the key of somebody who calls the store from elsewhere reaches.

For each method of the seam there is a function that raises Forbidden or JobNotFound, or changes the call so
that it touches and answers only what the caller may. A key for all queues costs nothing here; one for some
queues costs a look at the jobs that it names. A job that is moved to another queue between the look and the
call was one that the caller might have dealt with a moment ago.

Jobs of queues that a caller may not see are answered as if there were none: nobody shall learn which ids they
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from operator import not_
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.app.codec import check_queue
from forebay.app.ramping import KIND as RAMP
from forebay.app.ramping import find_ramp
from forebay.domain.document import Document
from forebay.domain.history import Event
from forebay.domain.job import MAX_COST, Job, JobId, NewJob, QueueName
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.domain.ramp import Ramp
from forebay.domain.settlement import Settlement, charge_of
from forebay.errors import ConfigError, InvalidJob, PayloadError, QueueNotFound, RampNotFound
from forebay.service.auth import Caller
from forebay.service.permitting.bounds import fresh, sane
from forebay.service.permitting.producing import check_reach
from forebay.service.permitting.reach import Narrow, Need, Reach
from forebay.service.permitting.seeing import (
    PRIVATE,
    about_job,
    about_queues,
    documents,
    edges,
    fates,
    held,
    history,
    jobs,
    metrics,
    notes,
    peek,
    schedules,
    search,
)
from forebay.stores.protocol import Exchange, Receipt, Refusal, Renewal, Standing

GONE: Final = "gone"
_OF_STATE: Final = {
    QueueState.ACTIVE: "resume_queue",
    QueueState.PAUSED: "pause_queue",
    QueueState.DRAINING: "drain_queue",
    QueueState.DROPPED: "delete_queue",
}


# For several calls


class Everywhere:
    """For what is about no queue, or about all of them."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    async def __call__(self, reach: Reach, asked: Any) -> None:
        reach.caller.check(self.operation)
        if hasattr(asked, "actor"):
            reach.sign(asked)


def on_jobs(operation: str) -> Need:
    """For what an operator does to jobs."""

    async def need(reach: Reach, asked: Any) -> None:
        await reach.allowed_for(operation, *([asked.job_id] if hasattr(asked, "job_id") else asked.ids))
        if getattr(asked, "dependants", False):  # they may be in any queue
            reach.caller.check(operation)
        if getattr(asked, "queue", None) is not None:
            reach.caller.check(operation, asked.queue)
        reach.sign(asked)

    return need


async def amend(reach: Reach, asked: Any) -> None:
    await on_jobs("amend")(reach, asked)
    target = asked.change.queue
    if target is not None:
        reach.caller.check("amend", target)
        await _check_known(reach, {target})


# Produce


async def insert(reach: Reach, asked: Any) -> Narrow | None:
    asked.jobs = await checked(reach, asked.jobs)
    asked.create_queues &= all(reach.caller.may("create_queue", job.queue) for job in asked.jobs)

    async def narrow(receipts: list[Receipt]) -> list[Receipt]:
        """Tell that an id or a key is taken, and not how a job of a hidden queue stands."""
        hidden = await reach.hidden(one.id for one in receipts if not one.is_new)
        return [replace(one, state=None) if one.id in hidden else one for one in receipts]

    return None if reach.caller.may("job") else narrow


async def checked(reach: Reach, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """New jobs that a caller may ask for, under its own name."""
    caller = reach.caller
    reach.check("enqueue_many", (job.queue for job in jobs))
    if not caller.may("enqueue_many"):
        for job in jobs:  # a caller for all queues may see what is in any of them
            check_queue(job.payload, job.queue, must_name=True)
    if caller.key is not None:  # nobody spends what a queue takes of another client
        jobs = [replace(job, client=caller.name) for job in jobs]
    naming = {JobId(one.parent): job for job in jobs for one in job.depends_on if isinstance(one.parent, str)}
    await check_reach(reach, "enqueue_many", jobs, naming)
    return jobs


# Consume


async def exchange(reach: Reach, asked: Any) -> Narrow | None:
    reach.check("claim", (want.queue for want in asked.wants))
    follow_ups = [job for one in asked.settlements for job in one.follow_ups]
    if follow_ups:
        allowed = iter(await checked(reach, follow_ups))
        await _check_known(reach, {job.queue for job in follow_ups})
        asked.settlements = [
            replace(one, follow_ups=tuple(next(allowed) for _ in one.follow_ups)) for one in asked.settlements
        ]
    if not reach.caller.may("settle"):
        return await _narrowed(reach, asked)
    charged = [one.job_id for one in asked.settlements if one.charge is not None]
    if charged:
        found = await reach.looked_at(charged)
        asked.settlements = [
            one if one.charge is None else _own(found.get(one.job_id), one) for one in asked.settlements
        ]
    return None


async def _check_known(reach: Reach, names: set[QueueName]) -> None:
    """Raise QueueNotFound for a queue that there is not and that they may not create."""
    wanted = sorted(name for name in names if not reach.caller.may("create_queue", name))
    if wanted:
        found = await reach.service.desk.read(lambda reader: reader.queues(wanted))
        for name in set(wanted) - {queue.name for queue in found}:
            raise QueueNotFound(f"there is no queue {name}")


async def _narrowed(reach: Reach, asked: Any) -> Narrow:
    named = [*(one.job_id for one in asked.settlements), *(note.lease.job_id for note in asked.notes)]
    jobs = {
        job.id: job
        for job in (await reach.looked_at(named)).values()
        if reach.caller.may("settle", job.queue)
    }
    fits = [_fits(jobs.get(one.job_id), one.result) for one in asked.settlements]
    refused = [Lease(one.job_id, one.attempt) for one in compress(asked.settlements, map(not_, fits))]
    noted = [_fits(jobs.get(one.lease.job_id), *(step.result for step in one.steps)) for one in asked.notes]
    unnoted = [note.lease for note in compress(asked.notes, map(not_, noted))]
    asked.settlements = [_own(jobs[one.job_id], one) for one in compress(asked.settlements, fits)]
    asked.notes = [replace(one, queue=jobs[one.lease.job_id].queue) for one in compress(asked.notes, noted)]

    async def narrow(answer: Exchange) -> Exchange:
        return replace(
            answer,
            refused=(*answer.refused, *_gone(refused)),
            unnoted=(*answer.unnoted, *_gone(unnoted)),
            adopted=tuple(job for job in answer.adopted if reach.caller.may("claim", job.queue)),
            cancels=await reach.cancels(answer.cancels),
        )

    return narrow


def _fits(job: Job | None, *results: bytes | None) -> bool:
    """Return whether a caller may settle this job with these results. Encrypted ones must name its queue: the
    id of a deleted job of another queue can be given again, and its old result would open under it. A running
    job cannot be moved, so the result of a worker that holds the lease names the right queue."""
    if job is None:
        return False
    try:
        for result in results:
            check_queue(result or b"", job.queue, must_name=True)
    except PayloadError:
        return False
    return True


def _own(job: Job | None, settlement: Settlement) -> Settlement:
    """A settlement that touches nothing but its job, and charges no more than a job can cost, nor gives back
    more than it has."""
    if job is None:
        return replace(settlement, charge=None)  # it will be refused
    charge = settlement.charge
    if charge is not None:
        charge = charge_of(job, min(max(charge.tokens, -job.cost), MAX_COST - job.cost))
    return replace(settlement, seq=job.seq, queue=job.queue, charge=charge)


def _gone(leases: Iterable[Lease]) -> list[Refusal]:
    return [Refusal(lease=lease, reason=GONE) for lease in leases]


async def renew(reach: Reach, asked: Any) -> Narrow | None:
    beyond = await reach.beyond("heartbeat", (lease.job_id for lease in asked.leases))
    refused = _gone(lease for lease in asked.leases if lease.job_id in beyond)
    asked.leases = [lease for lease in asked.leases if lease.job_id not in beyond]
    if reach.caller.may("claim"):
        return None

    async def narrow(answer: Renewal) -> Renewal:
        cancels = await reach.cancels(answer.cancels)
        return replace(answer, refused=(*answer.refused, *refused), cancels=cancels)

    return narrow


async def standing(reach: Reach, asked: Any) -> Narrow | None:
    beyond = await reach.beyond("settle", (lease.job_id for lease in asked.leases))

    async def narrow(answer: list[Standing]) -> list[Standing]:
        pairs = zip(asked.leases, answer, strict=True)
        return [Standing.OVER if lease.job_id in beyond else one for lease, one in pairs]

    return narrow if beyond else None


async def beat(reach: Reach, asked: Any) -> None:
    if asked.worker.queues:
        reach.check("claim", asked.worker.queues)
    else:
        reach.caller.check("claim")
    await reach.check_workers([asked.worker.id])
    # Its leases are its own, and must not end with the process that writes this down.
    asked.worker = replace(sane(asked.worker), is_remote=True)


async def forget_worker(reach: Reach, asked: Any) -> None:
    await reach.check_workers([asked.worker])


async def take_commands(reach: Reach, asked: Any) -> None:
    await reach.check_workers(asked.workers)


async def answer(reach: Reach, asked: Any) -> None:
    if not reach.caller.may("claim"):
        [command] = await reach.service.desk.read(lambda reader: reader.commands([asked.command_id]))
        await reach.check_workers([] if command is None else [command.worker])


async def record_metrics(reach: Reach, asked: Any) -> None:
    reach.check("claim", (row.queue for row in asked.rows))
    if asked.instead_of:  # what puts figures of several workers together
        reach.caller.check("duty")
    if not reach.caller.may("duty"):
        now = await reach.service.desk.read(lambda reader: reader.now())
        asked.rows = fresh(asked.rows, now)


# Steer


async def save_queue(reach: Reach, asked: Any) -> None:
    caller, name = reach.caller, asked.name
    if asked.changes or asked.state is None:
        caller.check("configure_queue", name)
    if asked.state is not None:
        caller.check(_OF_STATE[asked.state], name)
        await _check_known(reach, {name})
    reach.sign(asked)


async def drop_queue(reach: Reach, asked: Any) -> None:
    reach.caller.check("delete_queue", asked.name)
    reach.sign(asked)


async def of_document(reach: Reach, asked: Any) -> None:
    kind = asked.document.kind if hasattr(asked, "document") else asked.kind
    # A ramp may be about jobs of any queue; who has a role for some queues starts theirs by the routes.
    reach.caller.check("start_ramp" if kind == RAMP else "keys")
    if kind == RAMP and hasattr(asked, "document") and reach.caller.key is not None:
        asked.document = await _begun_by(reach, asked.document)
    if asked.event is not None:
        [asked.event] = _signed(reach, [asked.event])
    elif kind in PRIVATE:
        raise InvalidJob("a change of API keys or channels stands in the audit log", field="event")


async def _begun_by(reach: Reach, document: Document) -> Document:
    """A ramp revives in the name of who began it: that is who shows the key, and stays so. One that nobody
    else has written yet is begun here."""
    try:
        ramp = msgspec.json.decode(document.body, type=Ramp)
    except (msgspec.MsgspecError, ConfigError) as exc:
        raise InvalidJob(f"this is no ramp: {exc}", field="document") from exc
    by = reach.actor
    if document.revision:
        with suppress(RampNotFound):
            by = (await reach.service.desk.read(lambda reader: find_ramp(reader, document.name))).started_by
    return replace(document, body=msgspec.json.encode(replace(ramp, started_by=by)).decode())


async def record(reach: Reach, asked: Any) -> None:
    reach.caller.check("record")
    asked.events = _signed(reach, asked.events)


def _signed(reach: Reach, events: Sequence[Event]) -> list[Event]:
    """Who has shown a key is who did it, whatever they say."""
    return [replace(event, actor=reach.actor if reach.caller.key else event.actor) for event in events]


# Look: see `service.permitting.seeing`


async def anybody(_: Reach, __: Any) -> None:
    return None


NEEDS: Final[Mapping[str, Need]] = {
    "insert": insert,
    "exchange": exchange,
    "renew": renew,
    "standing": standing,
    "beat": beat,
    "forget_worker": forget_worker,
    "take_commands": take_commands,
    "answer": answer,
    # What happens by the clock, to jobs of all queues
    **dict.fromkeys(("sweep", "promote", "rescore", "prune", "take_duty", "read_clock"), Everywhere("duty")),
    "chain_audit": Everywhere("duty"),
    **dict.fromkeys(("take_stock", "forget_metrics"), Everywhere("duty")),
    "record_metrics": record_metrics,
    # These bring jobs along, for any queue
    **dict.fromkeys(("due_schedules", "fire"), Everywhere("save_schedule")),
    "cancel": on_jobs("cancel"),
    "amend": amend,
    "revive": on_jobs("revive"),
    "delete": on_jobs("delete_job"),
    "save_queue": save_queue,
    "drop_queue": drop_queue,
    "save_schedule": Everywhere("save_schedule"),
    "drop_schedule": Everywhere("remove_schedule"),
    "save_limit": Everywhere("set_limit"),
    "drop_limit": Everywhere("remove_limit"),
    "save_document": of_document,
    "drop_document": of_document,
    "send": Everywhere("command"),
    "record": record,
    # Jobs with all that they carry, of all queues: what whoever looks after the store may do
    **dict.fromkeys(("migrate", "adopt", "wholes"), Everywhere("migrate")),
    "jobs": jobs,
    "fates": fates,
    "search": search,
    "counts": about_queues("queues"),
    "queues": about_queues("names"),
    "paces": about_queues("queues"),
    "peek": peek,
    "held": held,
    "position": about_job(None),
    "notes": notes,
    "history": history,
    "parents": edges,
    "dependants": edges,
    "first_in_sequence": Everywhere("job"),
    "workers": Everywhere("workers"),
    "commands": Everywhere("commands"),
    "schedules": schedules,
    "firings": Everywhere("firings"),
    "limits": Everywhere("limits"),
    "usages": Everywhere("limits"),
    "documents": documents,
    "metrics": metrics,
    "last_metrics": anybody,
    **dict.fromkeys(("audit", "audit_chain", "unchained"), Everywhere("audit")),
    "archive": Everywhere("search"),
    "health": Everywhere("queues"),
    "vitals": Everywhere("queues"),
    "now": anybody,
}

# For calls about some queues: what their callers must be allowed for one of them at least.
_OF_SOME: Final[Mapping[str, str]] = {
    "insert": "enqueue_many",
    "exchange": "claim",
    "renew": "heartbeat",
    "standing": "settle",
    **dict.fromkeys(("beat", "forget_worker", "take_commands", "answer", "record_metrics"), "claim"),
    "save_queue": "pause_queue",  # who may configure it may pause it
    "drop_queue": "delete_queue",
    **dict.fromkeys(("save_document", "drop_document"), "start_ramp"),  # who may make keys may do that
    "record": "record",
    "search": "search",
    "peek": "peek",
    "schedules": "schedules",
}


def check_at_all(caller: Caller, operation: str) -> None:
    """Raise Forbidden for a call that this caller may make about no queue at all, before its body is read."""
    need = NEEDS.get(operation)
    if isinstance(need, Everywhere):
        caller.check(need.operation)
    elif operation in _OF_SOME:
        caller.check_somewhere(_OF_SOME[operation])
