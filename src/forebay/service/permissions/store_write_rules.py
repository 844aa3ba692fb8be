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

from forebay.domain.document import Document
from forebay.domain.gradual_revive import GradualRevive
from forebay.domain.history import Event
from forebay.domain.job import MAX_COST, Job, JobId, NewJob, QueueName
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.domain.settlement import Settlement, charge_of
from forebay.errors import ConfigError, GradualReviveNotFound, InvalidJob, PayloadError, QueueNotFound
from forebay.operations.gradual_revive import KIND as RAMP
from forebay.operations.gradual_revive import find_gradual_revive
from forebay.payload.codec import check_queue
from forebay.service.auth import Caller
from forebay.service.permissions.jobs import check_references
from forebay.service.permissions.store_access import ResultFilter, StoreAccess, StoreCallRule
from forebay.service.permissions.store_call_bounds import drop_stale_rows, sanitize_worker
from forebay.service.permissions.store_read_rules import (
    PRIVATE_KINDS,
    dependencies,
    documents,
    history,
    job_rule,
    job_states,
    jobs,
    lanes,
    metrics,
    peek,
    progress,
    queues_rule,
    schedules,
    search,
)
from forebay.stores.contract.values import (
    InsertResult,
    LeaseRefusal,
    LeaseStatus,
    RenewResult,
    SettleAndClaimResult,
)

GONE: Final = "gone"
_STATE_OPERATIONS: Final = {
    QueueState.ACTIVE: "resume_queue",
    QueueState.PAUSED: "pause_queue",
    QueueState.DRAINING: "drain_queue",
    QueueState.DROPPED: "delete_queue",
}


# For several calls


class AllQueuesRule:
    """For what is about no queue, or about all of them."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    async def __call__(self, access: StoreAccess, call_args: Any) -> None:
        access.caller.check(self.operation)
        if hasattr(call_args, "actor"):
            access.set_actor(call_args)


def job_action_rule(operation: str) -> StoreCallRule:
    """For what an operator does to jobs."""

    async def need(reach: StoreAccess, asked: Any) -> None:
        await reach.authorize_jobs(operation, *([asked.job_id] if hasattr(asked, "job_id") else asked.ids))
        if getattr(asked, "dependants", False):  # they may be in any queue
            reach.caller.check(operation)
        if getattr(asked, "queue", None) is not None:
            reach.caller.check(operation, asked.queue)
        reach.set_actor(asked)

    return need


async def update_job(access: StoreAccess, call_args: Any) -> None:
    await job_action_rule("update_job")(access, call_args)
    target = call_args.change.queue
    if target is not None:
        access.caller.check("update_job", target)
        await _check_queues_exist(access, {target})


# Produce


async def insert(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    call_args.jobs = await check_new_jobs(access, call_args.jobs)
    call_args.create_queues &= all(access.caller.may("create_queue", job.queue) for job in call_args.jobs)

    async def narrow(receipts: list[InsertResult]) -> list[InsertResult]:
        """Tell that an id or a key is taken, and not how a job of a hidden queue stands."""
        hidden = await access.find_hidden(one.id for one in receipts if not one.is_new)
        return [replace(one, state=None) if one.id in hidden else one for one in receipts]

    return None if access.caller.may("job") else narrow


async def check_new_jobs(access: StoreAccess, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """New jobs that a caller may ask for, under its own name."""
    caller = access.caller
    access.check_queues("enqueue_many", (job.queue for job in jobs))
    if not caller.may("enqueue_many"):
        for job in jobs:  # a caller for all queues may see what is in any of them
            check_queue(job.payload, job.queue, must_name=True)
    if caller.key is not None:  # nobody spends what a queue takes of another client
        jobs = [replace(job, client=caller.name) for job in jobs]
    naming = {JobId(one.parent): job for job in jobs for one in job.depends_on if isinstance(one.parent, str)}
    await check_references(access, "enqueue_many", jobs, naming)
    return jobs


# Consume


async def settle_and_claim(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    access.check_queues("claim", (want.queue for want in call_args.claims))
    follow_ups = [job for one in call_args.settlements for job in one.follow_ups]
    if follow_ups:
        allowed = iter(await check_new_jobs(access, follow_ups))
        await _check_queues_exist(access, {job.queue for job in follow_ups})
        call_args.settlements = [
            replace(one, follow_ups=tuple(next(allowed) for _ in one.follow_ups))
            for one in call_args.settlements
        ]
    if not access.caller.may("settle"):
        return await _narrow_settle_and_claim(access, call_args)
    charged = [one.job_id for one in call_args.settlements if one.charge is not None]
    if charged:
        found = await access.load_jobs(charged)
        call_args.settlements = [
            one if one.charge is None else _restrict_settlement(found.get(one.job_id), one)
            for one in call_args.settlements
        ]
    return None


async def _check_queues_exist(access: StoreAccess, names: set[QueueName]) -> None:
    """Raise QueueNotFound for a queue that there is not and that they may not create."""
    wanted = sorted(name for name in names if not access.caller.may("create_queue", name))
    if wanted:
        found = await access.service.pool.read(lambda reader: reader.queues(wanted))
        for name in set(wanted) - {queue.name for queue in found}:
            raise QueueNotFound(f"there is no queue {name}")


async def _narrow_settle_and_claim(access: StoreAccess, call_args: Any) -> ResultFilter:
    named = [
        *(one.job_id for one in call_args.settlements),
        *(note.lease.job_id for note in call_args.updates),
    ]
    jobs = {
        job.id: job
        for job in (await access.load_jobs(named)).values()
        if access.caller.may("settle", job.queue)
    }
    fits = [_can_settle(jobs.get(one.job_id), one.result) for one in call_args.settlements]
    refused = [Lease(one.job_id, one.attempt) for one in compress(call_args.settlements, map(not_, fits))]
    noted = [
        _can_settle(jobs.get(one.lease.job_id), *(step.result for step in one.steps))
        for one in call_args.updates
    ]
    unnoted = [note.lease for note in compress(call_args.updates, map(not_, noted))]
    call_args.settlements = [
        _restrict_settlement(jobs[one.job_id], one) for one in compress(call_args.settlements, fits)
    ]
    call_args.updates = [
        replace(one, queue=jobs[one.lease.job_id].queue) for one in compress(call_args.updates, noted)
    ]

    async def narrow(answer: SettleAndClaimResult) -> SettleAndClaimResult:
        return replace(
            answer,
            refused=(*answer.refused, *_removal_refusals(refused)),
            refused_updates=(*answer.refused_updates, *_removal_refusals(unnoted)),
            recovered=tuple(job for job in answer.recovered if access.caller.may("claim", job.queue)),
            cancels=await access.filter_cancels(answer.cancels),
        )

    return narrow


def _can_settle(job: Job | None, *results: bytes | None) -> bool:
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


def _restrict_settlement(job: Job | None, settlement: Settlement) -> Settlement:
    """A settlement that touches nothing but its job, and charges no more than a job can cost, nor gives back
    more than it has."""
    if job is None:
        return replace(settlement, charge=None)  # it will be refused
    charge = settlement.charge
    if charge is not None:
        charge = charge_of(job, min(max(charge.tokens, -job.cost), MAX_COST - job.cost))
    return replace(settlement, seq=job.seq, queue=job.queue, charge=charge)


def _removal_refusals(leases: Iterable[Lease]) -> list[LeaseRefusal]:
    return [LeaseRefusal(lease=lease, reason=GONE) for lease in leases]


async def renew(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    beyond = await access.find_forbidden("heartbeat", (lease.job_id for lease in call_args.leases))
    refused = _removal_refusals(lease for lease in call_args.leases if lease.job_id in beyond)
    call_args.leases = [lease for lease in call_args.leases if lease.job_id not in beyond]
    if access.caller.may("claim"):
        return None

    async def narrow(answer: RenewResult) -> RenewResult:
        cancels = await access.filter_cancels(answer.cancels)
        return replace(answer, refused=(*answer.refused, *refused), cancels=cancels)

    return narrow


async def lease_status(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    beyond = await access.find_forbidden("settle", (lease.job_id for lease in call_args.leases))

    async def narrow(answer: list[LeaseStatus]) -> list[LeaseStatus]:
        pairs = zip(call_args.leases, answer, strict=True)
        return [LeaseStatus.OVER if lease.job_id in beyond else one for lease, one in pairs]

    return narrow if beyond else None


async def heartbeat(access: StoreAccess, call_args: Any) -> None:
    if call_args.worker.queues:
        access.check_queues("claim", call_args.worker.queues)
    else:
        access.caller.check("claim")
    await access.check_workers([call_args.worker.id])
    # Its leases are its own, and must not end with the process that writes this down.
    call_args.worker = replace(sanitize_worker(call_args.worker), is_remote=True)


async def remove_worker(access: StoreAccess, call_args: Any) -> None:
    await access.check_workers([call_args.worker])


async def take_commands(access: StoreAccess, call_args: Any) -> None:
    await access.check_workers(call_args.workers)


async def answer_command(access: StoreAccess, call_args: Any) -> None:
    if not access.caller.may("claim"):
        [command] = await access.service.pool.read(lambda reader: reader.commands([call_args.command_id]))
        await access.check_workers([] if command is None else [command.worker])


async def record_metrics(access: StoreAccess, call_args: Any) -> None:
    access.check_queues("claim", (row.queue for row in call_args.rows))
    if call_args.instead_of:  # what puts figures of several workers together
        access.caller.check("maintenance")
    if not access.caller.may("maintenance"):
        now = await access.service.pool.read(lambda reader: reader.now())
        call_args.rows = drop_stale_rows(call_args.rows, now)


# Steer


async def save_queue(access: StoreAccess, call_args: Any) -> None:
    caller, name = access.caller, call_args.name
    if call_args.changes or call_args.state is None:
        caller.check("configure_queue", name)
    if call_args.state is not None:
        caller.check(_STATE_OPERATIONS[call_args.state], name)
        await _check_queues_exist(access, {name})
    access.set_actor(call_args)


async def drop_queue(access: StoreAccess, call_args: Any) -> None:
    access.caller.check("delete_queue", call_args.name)
    access.set_actor(call_args)


async def write_document(access: StoreAccess, call_args: Any) -> None:
    kind = call_args.document.kind if hasattr(call_args, "document") else call_args.kind
    # A ramp may be about jobs of any queue; who has a role for some queues starts theirs by the routes.
    access.caller.check("start_gradual_revive" if kind == RAMP else "keys")
    if kind == RAMP and hasattr(call_args, "document") and access.caller.key is not None:
        call_args.document = await _set_starter(access, call_args.document)
    if call_args.event is not None:
        [call_args.event] = _with_actor(access, [call_args.event])
    elif kind in PRIVATE_KINDS:
        raise InvalidJob("a change of API keys or channels stands in the audit log", field="event")


async def _set_starter(access: StoreAccess, document: Document) -> Document:
    """A ramp revives in the name of who began it: that is who shows the key, and stays so. One that nobody
    else has written yet is begun here."""
    try:
        ramp = msgspec.json.decode(document.body, type=GradualRevive)
    except (msgspec.MsgspecError, ConfigError) as exc:
        raise InvalidJob(f"this is no gradual revive: {exc}", field="document") from exc
    by = access.actor
    if document.revision:
        with suppress(GradualReviveNotFound):
            by = (
                await access.service.pool.read(lambda reader: find_gradual_revive(reader, document.name))
            ).started_by
    return replace(document, body=msgspec.json.encode(replace(ramp, started_by=by)).decode())


async def record_events(access: StoreAccess, call_args: Any) -> None:
    access.caller.check("record")
    call_args.events = _with_actor(access, call_args.events)


def _with_actor(access: StoreAccess, events: Sequence[Event]) -> list[Event]:
    """Who has shown a key is who did it, whatever they say."""
    return [replace(event, actor=access.actor if access.caller.key else event.actor) for event in events]


# Look: see `service.permitting.seeing`


async def allow_all(_: StoreAccess, __: Any) -> None:
    return None


STORE_CALL_RULES: Final[Mapping[str, StoreCallRule]] = {
    "insert": insert,
    "settle_and_claim": settle_and_claim,
    "renew": renew,
    "lease_status": lease_status,
    "heartbeat": heartbeat,
    "remove_worker": remove_worker,
    "take_commands": take_commands,
    "answer_command": answer_command,
    # What happens by the clock, to jobs of all queues
    **dict.fromkeys(
        (
            *("sweep", "promote", "rescore", "prune", "acquire_maintenance", "read_clock"),
            *("chain_audit", "snapshot_queues", "prune_metrics"),
        ),
        AllQueuesRule("maintenance"),
    ),
    "record_metrics": record_metrics,
    # These bring jobs along, for any queue
    **dict.fromkeys(("due_schedules", "fire_schedules"), AllQueuesRule("save_schedule")),
    "cancel": job_action_rule("cancel"),
    "update_job": update_job,
    "revive": job_action_rule("revive"),
    "delete": job_action_rule("delete_job"),
    "save_queue": save_queue,
    "drop_queue": drop_queue,
    "save_schedule": AllQueuesRule("save_schedule"),
    "drop_schedule": AllQueuesRule("remove_schedule"),
    "save_limit": AllQueuesRule("set_limit"),
    "drop_limit": AllQueuesRule("remove_limit"),
    "save_document": write_document,
    "drop_document": write_document,
    "send_command": AllQueuesRule("command"),
    "record_events": record_events,
    # Jobs with all that they carry, of all queues: what whoever looks after the store may do
    **dict.fromkeys(("migrate", "import_jobs", "export_jobs"), AllQueuesRule("migrate")),
    "jobs": jobs,
    "job_states": job_states,
    "search": search,
    "counts": queues_rule("queues"),
    "queues": queues_rule("names"),
    "throughputs": queues_rule("queues"),
    "peek": peek,
    "lanes": lanes,
    "position": job_rule(None),
    "progress": progress,
    "history": history,
    "parents": dependencies,
    "dependants": dependencies,
    "first_in_sequence": AllQueuesRule("job"),
    "workers": AllQueuesRule("workers"),
    "commands": AllQueuesRule("commands"),
    "schedules": schedules,
    "schedule_runs": AllQueuesRule("schedule_runs"),
    "limits": AllQueuesRule("limits"),
    "limit_usages": AllQueuesRule("limits"),
    "documents": documents,
    "metrics": metrics,
    "last_metrics": allow_all,
    **dict.fromkeys(("audit", "audit_chain", "count_unchained"), AllQueuesRule("audit")),
    "archive": AllQueuesRule("search"),
    "health": AllQueuesRule("queues"),
    "server_usage": AllQueuesRule("queues"),
    "now": allow_all,
}

# For calls about some queues: what their callers must be allowed for one of them at least.
_ANY_QUEUE_OPERATIONS: Final[Mapping[str, str]] = {
    "insert": "enqueue_many",
    "settle_and_claim": "claim",
    "renew": "heartbeat",
    "lease_status": "settle",
    **dict.fromkeys(
        ("heartbeat", "remove_worker", "take_commands", "answer_command", "record_metrics"), "claim"
    ),
    "save_queue": "pause_queue",  # who may configure it may pause it
    "drop_queue": "delete_queue",
    **dict.fromkeys(
        ("save_document", "drop_document"), "start_gradual_revive"
    ),  # a role for keys includes it
    "record_events": "record",
    "search": "search",
    "peek": "peek",
    "schedules": "schedules",
}


def check_operation(caller: Caller, operation: str) -> None:
    """Raise Forbidden for a call that this caller may make about no queue at all, before its body is read."""
    need = STORE_CALL_RULES.get(operation)
    if isinstance(need, AllQueuesRule):
        caller.check(need.operation)
    elif operation in _ANY_QUEUE_OPERATIONS:
        caller.check_any_queue(_ANY_QUEUE_OPERATIONS[operation])
