"""Write side of the Redis engine: each method of the contract calls its script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from forebay.domain.dependencies import PROPAGATION_BATCH
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_history import Event
from forebay.domain.job_update import JobUpdate
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import COMMAND_EXPIRES_MS, Command, CommandKind, truncate_answer
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import (
    BATCH,
    ActionResult,
    InsertResult,
    LeaseRefusal,
    LeaseStatus,
    OnConflict,
    QueueClaim,
    RenewResult,
    SettleAndClaimResult,
    remaining_claims,
)
from forebay.stores.contract.clock_readings import EARLIER_MS, NAMES, PERIOD_MS, ClockReading
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.id_generator import create_ids
from forebay.stores.redis import job_actions, queues
from forebay.stores.redis.audit_log import RedisAuditLogStore
from forebay.stores.redis.connection import Connection
from forebay.stores.redis.documents import RedisDocumentStore
from forebay.stores.redis.errors import is_full
from forebay.stores.redis.insert import (
    STAYS_SLOW,
    FastInsertRequest,
    InsertRequest,
    check_reply,
    fit_fast_path,
    insert_results,
    retry_with_other_ids,
)
from forebay.stores.redis.job_import_and_export import RedisJobImport
from forebay.stores.redis.limit_definitions import RedisLimitStore
from forebay.stores.redis.metrics import RedisMetricStore
from forebay.stores.redis.pruner import RedisPruner
from forebay.stores.redis.rows import FRESH_QUEUE, event_row, job_from_row
from forebay.stores.redis.schedules import RedisScheduleStore
from forebay.stores.redis.schema_setup_and_check import SCHEMA, prepare
from forebay.stores.redis.server_check import ServerWatch
from forebay.stores.redis.settle_and_claim import FastPathSwitch, SettleAndClaim, cancels_of
from forebay.stores.redis.workers_and_commands import send_command, take_commands, worker_row_of
from forebay.stores.shared.dependency_propagation import PropagationPending
from forebay.stores.shared.partial_failures import run_optional

T = TypeVar("T")

# Rounds of pruning, a hundred final jobs each, before a job is refused because memory is full.
PRUNE_ROUNDS: Final = 50
# Jobs that one script promotes, takes over or rescores: a thousand took 24 ms of the server's CPU and more.
MOVED_AT_ONCE: Final = 100

# Calls of `propagate` that follow one call at most.
ROUNDS: Final = 4
_PROPAGATION_PARAMS: Final = {
    "limit": PROPAGATION_BATCH,
    "delay_ms": 0,
    "reset": True,
    "actor": "",
    "dependants": True,
    "default_queue": FRESH_QUEUE,
}
_CLOCK_PARAMS: Final = {"names": list(NAMES), "period_ms": PERIOD_MS, "earlier_ms": EARLIER_MS}


class RedisStore(
    RedisScheduleStore,
    RedisLimitStore,
    RedisDocumentStore,
    RedisAuditLogStore,
    RedisMetricStore,
    RedisJobImport,
):
    """Write handle for one namespace."""

    def __init__(self, connection: Connection, new_id: Callable[[], JobId]) -> None:
        self._connection = connection
        self._new_id = new_id
        self._run = connection.run
        self._pruner = RedisPruner(connection)
        self._server_watch = ServerWatch(connection)
        self._settler = SettleAndClaim(connection, new_id)
        self._fast_paths: defaultdict[QueueName, FastPathSwitch] = defaultdict(FastPathSwitch)

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[InsertResult]:
        if jobs and fit_fast_path(jobs) and (results := self._insert_fast(jobs)) is not None:
            return self._propagate_then(results)
        rules = {"on_conflict": on_conflict, "atomic": atomic, "create_queues": create_queues}
        return self._propagate_then(self._call_after_propagation(lambda: self._insert_slow(jobs, rules)))

    def _insert_slow(self, jobs: Sequence[NewJob], rules: dict[str, Any]) -> list[InsertResult]:
        inserts = InsertRequest(partial(next, iter(create_ids(self._new_id, len(jobs)))))
        for index, job in enumerate(jobs):
            inserts.add(job, index)
        params = {**inserts.build_request(2), **rules}
        [replies] = check_reply(
            self._retry_after_pruning(lambda: self._run("insert", params, *inserts.arguments))
        )
        return insert_results(inserts.ids, replies)

    def _insert_fast(self, jobs: Sequence[NewJob]) -> list[InsertResult] | None:
        """Insert over the fast path; return None if it left the jobs to the slow path."""
        fast_path = self._fast_paths[jobs[0].queue]
        if not fast_path.should_try():
            return None
        request = FastInsertRequest(jobs, self._new_id)
        reply = self._retry_after_pruning(lambda: self._connection.call("insert_fast", *request.arguments))
        if reply == STAYS_SLOW:
            fast_path.record_slow_call()
        return request.results if reply > 0 else None

    def _retry_after_pruning(self, insert: Callable[[], T]) -> T:
        """Make a call; prune history and repeat the call while the server has no memory left."""
        for _ in range(PRUNE_ROUNDS):
            try:
                return insert()
            except StoreUnavailable as exc:
                # The server refuses such a script before it starts, so the call can be repeated.
                if not is_full(exc) or not self._pruner.make_room():
                    raise
        return insert()

    def settle_and_claim(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        claims: Sequence[QueueClaim] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        updates: Sequence[ProgressUpdate] = (),
    ) -> SettleAndClaimResult:
        result = self._call_after_propagation(
            lambda: self._settler.run(worker, settlements, claims, room, known, updates)
        )
        if not self._connection.has_outbox_entries:
            return result
        released = run_optional(lambda: self._claim_released(worker, claims, room, result))
        if released is None:
            return result
        return replace(result, jobs=result.jobs + released.jobs, next_due_ms=released.next_due_ms)

    def _claim_released(
        self, worker: WorkerId, claims: Sequence[QueueClaim], room: int, result: SettleAndClaimResult
    ) -> SettleAndClaimResult | None:
        """Propagate, and claim released jobs at once; they may also be due earlier than `next_due_ms`."""
        if not self._propagate() or not claims:
            return None
        left, claims_left = room - len(result.jobs), remaining_claims(claims, result.jobs)
        return self._settler.run(worker, (), claims_left, left, None, ())

    def _call_after_propagation(self, call: Callable[[], T]) -> T:
        """Make a call; work off the outbox first if it has an entry for the id of a new job.

        Such a refusal has written nothing, so the call is repeated. It is also repeated, with other ids, if a
        created id belongs to another job."""
        while True:
            try:
                return retry_with_other_ids(call)
            except PropagationPending:
                self._run("propagate", _PROPAGATION_PARAMS)

    def _propagate(self) -> bool:
        """Work off the dependency outbox for a few calls; return whether jobs wait now that did not before.

        The next call continues with the rest, or else the next promotion: the entries stay in the outbox."""
        has_released = False
        for _ in range(ROUNDS):
            if not self._connection.has_outbox_entries:
                break
            self._connection.has_outbox_entries = False
            try:
                has_released |= self._run("propagate", _PROPAGATION_PARAMS) == 1
            except StoreUnavailable:
                break  # the call that came before has been executed all the same
        return has_released

    def _propagate_then(self, result: T) -> T:
        """Propagate job ends, then return the result."""
        self._propagate()
        return result

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        reasons = self._run("lease_status", {"worker": worker, "leases": [tuple(lease) for lease in leases]})
        return [LeaseStatus.OVER if reason else LeaseStatus.HELD for reason in reasons]

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        params = {"worker": worker, "leases": [tuple(lease) for lease in leases], "lease_ms": lease_ms}
        with self._connection.short_timeouts():
            reasons, cancels = self._run("renew", params)
        replies = list(zip(leases, reasons, strict=True))
        return RenewResult(
            renewed=tuple(lease for lease, reason in replies if not reason),
            refused=tuple(
                LeaseRefusal(lease=lease, reason=reason.decode()) for lease, reason in replies if reason
            ),
            cancels=cancels_of(cancels),
        )

    def sweep(
        self,
        sweeper: WorkerId,
        limit: int = BATCH,
        lease_ms: int = 30_000,
        *,
        only_dead: bool = False,
        dead: Collection[WorkerId] = (),
        ended_by: int | None = None,
    ) -> list[Job]:
        params = {
            "sweeper": sweeper,
            "lease_ms": lease_ms,
            "only_dead": only_dead,
            "dead": sorted(dead),
            "ended_by": False if ended_by is None else ended_by,
        }
        jobs: list[Job] = []
        marked_dead = 0
        while len(jobs) < limit:
            limits = {
                "limit": min(MOVED_AT_ONCE, limit - len(jobs)),
                "max_marked_dead": min(MOVED_AT_ONCE, limit - marked_dead),
            }
            try:
                marked, rows = self._run("sweep", params | limits)
            except StoreUnavailable:
                if not jobs:
                    raise
                break  # the caller needs the jobs that were taken over before
            jobs += map(job_from_row, rows)
            marked_dead += marked
            if len(rows) < limits["limit"] and (marked < limits["max_marked_dead"] or marked_dead >= limit):
                break
        return self._propagate_then(jobs)

    def promote(self, limit: int = BATCH) -> int:
        moved = 0
        while moved < limit:
            step = min(MOVED_AT_ONCE, limit - moved)
            promoted = self._run_count("promote", {"limit": step})
            moved += promoted
            if promoted < step:
                break
        self._propagate()
        return max(moved, limit) if self._connection.has_outbox_entries else moved

    def rescore(self, limit: int = BATCH) -> int:
        checked = 0
        for left in range(limit, 0, -MOVED_AT_ONCE):
            step = self._run_count("rescore", {"limit": min(MOVED_AT_ONCE, left)})
            checked += step
            if step == 0:
                break
        return checked

    def prune(self, limit: int = BATCH) -> int:
        self._server_watch.check()  # here, since this maintenance task runs periodically
        return self._propagate_then(self._pruner.prune(limit))

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[ActionResult]:
        params = {
            "ids": list(ids),
            "reason": reason,
            "actor": actor,
            "force": force,
            "dependants": dependants,
        }
        return self._propagate_then(job_actions.action_results(ids, self._run("cancel", params)))

    def update_job(self, job_id: JobId, change: JobUpdate, *, actor: str = "") -> ActionResult:
        return job_actions.update_job(self._connection, job_id, change, actor)

    def revive(
        self,
        ids: Sequence[JobId],
        *,
        queue: QueueName | None = None,
        delay_ms: int = 0,
        reset: bool = True,
        actor: str = "",
        dependants: bool = False,
        ended_before: int | None = None,
    ) -> list[ActionResult]:
        options = ReviveOptions(queue, delay_ms, reset, actor, dependants, ended_before)
        return self._propagate_then(job_actions.revive(self._connection, ids, options))

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        replies = self._run("delete", {"ids": list(ids), "actor": actor})
        return self._propagate_then(job_actions.action_results(ids, replies))

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return queues.save_queue(self._connection, name, changes or {}, state, actor)

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        params = {"name": name, "force": force, "limit": limit, "actor": actor}
        [left] = check_reply(self._run("drop_queue", params))
        return self._propagate_then(int(left))

    def heartbeat(self, worker: WorkerInfo) -> None:
        with self._connection.short_timeouts():
            self._run("heartbeat", {"worker": worker_row_of(worker)})

    def remove_worker(self, worker: WorkerId) -> None:
        self._run("remove_worker", {"worker": worker})

    def send_command(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        return send_command(self._connection, kind, workers, queue, expires_ms, actor)

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        with self._connection.short_timeouts():  # called by the thread that renews leases
            return take_commands(self._connection, workers)

    def answer_command(self, command_id: str, text: str) -> None:
        self._run("answer_command", {"id": command_id, "text": truncate_answer(text)})

    def acquire_maintenance(self, name: str, every_ms: int) -> bool:
        return self._run_count("acquire_maintenance", {"name": name, "every_ms": every_ms}) == 1

    def read_clock(self, *, record: bool = False) -> ClockReading:
        if not record:
            return ClockReading(now=self._run_count("now", {}))
        now, earlier = self._run("read_clock", _CLOCK_PARAMS)
        return ClockReading(now=now, earlier=earlier or None)

    def record_events(self, events: Sequence[Event]) -> None:
        self._run("record_events", {"events": [event_row(event) for event in events]})

    def migrate(self) -> int:
        prepare(self._connection)
        return SCHEMA

    def close(self) -> None:
        self._connection.close()

    def _run_count(self, script: str, params: dict[str, Any]) -> int:
        return int(self._run(script, params))
