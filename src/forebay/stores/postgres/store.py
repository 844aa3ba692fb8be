"""The write side of PostgreSQL, with each method bound to its operation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final, TypeVar

from forebay.domain.history import Event
from forebay.domain.job import Amendment, Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.lease import Lease
from forebay.domain.lifecycle import JobState, is_final
from forebay.domain.note import Note
from forebay.domain.queue import Queue, QueueState
from forebay.domain.settlement import Settlement
from forebay.domain.worker import COMMAND_EXPIRES_MS, Command, CommandKind, WorkerInfo
from forebay.domain.workflow import RELEASED_AT_ONCE, Aftermath
from forebay.errors import StoreBusy, StoreError, StoreUnavailable
from forebay.stores.audit_log import chain_rows
from forebay.stores.clock_reading import ClockReading
from forebay.stores.following import StillListed
from forebay.stores.parts import as_lost_answer, none_if_failed
from forebay.stores.postgres import commanding, duties, following, leasing, operating, partitions
from forebay.stores.postgres.adopting import PostgresAdopting
from forebay.stores.postgres.by_hand import ByHand
from forebay.stores.postgres.connection import TRIES, Connection, Raw
from forebay.stores.postgres.cursor import Cursor
from forebay.stores.postgres.documents import PostgresDocuments
from forebay.stores.postgres.exchanging import exchange, with_more
from forebay.stores.postgres.holding import hold_failed, judged
from forebay.stores.postgres.inserting import Rules, insert_all
from forebay.stores.postgres.limiting import PostgresLimits
from forebay.stores.postgres.measuring import PostgresMetrics
from forebay.stores.postgres.packing import bigint, bigints, text, texts
from forebay.stores.postgres.plain import PlainInsert
from forebay.stores.postgres.plain_exchange import FEW, Part, PlainExchange
from forebay.stores.postgres.scheduling import PostgresSchedules
from forebay.stores.postgres.schema import migrate, statements_for
from forebay.stores.postgres.transaction import Memory, Transaction
from forebay.stores.postgres.wakeups import Pokes
from forebay.stores.protocol import (
    BATCH,
    Exchange,
    OnConflict,
    Receipt,
    Renewal,
    Standing,
    Verdict,
    Want,
    wants_left,
)
from forebay.stores.reviving import Revival

T = TypeVar("T")
# Transactions that a call makes at most, one after the other, for jobs that depend on those it has ended.
ROUNDS: Final = 4


def tell(tx: Transaction) -> None:
    """A transaction that only tells those who listen to look."""
    tx.has_news = True


class PostgresStore(PostgresSchedules, PostgresLimits, PostgresDocuments, PostgresMetrics, PostgresAdopting):
    """A handle to write to one store."""

    def __init__(self, connection: Connection, new_id: Callable[[], JobId]) -> None:
        self._connection = connection
        self._address = connection.address
        self._statements = statements_for(connection.address.schema)
        self._new_id = new_id
        self._memory = Memory()
        self._pokes = Pokes(connection.address)
        self._plain = PlainInsert(connection, self._statements, self._memory, self._pokes, new_id)
        self._plain_exchange = PlainExchange(connection, self._statements, self._memory)
        # Lines of the list of what the ends of jobs mean for others; and those that `meet` need not look at.
        self._unfinished: list[int] = []
        self._looked_at: set[int] = set()
        self._by_hand = ByHand(connection, self._statements, "take_duty", "commands_take", "meet")
        self._is_closed = False

    def _write(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        """Do some work in one transaction, and then what the ends of jobs in it mean for others."""
        answer = self._transact(work, defines=defines)
        if self._unfinished:
            self._follow()
        return answer

    def _follow(self) -> bool:
        """Go on with what the ends of jobs mean for others, for a while; whether jobs wait now that did not
        before. What is left is done with the next call, and if there is none by whoever promotes: it is on
        the list."""
        has_released = False
        try:
            self._meet()
            for _ in range(ROUNDS):
                numbers, self._unfinished = self._unfinished, []
                if not numbers:
                    break
                done = self._transact(partial(following.follow, numbers=numbers))
                self._unfinished += done.left
                has_released |= done.has_released
        except StoreUnavailable:
            pass  # what was asked for has happened all the same
        return has_released

    def _meet(self) -> None:
        """Do with what can be done in one statement: parents have completed whose children wait for others
        besides."""
        numbers = sorted(set(self._unfinished) - self._looked_at)
        self._looked_at.clear()
        if not numbers:
            return
        values = {"numbers": bigints(numbers), "few": bigint(FEW)}
        over = {number for (number,) in self._by_hand.all("meet", values) or ()}
        self._unfinished = [number for number in self._unfinished if number not in over]

    def _transact(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        """Do some work in one transaction. Where the list comes first, that is worked on in others before."""
        in_vain = 0
        while True:
            try:
                return self._transacted(work, defines=defines)
            except StillListed:
                # Others may have the line in hand: we have waited for them, and the next try finds it gone.
                in_vain = 0 if self._transacted(following.follow_all).edges else in_vain + 1
                if in_vain == TRIES:
                    raise

    def _transacted(self, work: Callable[[Transaction], T], *, defines: bool = False) -> T:
        """Do some work in one transaction; what is worth a look is told with its commit."""
        self._check_open()
        moved: tuple[dict[str, Cursor], dict[str, int]] = {}, {}
        listed: list[int] = []

        def transact(raw: Raw) -> T:
            nonlocal moved, listed
            self._memory.cursors.keep_for(self._connection.generation)
            tx = Transaction(raw, self._statements, self._new_id, self._memory)
            answer = work(tx)
            tx.flush_counts()
            self._pokes.send(tx)
            moved = tx.moved, tx.due_from
            listed = tx.listed
            return answer

        answer = self._connection.write(transact, defines=defines)
        self._memory.cursors.move(*moved)
        self._unfinished += listed
        self._told()
        return answer

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("this handle is closed; open another one")

    def _told(self) -> None:
        """After a commit: what it did not tell may have to be told now."""
        if self._pokes.committed():
            self._tell()

    def _tell(self) -> None:
        with suppress(StoreError):  # a hint that gets lost costs delay, never a job
            self._transact(tell)

    def make_queues(self, names: Sequence[QueueName]) -> None:
        """Make queues with default settings, where nobody has."""

        def make(tx: Transaction) -> None:
            for name in names:
                tx.existing_queue(name)

        self._write(make)

    def insert(
        self,
        jobs: Sequence[NewJob],
        *,
        on_conflict: OnConflict = "return",
        atomic: bool = True,
        create_queues: bool = True,
    ) -> list[Receipt]:
        if not jobs:
            return []
        self._check_open()
        if (receipts := self._plain.insert(jobs)) is not None:
            self._told()
            return receipts
        rules = Rules(on_conflict=on_conflict, create_queues=create_queues)
        return self._write(lambda tx: insert_all(tx, jobs, rules, atomic=atomic))

    def exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement] = (),
        wants: Sequence[Want] = (),
        room: int = 0,
        known: Sequence[Lease] | None = None,
        notes: Sequence[Note] = (),
    ) -> Exchange:
        self._check_open()
        done = self._exchange(worker, settlements, wants, room, known, notes)
        if not self._unfinished:
            return done
        more = none_if_failed(lambda: self._released(worker, wants, room, done))
        return done if more is None else with_more(done, more)

    def _released(
        self, worker: WorkerId, wants: Sequence[Want], room: int, done: Exchange
    ) -> Exchange | None:
        """What has just been released may be claimed at once, or be due before what was known so far."""
        if not self._follow() or not wants:
            return None
        left, rest = room - len(done.jobs), wants_left(wants, done.jobs)
        return self._exchange(worker, (), rest, left, None, ())

    def _exchange(
        self,
        worker: WorkerId,
        settlements: Sequence[Settlement],
        wants: Sequence[Want],
        room: int,
        known: Sequence[Lease] | None,
        notes: Sequence[Note],
    ) -> Exchange:
        part = Part(None, settlements, wants)
        plain = self._plain_exchange
        if known is None and not notes:
            part = plain.exchange(worker, settlements, wants, room)
            self._unfinished += plain.listed
            self._looked_at |= plain.looked_at
            plain.listed.clear()
            plain.looked_at.clear()
        whole = part.whole
        if whole is None:
            left = room - part.claimed
            try:
                with as_lost_answer() if part.claimed else nullcontext():
                    rest = self._transact(
                        lambda tx: exchange(tx, worker, part.settlements, part.wants, left, known, notes)
                    )
            except StoreBusy as exc:
                if part.done is None:
                    raise
                # StoreBusy says that nothing has happened. Here a part has, as when an answer is lost.
                raise StoreUnavailable(str(exc)) from exc
            whole = part.joined(rest)
        if part.done is not None and plain.leaves_places(whole.jobs):
            self._tell()
        return whole

    def standing(self, worker: WorkerId, leases: Sequence[Lease]) -> list[Standing]:
        return self._write(lambda tx: leasing.standing(tx, worker, leases))

    def renew(self, worker: WorkerId, leases: Sequence[Lease], lease_ms: int | None = None) -> Renewal:
        with self._connection.hasty():
            return self._write(lambda tx: leasing.renew(tx, worker, leases, lease_ms))

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
        return self._write(
            lambda tx: leasing.sweep(
                tx, sweeper, dead, limit, lease_ms, only_dead=only_dead, ended_by=ended_by
            )
        )

    def promote(self, limit: int = BATCH) -> int:
        moved, has_lines = self._write(lambda tx: duties.promote(tx, limit))
        if has_lines and self._write(following.follow_all).edges >= RELEASED_AT_ONCE:
            return max(moved, limit)
        return moved

    def rescore(self, limit: int = BATCH) -> int:
        return self._write(lambda tx: duties.rescore(tx, limit))

    def prune(self, limit: int = BATCH) -> int:
        pruned = self._write(lambda tx: duties.prune(tx, limit))
        return pruned + self._keep_days()

    def _keep_days(self) -> int:
        """Drop days that are over and make those to come; how many jobs went. Where a lock is not to be had,
        or this user may not make tables, it is left to the next time: the default partition takes all."""
        dropped = 0
        for name in self._write(partitions.old_days):
            with suppress(StoreError):
                schema = self._address.schema
                self._write(partial(partitions.forget_day, schema=schema, name=name), defines=True)
                dropped += self._write(partial(partitions.drop_day, schema=schema, name=name), defines=True)
        self._make_days()
        return dropped

    def _make_days(self) -> None:
        for day in self._write(partitions.missing_days):
            with suppress(StoreError):
                make = partial(partitions.make_day, schema=self._address.schema, day=day)
                self._write(make, defines=True)

    def cancel(
        self,
        ids: Sequence[JobId],
        reason: str = "cancelled",
        *,
        actor: str = "",
        force: bool = False,
        dependants: bool = False,
    ) -> list[Verdict]:
        def end(tx: Transaction, jobs: Sequence[Job]) -> list[Verdict]:
            if dependants:
                # Before the lines of their ends, by which some dependants would be released, or die; and
                # whether or not there are any: those of an insert that an end waits for are not seen yet.
                # Not those of one that has completed: their edges are open as long as nobody needs them.
                concerned = [job for job in jobs if job.state is not JobState.COMPLETED]
                hold_failed(tx, [job.id for job in concerned if is_final(job.state)])
                tx.list_aftermaths([(job.id, Aftermath.CANCEL.value) for job in concerned])
            return operating.cancel(tx, jobs, reason, actor, force=force)

        return self._write(lambda tx: judged(tx, ids, partial(end, tx)))

    def amend(self, job_id: JobId, change: Amendment, *, actor: str = "") -> Verdict:
        return self._write(lambda tx: operating.amend(tx, job_id, change, actor))

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

        def put_back(tx: Transaction, jobs: Sequence[Job]) -> list[Verdict]:
            return operating.revive(tx, jobs, how)

        return self._write(lambda tx: judged(tx, ids, partial(put_back, tx)))

    def delete(self, ids: Sequence[JobId], *, actor: str = "") -> list[Verdict]:
        def delete(tx: Transaction) -> list[Verdict]:
            # First, since who works on the end of a parent that failed holds the edges when it comes to the
            # job. Who works on one that has completed holds none, and knows the job by its number.
            tx.run("edges_hold", {"ids": sorted(set(ids))})
            return judged(tx, ids, lambda jobs: operating.delete(tx, jobs, actor))

        return self._write(delete)

    def save_queue(
        self,
        name: QueueName,
        changes: Mapping[str, object] | None = None,
        *,
        state: QueueState | None = None,
        actor: str = "",
    ) -> Queue:
        return self._write(lambda tx: operating.save_queue(tx, name, changes or {}, state, actor))

    def drop_queue(self, name: QueueName, *, force: bool = False, limit: int = BATCH, actor: str = "") -> int:
        return self._write(lambda tx: operating.drop_queue(tx, name, limit, actor, force=force))

    def beat(self, worker: WorkerInfo) -> None:
        with self._connection.hasty():
            self._write(lambda tx: operating.beat(tx, worker))

    def forget_worker(self, worker: WorkerId) -> None:
        self._write(lambda tx: tx.run("forget_worker", {"id": worker}))

    def send(
        self,
        kind: CommandKind,
        workers: Sequence[WorkerId] | None = None,
        *,
        queue: QueueName | None = None,
        expires_ms: int = COMMAND_EXPIRES_MS,
        actor: str = "",
    ) -> list[Command]:
        return self._write(lambda tx: commanding.send(tx, kind, workers, queue, expires_ms, actor))

    def take_commands(self, workers: Sequence[WorkerId]) -> list[Command]:
        self._check_open()
        values = {"workers": texts(workers), "kinds": texts(commanding.KINDS)}
        with self._connection.hasty():  # by the thread that keeps leases
            rows = self._by_hand.all("commands_take", values)
            if rows is not None:
                return commanding.taken(rows)
            return self._write(lambda tx: commanding.take(tx, workers))

    def answer(self, command_id: str, text: str) -> None:
        self._write(lambda tx: commanding.answer(tx, command_id, text))

    def take_duty(self, name: str, every_ms: int) -> bool:
        self._check_open()
        rows = self._by_hand.all("take_duty", {"name": text(name), "every_ms": bigint(every_ms)})
        if rows is not None:
            return bool(rows)
        return self._write(lambda tx: operating.take_duty(tx, name, every_ms))

    def read_clock(self, *, record: bool = False) -> ClockReading:
        return self._write(lambda tx: operating.read_clock(tx, record=record))

    def record(self, events: Sequence[Event]) -> None:
        self._write(lambda tx: tx.record_all(events))

    def chain_audit(self, limit: int = BATCH) -> int:
        def chain(tx: Transaction) -> int:
            # The lock is released after the commit is visible: whoever gets it sees the head that was left.
            return chain_rows(tx, limit) if tx.one("audit_lock") == (True,) else 0

        return self._write(chain)

    def migrate(self) -> int:
        number = migrate(self._connection, self._statements)
        self._make_days()
        return number

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.close()
