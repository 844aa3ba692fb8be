"""Permission rules of remote store calls that write.

Each method of the store contract has a rule. A rule raises Forbidden or JobNotFound, or restricts the call to
what the caller may change and see. A key for all queues costs nothing here; another key costs a read of the
named jobs. A job that is moved to another queue between the check and the call was allowed a moment ago.

Jobs of hidden queues are reported as missing, so that their ids do not leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import compress
from operator import not_
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.domain.gradual_revive import GradualRevive
from forebay.domain.job import MAX_COST, Job, JobId, NewJob, QueueName
from forebay.domain.job_history import Event
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueState
from forebay.domain.settlement import Settlement, charge_of
from forebay.domain.stored_document import Document
from forebay.errors import ConfigError, GradualReviveNotFound, InvalidJob, PayloadError, QueueNotFound
from forebay.operations.gradual_revive import KIND as GRADUAL_REVIVE
from forebay.operations.gradual_revive import find_gradual_revive
from forebay.payload.codec import check_queue
from forebay.prepared_types import prepare_type
from forebay.service.permissions.jobs import check_references
from forebay.service.permissions.remote_store_access import ResultFilter, StoreAccess, StoreCallRule
from forebay.service.permissions.remote_store_call_bounds import drop_stale_rows, sanitize_worker
from forebay.service.permissions.remote_store_read_rules import (
    PRIVATE_KINDS,
)
from forebay.stores.contract.claims_and_results import (
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
    """Rule of a call about no queue, or about all queues."""

    def __init__(self, operation: str) -> None:
        self.operation = operation

    async def __call__(self, access: StoreAccess, call_args: Any) -> None:
        access.caller.check(self.operation)
        if hasattr(call_args, "actor"):
            access.set_actor(call_args)


def job_action_rule(operation: str) -> StoreCallRule:
    """Return the rule of an operator's action on jobs."""

    async def rule(access: StoreAccess, call_args: Any) -> None:
        ids = [call_args.job_id] if hasattr(call_args, "job_id") else call_args.ids
        await access.authorize_jobs(operation, *ids)
        if getattr(call_args, "dependants", False):  # dependants may be in any queue
            access.caller.check(operation)
        if getattr(call_args, "queue", None) is not None:
            access.caller.check(operation, call_args.queue)
        access.set_actor(call_args)

    return rule


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
        """Report that an id or a key is taken, without the state of a job of a hidden queue."""
        hidden = await access.find_hidden(receipt.id for receipt in receipts if not receipt.is_new)
        return [replace(receipt, state=None) if receipt.id in hidden else receipt for receipt in receipts]

    return None if access.caller.may("job") else narrow


async def check_new_jobs(access: StoreAccess, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return the new jobs under the caller's name; raises Forbidden for one that it may not enqueue."""
    caller = access.caller
    access.check_queues("enqueue_many", (job.queue for job in jobs))
    if not caller.may("enqueue_many"):
        for job in jobs:  # a caller for all queues may see the payloads of any queue
            check_queue(job.payload, job.queue, must_name=True)
    if caller.key is not None:  # so that a client cannot use up the rate of another one
        jobs = [replace(job, client=caller.name) for job in jobs]
    by_parent = {
        JobId(dependency.parent): job
        for job in jobs
        for dependency in job.depends_on
        if isinstance(dependency.parent, str)
    }
    await check_references(access, "enqueue_many", jobs, by_parent)
    return jobs


# Consume


async def settle_and_claim(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    access.check_queues("claim", (claim.queue for claim in call_args.claims))
    follow_ups = [job for settlement in call_args.settlements for job in settlement.follow_ups]
    if follow_ups:
        allowed = iter(await check_new_jobs(access, follow_ups))
        await _check_queues_exist(access, {job.queue for job in follow_ups})
        call_args.settlements = [
            replace(settlement, follow_ups=tuple(next(allowed) for _ in settlement.follow_ups))
            for settlement in call_args.settlements
        ]
    if not access.caller.may("settle"):
        return await _narrow_settle_and_claim(access, call_args)
    charged = [settlement.job_id for settlement in call_args.settlements if settlement.charge is not None]
    if charged:
        jobs = await access.load_jobs(charged)
        call_args.settlements = [
            settlement
            if settlement.charge is None
            else _restrict_settlement(jobs.get(settlement.job_id), settlement)
            for settlement in call_args.settlements
        ]
    return None


async def _check_queues_exist(access: StoreAccess, names: set[QueueName]) -> None:
    """Raise QueueNotFound for a missing queue that the caller may not create."""
    required = sorted(name for name in names if not access.caller.may("create_queue", name))
    if required:
        found = await access.service.pool.read(lambda reader: reader.queues(required))
        for name in set(required) - {queue.name for queue in found}:
            raise QueueNotFound(f"there is no queue {name}")


async def _narrow_settle_and_claim(access: StoreAccess, call_args: Any) -> ResultFilter:
    ids = [
        *(settlement.job_id for settlement in call_args.settlements),
        *(update.lease.job_id for update in call_args.updates),
    ]
    jobs = {
        job.id: job
        for job in (await access.load_jobs(ids)).values()
        if access.caller.may("settle", job.queue)
    }
    can_settle = [
        _can_settle(jobs.get(settlement.job_id), settlement.result) for settlement in call_args.settlements
    ]
    refused = [
        Lease(settlement.job_id, settlement.attempt)
        for settlement in compress(call_args.settlements, map(not_, can_settle))
    ]
    can_update = [
        _can_settle(jobs.get(update.lease.job_id), *(step.result for step in update.steps))
        for update in call_args.updates
    ]
    refused_updates = [update.lease for update in compress(call_args.updates, map(not_, can_update))]
    call_args.settlements = [
        _restrict_settlement(jobs[settlement.job_id], settlement)
        for settlement in compress(call_args.settlements, can_settle)
    ]
    call_args.updates = [
        replace(update, queue=jobs[update.lease.job_id].queue)
        for update in compress(call_args.updates, can_update)
    ]

    async def narrow(answer: SettleAndClaimResult) -> SettleAndClaimResult:
        return replace(
            answer,
            refused=(*answer.refused, *_removal_refusals(refused)),
            refused_updates=(*answer.refused_updates, *_removal_refusals(refused_updates)),
            recovered=tuple(job for job in answer.recovered if access.caller.may("claim", job.queue)),
            cancels=await access.filter_cancels(answer.cancels),
        )

    return narrow


def _can_settle(job: Job | None, *results: bytes | None) -> bool:
    """Return whether a caller may settle this job with these results.

    An encrypted result must name the queue of the job: the id of a deleted job of another queue can be used
    again, and its old result would decrypt under it. A running job cannot be moved, so the result of the
    lease holder names the right queue.
    """
    if job is None:
        return False
    try:
        for result in results:
            check_queue(result or b"", job.queue, must_name=True)
    except PayloadError:
        return False
    return True


def _restrict_settlement(job: Job | None, settlement: Settlement) -> Settlement:
    """Return a settlement that changes nothing but its job. Its charge is at most the maximal cost, and gives
    back at most the cost of the job."""
    if job is None:
        return replace(settlement, charge=None)  # the store will refuse it
    charge = settlement.charge
    if charge is not None:
        charge = charge_of(job, min(max(charge.tokens, -job.cost), MAX_COST - job.cost))
    return replace(settlement, seq=job.seq, queue=job.queue, charge=charge)


def _removal_refusals(leases: Iterable[Lease]) -> list[LeaseRefusal]:
    return [LeaseRefusal(lease=lease, reason=GONE) for lease in leases]


async def renew(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    forbidden = await access.find_forbidden("heartbeat", (lease.job_id for lease in call_args.leases))
    refused = _removal_refusals(lease for lease in call_args.leases if lease.job_id in forbidden)
    call_args.leases = [lease for lease in call_args.leases if lease.job_id not in forbidden]
    if access.caller.may("claim"):
        return None

    async def narrow(answer: RenewResult) -> RenewResult:
        cancels = await access.filter_cancels(answer.cancels)
        return replace(answer, refused=(*answer.refused, *refused), cancels=cancels)

    return narrow


async def lease_status(access: StoreAccess, call_args: Any) -> ResultFilter | None:
    forbidden = await access.find_forbidden("settle", (lease.job_id for lease in call_args.leases))

    async def narrow(statuses: list[LeaseStatus]) -> list[LeaseStatus]:
        pairs = zip(call_args.leases, statuses, strict=True)
        return [LeaseStatus.OVER if lease.job_id in forbidden else status for lease, status in pairs]

    return narrow if forbidden else None


async def heartbeat(access: StoreAccess, call_args: Any) -> None:
    if call_args.worker.queues:
        access.check_queues("claim", call_args.worker.queues)
    else:
        access.caller.check("claim")
    await access.check_workers([call_args.worker.id])
    # A remote worker keeps its leases when this server process ends.
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
    if call_args.instead_of:  # a rollup, which replaces rows of several workers
        access.caller.check("maintenance")
    if not access.caller.may("maintenance"):
        now = await access.service.pool.read(lambda reader: reader.now())
        call_args.rows = drop_stale_rows(call_args.rows, now)


# Administer


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
    # A gradual revive may be about jobs of any queue; a key for some queues starts one by the routes.
    access.caller.check("start_gradual_revive" if kind == GRADUAL_REVIVE else "keys")
    if kind == GRADUAL_REVIVE and hasattr(call_args, "document") and access.caller.key is not None:
        call_args.document = await _set_starter(access, call_args.document)
    if call_args.event is not None:
        [call_args.event] = _with_actor(access, [call_args.event])
    elif kind in PRIVATE_KINDS:
        raise InvalidJob("a change of API keys or channels needs an event for the audit log", field="event")


async def _set_starter(access: StoreAccess, document: Document) -> Document:
    """Set the starter of a gradual revive: the caller if it is new, else the stored one. Its jobs are revived
    in the starter's name."""
    try:
        revive = msgspec.json.decode(document.body, type=prepare_type(GradualRevive))
    except (msgspec.MsgspecError, ConfigError) as exc:
        raise InvalidJob(f"this is no gradual revive: {exc}", field="document") from exc
    starter = access.actor
    if document.revision:
        with suppress(GradualReviveNotFound):
            stored = await access.service.pool.read(lambda reader: find_gradual_revive(reader, document.name))
            starter = stored.started_by
    return replace(document, body=msgspec.json.encode(replace(revive, started_by=starter)).decode())


async def record_events(access: StoreAccess, call_args: Any) -> None:
    access.caller.check("record")
    call_args.events = _with_actor(access, call_args.events)


def _with_actor(access: StoreAccess, events: Sequence[Event]) -> list[Event]:
    """Set the actor of events to the caller, whatever the request names."""
    return [replace(event, actor=access.actor if access.caller.key else event.actor) for event in events]
