"""Redis behind the seam: the engine, and the write side with each method bound to its script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from forebay.domain.history import Event
from forebay.domain.job import Amendment, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.note import Note
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import (
    COMMAND_EXPIRES_MS,
    Command,
    CommandKind,
    WorkerInfo,
    answer_as_kept,
)
from forebay.domain.workflow import RELEASED_AT_ONCE
from forebay.errors import ConfigError, StoreUnavailable
from forebay.stores import ids as job_ids
from forebay.stores.clock_reading import EARLIER_MS, NAMES, PERIOD_MS, ClockReading
from forebay.stores.following import StillListed
from forebay.stores.ids import several_ids
from forebay.stores.parts import none_if_failed
from forebay.stores.protocol import (
    BATCH,
    Exchange,
    Features,
    OnConflict,
    Receipt,
    Refusal,
    Renewal,
    Standing,
    Verdict,
    Want,
    wants_left,
)
from forebay.stores.redis import commanding, operating
from forebay.stores.redis.adopting import RedisAdopting
from forebay.stores.redis.audit_log import RedisAuditLog
from forebay.stores.redis.breaker import Breaker, Sight
from forebay.stores.redis.connection import Address, Connection, is_full
from forebay.stores.redis.documents import RedisDocuments
from forebay.stores.redis.exchanging import Exchanging, ShortWay, cancels_of
from forebay.stores.redis.inserting import (
    STAYS_LONG,
    Intake,
    PlainIntake,
    are_plain,
    done,
    receipts_of,
    with_other_ids,
)
from forebay.stores.redis.limiting import RedisLimits
from forebay.stores.redis.measuring import RedisMetrics
from forebay.stores.redis.pruning import Pruning
from forebay.stores.redis.reader import RedisReader
from forebay.stores.redis.rows import FRESH_QUEUE, event_row, job_from_row
from forebay.stores.redis.scheduling import RedisSchedules
from forebay.stores.redis.schema import SCHEMA, check_schema, look_or_prepare, prepare, refuse_newer
from forebay.stores.redis.server import Watch, check_server
from forebay.stores.redis.wakeups import RedisWakeups
from forebay.stores.reviving import Revival

T = TypeVar("T")

# How often history goes, a hundred jobs each time, before a job is refused because memory is full.
ROOM_ROUNDS: Final = 50
# How many jobs one script makes pending, takes over or gives another place: a thousand took the server's
# processor 24 ms and more.
MOVED_AT_ONCE: Final = 100

# Calls that one call makes at most, one after the other, for jobs that depend on those it has ended.
ROUNDS: Final = 4
_FOLLOWING: Final = {
    "limit": RELEASED_AT_ONCE,
    "delay_ms": 0,
    "reset": True,
    "actor": "",
    "dependants": True,
    "fresh": FRESH_QUEUE,
}
_READING: Final = {"names": list(NAMES), "period_ms": PERIOD_MS, "earlier_ms": EARLIER_MS}

NOTHING_TO_JOIN: Final = (
    "Redis has no transactions of a caller that could be joined; use sqlite:/// or postgresql:// for that"
)


class RedisEngine:
    """A namespace on a Redis or Valkey server."""

    features: Features = Features(name="redis", is_durable=True, is_shared=True, joins_transactions=False)

    def __init__(self, address: Address, *, new_id: Callable[[], JobId] = job_ids.new_id) -> None:
        self.address = address
        self._new_id = new_id
        self._breaker = Breaker(Sight())

    @property
    def place(self) -> str:
        return self.address.place

    def store(self) -> RedisStore:
        return RedisStore(self._connection(check_server, prepare), self._new_id)

    def reader(self) -> RedisReader:
        return RedisReader(self._connection(look_or_prepare))

    def wakeups(self) -> RedisWakeups:
        return RedisWakeups(self.address, self._breaker.sight)

    def migrate(self) -> int:
        with closing(self.store()) as store:
            return store.migrate()

    def check_schema(self) -> None:
        connection = Connection(self.address, self._breaker)
        try:
            check_schema(connection)
        finally:
            connection.close()

    def insert_within(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(NOTHING_TO_JOIN)

    async def insert_within_async(
        self, connection: object, jobs: Sequence[NewJob], *, on_conflict: OnConflict = "return"
    ) -> list[Receipt]:
        raise ConfigError(NOTHING_TO_JOIN)

    def complete_within(self, connection: object, worker: WorkerId, settlement: Settlement) -> None:
        raise ConfigError(NOTHING_TO_JOIN)

    async def complete_within_async(
        self, connection: object, worker: WorkerId, settlement: Settlement
    ) -> None:
        raise ConfigError(NOTHING_TO_JOIN)

    def _connection(self, *checks: Callable[[Connection], None]) -> Connection:
        connection = Connection(self.address, self._breaker)
        try:
            for check in checks:
                check(connection)
            connection.watch_schema(refuse_newer)
        except BaseException:
            connection.close()
            raise
        return connection


class RedisStore(RedisSchedules, RedisLimits, RedisDocuments, RedisAuditLog, RedisMetrics, RedisAdopting):
    """A handle to write to one namespace."""

    def __init__(self, connection: Connection, new_id: Callable[[], JobId]) -> None:
        self._connection = connection
        self._new_id = new_id
        self._run = connection.run
        self._pruning = Pruning(connection)
        self._watch = Watch(connection)
        self._exchanging = Exchanging(connection, new_id)
        self._short_ways: defaultdict[QueueName, ShortWay] = defaultdict(ShortWay)

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[Receipt]:
        if jobs and are_plain(jobs) and (receipts := self._inserted_plain(jobs)) is not None:
            return self._followed(receipts)
        rules = {"on_conflict": on_conflict, "atomic": atomic, "create_queues": create_queues}
        return self._followed(self._after_list(lambda: self._inserted(jobs, rules)))

    def _inserted(self, jobs: Sequence[NewJob], rules: dict[str, Any]) -> list[Receipt]:
        intake = Intake(partial(next, iter(several_ids(self._new_id, len(jobs)))))
        for place, job in enumerate(jobs):
            intake.add(job, place)
        ask = {**intake.request(2), **rules}
        [answers] = done(self._with_room(lambda: self._run("insert", ask, *intake.arguments)))
        return receipts_of(intake.ids, answers)

    def _inserted_plain(self, jobs: Sequence[NewJob]) -> list[Receipt] | None:
        """None where the script for plain jobs has left them to the other one."""
        short_way = self._short_ways[jobs[0].queue]
        if not short_way.is_tried():
            return None
        plain = PlainIntake(jobs, self._new_id)
        answer = self._with_room(lambda: self._connection.call("insert_plain", *plain.arguments))
        if answer == STAYS_LONG:
            short_way.has_ended()
        return plain.receipts if answer > 0 else None

    def _with_room(self, insert: Callable[[], T]) -> T:
        """Its answer; history gives way where the server has no memory left."""
        for _ in range(ROOM_ROUNDS):
            try:
                return insert()
            except StoreUnavailable as exc:
                # The server refuses such a script before it has begun, so it can be called again.
                if not is_full(exc) or not self._pruning.make_room():
                    raise
        return insert()

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        done = self._after_list(
            lambda: self._exchanging.exchange(worker, settlements, wants, room, known, notes)
        )
        if not self._connection.has_listed:
            return done
        more = none_if_failed(lambda: self._released(worker, wants, room, done))
        if more is None:
            return done
        return replace(done, jobs=done.jobs + more.jobs, next_due_ms=more.next_due_ms)

    def _released(
        self, worker: WorkerId, wants: Sequence[Want], room: int, done: Exchange
    ) -> Exchange | None:
        """What has just been released may be claimed at once, or be due before what was known so far."""
        if not self._follow() or not wants:
            return None
        left, rest = room - len(done.jobs), wants_left(wants, done.jobs)
        return self._exchanging.exchange(worker, (), rest, left, None, ())

    def _after_list(self, call: Callable[[], T]) -> T:
        """Its answer; the list comes first where it has to do with the id of a new job. Nothing has happened
        by then, so the call can be made again; so it is, with other ids, where one was another job's."""
        while True:
            try:
                return with_other_ids(call)
            except StillListed:
                self._run("follow", _FOLLOWING)

    def _follow(self) -> bool:
        """Go on with what the ends of jobs mean for others, for a while; whether jobs wait now that did not
        before. What is left is done with the next call, and if there is none by whoever promotes: it is on
        the list."""
        has_released = False
        for _ in range(ROUNDS):
            if not self._connection.has_listed:
                break
            self._connection.has_listed = False
            try:
                has_released |= self._run("follow", _FOLLOWING) == 1
            except StoreUnavailable:
                break  # what was asked for has happened all the same
        return has_released

    def _followed(self, answer: T) -> T:
        """The answer, after what the ends of jobs mean for others."""
        self._follow()
        return answer

    def standing(self, worker: WorkerId, leases: Sequence[Lease]) -> list[Standing]:
        reasons = self._run("standing", {"worker": worker, "leases": [tuple(lease) for lease in leases]})
        return [Standing.OVER if reason else Standing.HELD for reason in reasons]

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> Renewal:
        ask = {"worker": worker, "leases": [tuple(lease) for lease in leases], "lease_ms": lease_ms}
        with self._connection.hasty():
            reasons, cancels = self._run("renew", ask)
        answers = list(zip(leases, reasons, strict=True))
        return Renewal(
            renewed=tuple(lease for lease, reason in answers if not reason),
            refused=tuple(
                Refusal(lease=lease, reason=reason.decode()) for lease, reason in answers if reason
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
                "most_buried": min(MOVED_AT_ONCE, limit - buried),
            }
            try:
                went, rows = self._run("sweep", ask | most)
            except StoreUnavailable:
                if not jobs:
                    raise
                break  # those before are ours: the caller has to know of them
            jobs += map(job_from_row, rows)
            buried += went
            if len(rows) < most["limit"] and (went < most["most_buried"] or buried >= limit):
                break
        return self._followed(jobs)

    def promote(self, limit: int = BATCH) -> int:
        moved = 0
        while moved < limit:
            most = min(MOVED_AT_ONCE, limit - moved)
            now_moved = self._count("promote", {"limit": most})
            moved += now_moved
            if now_moved < most:
                break
        self._follow()
        return max(moved, limit) if self._connection.has_listed else moved

    def rescore(self, limit: int = BATCH) -> int:
        looked_at = 0
        for left in range(limit, 0, -MOVED_AT_ONCE):
            now_looked_at = self._count("rescore", {"limit": min(MOVED_AT_ONCE, left)})
            looked_at += now_looked_at
            if now_looked_at == 0:
                break
        return looked_at

    def prune(self, limit: int = BATCH) -> int:
        self._watch.look()  # here, since this is asked for by the clock
        return self._followed(self._pruning.prune(limit))

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[Verdict]:
        ask = {"ids": list(ids), "reason": reason, "actor": actor, "force": force, "dependants": dependants}
        return self._followed(operating.verdicts(ids, self._run("cancel", ask)))

    def amend(self, job_id: JobId, change: Amendment, *, actor: str = "") -> Verdict:
        return operating.amend(self._connection, job_id, change, actor)

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
    ) -> list[Verdict]:
        how = Revival(queue, delay_ms, reset, actor, dependants, ended_before)
        return self._followed(operating.revive(self._connection, ids, how))

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[Verdict]:
        answers = self._run("delete", {"ids": list(ids), "actor": actor})
        return self._followed(operating.verdicts(ids, answers))

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return operating.save_queue(self._connection, name, changes or {}, state, actor)

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        ask = {"name": name, "force": force, "limit": limit, "actor": actor}
        [left] = done(self._run("drop_queue", ask))
        return self._followed(int(left))

    def beat(self, worker: WorkerInfo) -> None:
        with self._connection.hasty():
            self._run("beat", {"worker": commanding.worker_row_of(worker)})

    def forget_worker(self, worker: WorkerId) -> None:
        self._run("forget_worker", {"worker": worker})

    def send(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        return commanding.send(self._connection, kind, workers, queue, expires_ms, actor)

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        with self._connection.hasty():  # by the thread that keeps leases
            return commanding.take(self._connection, workers)

    def answer(self, command_id: str, text: str) -> None:
        self._run("answer", {"id": command_id, "text": answer_as_kept(text)})

    def take_duty(self, name: str, every_ms: int) -> bool:
        return self._count("take_duty", {"name": name, "every_ms": every_ms}) == 1

    def read_clock(self, *, record: bool = False) -> ClockReading:
        if not record:
            return ClockReading(now=self._count("now", {}))
        now, earlier = self._run("read_clock", _READING)
        return ClockReading(now=now, earlier=earlier or None)

    def record(self, events: Sequence[Event]) -> None:
        self._run("record", {"events": [event_row(event) for event in events]})

    def migrate(self) -> int:
        prepare(self._connection)
        return SCHEMA

    def close(self) -> None:
        self._connection.close()

    def _count(self, script: str, ask: dict[str, Any]) -> int:
        return int(self._run(script, ask))
