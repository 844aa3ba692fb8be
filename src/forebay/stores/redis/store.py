"""Redis behind the seam: the engine, and the write side with each method bound to its script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from forebay.domain.dependencies import PROPAGATION_BATCH
from forebay.domain.history import Event
from forebay.domain.job import Job, JobId, JobUpdate, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.progress import ProgressUpdate
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import (
    COMMAND_EXPIRES_MS,
    Command,
    CommandKind,
    WorkerInfo,
    truncate_answer,
)
from forebay.errors import StoreUnavailable
from forebay.stores.contract.clock_readings import EARLIER_MS, NAMES, PERIOD_MS, ClockReading
from forebay.stores.contract.revive_options import ReviveOptions
from forebay.stores.contract.values import (
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
from forebay.stores.ids import create_ids
from forebay.stores.redis import admin, commands
from forebay.stores.redis.audit_log import RedisAuditLogStore
from forebay.stores.redis.connection import Connection, is_full
from forebay.stores.redis.documents import RedisDocumentStore
from forebay.stores.redis.insert import (
    STAYS_SLOW,
    FastInsertRequest,
    InsertRequest,
    check_reply,
    fit_fast_path,
    insert_results,
    retry_with_other_ids,
)
from forebay.stores.redis.job_import import RedisJobImport
from forebay.stores.redis.limits import RedisLimitStore
from forebay.stores.redis.maintenance import RedisPruner
from forebay.stores.redis.metrics import RedisMetricStore
from forebay.stores.redis.rows import FRESH_QUEUE, event_row, job_from_row
from forebay.stores.redis.schedules import RedisScheduleStore
from forebay.stores.redis.schema import SCHEMA, prepare
from forebay.stores.redis.server_check import ServerWatch
from forebay.stores.redis.settle_and_claim import FastPathSwitch, SettleAndClaim, cancels_of
from forebay.stores.shared.dependencies import PropagationPending
from forebay.stores.shared.partial_calls import run_optional

T = TypeVar("T")

# How often history goes, a hundred jobs each time, before a job is refused because memory is full.
PRUNE_ROUNDS: Final = 50
# How many jobs one script makes pending, takes over or gives another place: a thousand took the server's
# processor 24 ms and more.
MOVED_AT_ONCE: Final = 100

# Calls that one call makes at most, one after the other, for jobs that depend on those it has ended.
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
    """A handle to write to one namespace."""

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
        if jobs and fit_fast_path(jobs) and (receipts := self._insert_fast(jobs)) is not None:
            return self._propagate_then(receipts)
        rules = {"on_conflict": on_conflict, "atomic": atomic, "create_queues": create_queues}
        return self._propagate_then(self._call_after_propagation(lambda: self._insert_slow(jobs, rules)))

    def _insert_slow(self, jobs: Sequence[NewJob], rules: dict[str, Any]) -> list[InsertResult]:
        intake = InsertRequest(partial(next, iter(create_ids(self._new_id, len(jobs)))))
        for place, job in enumerate(jobs):
            intake.add(job, place)
        params = {**intake.build_request(2), **rules}
        [answers] = check_reply(
            self._retry_after_pruning(lambda: self._run("insert", params, *intake.arguments))
        )
        return insert_results(intake.ids, answers)

    def _insert_fast(self, jobs: Sequence[NewJob]) -> list[InsertResult] | None:
        """None where the script for plain jobs has left them to the other one."""
        short_way = self._fast_paths[jobs[0].queue]
        if not short_way.should_try():
            return None
        plain = FastInsertRequest(jobs, self._new_id)
        answer = self._retry_after_pruning(lambda: self._connection.call("insert_fast", *plain.arguments))
        if answer == STAYS_SLOW:
            short_way.record_slow_call()
        return plain.results if answer > 0 else None

    def _retry_after_pruning(self, insert: Callable[[], T]) -> T:
        """Its answer; history gives way where the server has no memory left."""
        for _ in range(PRUNE_ROUNDS):
            try:
                return insert()
            except StoreUnavailable as exc:
                # The server refuses such a script before it has begun, so it can be called again.
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
        done = self._call_after_propagation(
            lambda: self._settler.run(worker, settlements, claims, room, known, updates)
        )
        if not self._connection.has_outbox_entries:
            return done
        more = run_optional(lambda: self._claim_released(worker, claims, room, done))
        if more is None:
            return done
        return replace(done, jobs=done.jobs + more.jobs, next_due_ms=more.next_due_ms)

    def _claim_released(
        self, worker: WorkerId, claims: Sequence[QueueClaim], room: int, done: SettleAndClaimResult
    ) -> SettleAndClaimResult | None:
        """What has just been released may be claimed at once, or be due before what was known so far."""
        if not self._propagate() or not claims:
            return None
        left, rest = room - len(done.jobs), remaining_claims(claims, done.jobs)
        return self._settler.run(worker, (), rest, left, None, ())

    def _call_after_propagation(self, call: Callable[[], T]) -> T:
        """Its answer; the list comes first where it has to do with the id of a new job. Nothing has happened
        by then, so the call can be made again; so it is, with other ids, where one was another job's."""
        while True:
            try:
                return retry_with_other_ids(call)
            except PropagationPending:
                self._run("propagate", _PROPAGATION_PARAMS)

    def _propagate(self) -> bool:
        """Go on with what the ends of jobs mean for others, for a while; whether jobs wait now that did not
        before. What is left is done with the next call, and if there is none by whoever promotes: it is on
        the list."""
        has_released = False
        for _ in range(ROUNDS):
            if not self._connection.has_outbox_entries:
                break
            self._connection.has_outbox_entries = False
            try:
                has_released |= self._run("propagate", _PROPAGATION_PARAMS) == 1
            except StoreUnavailable:
                break  # what was asked for has happened all the same
        return has_released

    def _propagate_then(self, answer: T) -> T:
        """The answer, after what the ends of jobs mean for others."""
        self._propagate()
        return answer

    def lease_status(self, worker: WorkerId, leases: Sequence[Lease]) -> list[LeaseStatus]:
        reasons = self._run("lease_status", {"worker": worker, "leases": [tuple(lease) for lease in leases]})
        return [LeaseStatus.OVER if reason else LeaseStatus.HELD for reason in reasons]

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> RenewResult:
        ask = {"worker": worker, "leases": [tuple(lease) for lease in leases], "lease_ms": lease_ms}
        with self._connection.short_timeouts():
            reasons, cancels = self._run("renew", ask)
        answers = list(zip(leases, reasons, strict=True))
        return RenewResult(
            renewed=tuple(lease for lease, reason in answers if not reason),
            refused=tuple(
                LeaseRefusal(lease=lease, reason=reason.decode()) for lease, reason in answers if reason
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
        ask = {
            "sweeper": sweeper,
            "lease_ms": lease_ms,
            "only_dead": only_dead,
            "dead": sorted(dead),
            "ended_by": False if ended_by is None else ended_by,
        }
        jobs: list[Job] = []
        buried = 0
        while len(jobs) < limit:
            most = {
                "limit": min(MOVED_AT_ONCE, limit - len(jobs)),
                "max_marked_dead": min(MOVED_AT_ONCE, limit - buried),
            }
            try:
                went, rows = self._run("sweep", ask | most)
            except StoreUnavailable:
                if not jobs:
                    raise
                break  # those before are ours: the caller has to know of them
            jobs += map(job_from_row, rows)
            buried += went
            if len(rows) < most["limit"] and (went < most["max_marked_dead"] or buried >= limit):
                break
        return self._propagate_then(jobs)

    def promote(self, limit: int = BATCH) -> int:
        moved = 0
        while moved < limit:
            most = min(MOVED_AT_ONCE, limit - moved)
            now_moved = self._run_count("promote", {"limit": most})
            moved += now_moved
            if now_moved < most:
                break
        self._propagate()
        return max(moved, limit) if self._connection.has_outbox_entries else moved

    def rescore(self, limit: int = BATCH) -> int:
        looked_at = 0
        for left in range(limit, 0, -MOVED_AT_ONCE):
            now_looked_at = self._run_count("rescore", {"limit": min(MOVED_AT_ONCE, left)})
            looked_at += now_looked_at
            if now_looked_at == 0:
                break
        return looked_at

    def prune(self, limit: int = BATCH) -> int:
        self._server_watch.check()  # here, since this is asked for by the clock
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
        ask = {"ids": list(ids), "reason": reason, "actor": actor, "force": force, "dependants": dependants}
        return self._propagate_then(admin.action_results(ids, self._run("cancel", ask)))

    def update_job(self, job_id: JobId, change: JobUpdate, *, actor: str = "") -> ActionResult:
        return admin.update_job(self._connection, job_id, change, actor)

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
        how = ReviveOptions(queue, delay_ms, reset, actor, dependants, ended_before)
        return self._propagate_then(admin.revive(self._connection, ids, how))

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[ActionResult]:
        answers = self._run("delete", {"ids": list(ids), "actor": actor})
        return self._propagate_then(admin.action_results(ids, answers))

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return admin.save_queue(self._connection, name, changes or {}, state, actor)

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        ask = {"name": name, "force": force, "limit": limit, "actor": actor}
        [left] = check_reply(self._run("drop_queue", ask))
        return self._propagate_then(int(left))

    def heartbeat(self, worker: WorkerInfo) -> None:
        with self._connection.short_timeouts():
            self._run("heartbeat", {"worker": commands.worker_row_of(worker)})

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
        return commands.send_command(self._connection, kind, workers, queue, expires_ms, actor)

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        with self._connection.short_timeouts():  # by the thread that keeps leases
            return commands.take_commands(self._connection, workers)

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
