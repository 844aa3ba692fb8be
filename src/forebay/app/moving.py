"""Moving a store: jobs, schedules, limits, documents and queues go to another one, of any engine.

The order in which it is done is what keeps a job from being lost, and from running twice:

1. All queues of the old store are paused, and all its schedules, before the first job is copied; what was
   paused already is written down first, in a document there. From then on nobody gets a job of it. Attempts
   that run are waited for.
2. Jobs are copied, each with its id, and can be claimed in the new store from then on. What is there by its
   id stays as it is. So a mover that was killed, at whatever point, is started again and goes on; and jobs
   that producers have put into the old store meanwhile come with the next pass.
3. Only when producers write to the new store are jobs deleted from the old one, each after the new one has
   answered that it has it: children before parents, whose end would mean something to them. At last the
   queues are closed for new jobs.

Until then each job is in both stores, and the old one does not give it to anybody. A move back is refused as
long as this one is not finished: there are jobs in the old store that have been done in the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.app.alert_records import ALERTS, BOARDS, CHANNELS, RULES
from forebay.app.ramping import KIND as RAMPS
from forebay.app.sealed import KIND as BLOBS
from forebay.clock import Clock
from forebay.domain.document import Document
from forebay.domain.job import JobId, QueueName
from forebay.domain.lifecycle import LIVE, JobState
from forebay.domain.moving import Whole, fingerprint
from forebay.domain.query import MAX_PAGE, JobQuery
from forebay.domain.queue import Queue, QueueState
from forebay.domain.schedule import Schedule
from forebay.errors import ConfigError, IllegalTransition
from forebay.stores.protocol import Reader, Store

KIND: Final = "move"
_NAME: Final = "to"
# What is kept in documents, by whoever keeps it; the mark of a move itself stays where it is.
KINDS: Final = (
    BLOBS,
    "key",  # see `service.keys`
    RAMPS,
    *(records.kind for records in (RULES, ALERTS, CHANNELS, BOARDS)),
)
AT_ONCE: Final = 100
MOST_PASSES: Final = 10
_LOOK_EVERY_S: Final = 0.2
_FINAL: Final = tuple(state for state in JobState if state not in LIVE)
_KEEPS: Final = ("keep_finished_ms", "keep_dead_ms")
_CHECKSUM: Final = 1 << 64


class Place(NamedTuple):
    """One of the two stores."""

    name: str
    place: str  # where its jobs are, whatever the address says
    store: Store
    reader: Reader


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the old store keeps about a move: where to, and what was not running before it began."""

    to: str
    queues: dict[QueueName, QueueState] = {}
    schedules: tuple[str, ...] = ()
    is_finished: bool = False


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What was new in the new store, by what it is."""

    jobs: int = 0
    queues: int = 0
    limits: int = 0
    schedules: int = 0
    documents: int = 0
    passes: int = 0
    deleted: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both stores side by side: how many jobs of the old one were looked at, which are missing in the new one
    or are another there, and the sums of the fingerprints of both."""

    jobs: int = 0
    missing: tuple[JobId, ...] = ()
    different: tuple[JobId, ...] = ()
    old_checksum: str = ""
    new_checksum: str = ""

    @property
    def agrees(self) -> bool:
        """Whether all is there. What is missing may have come since the last pass; what is another one has
        been changed in one of the stores."""
        return not self.missing and not self.different and self.old_checksum == self.new_checksum


Tell = Callable[[str, int, int], None]  # what is being done, how far it is, of how much


class Mover:
    """Moves what is in one store to another one; may be begun again at any time."""

    def __init__(
        self, old: Place, new: Place, clock: Clock, *, actor: str = "", tell: Tell = lambda *_: None
    ) -> None:
        if old.place == new.place:
            raise ConfigError(f"{old.name} and {new.name} are the same store")
        self._old = old
        self._new = new
        self._clock = clock
        self._actor = actor
        self._tell = tell

    def move(self, wait_ms: int = 0) -> Moved:
        """Copy all there is, pass after pass, until one finds nothing new."""
        mark = self._begun()
        self._wait_for_attempts(wait_ms)
        while self._old.store.promote(MAX_PAGE) >= MAX_PAGE:
            pass  # what the ends of jobs mean for others is done here still
        moved = self._settings(mark)
        for number in range(1, MOST_PASSES + 1):
            self._pause()  # also queues that producers have made meanwhile
            queues, jobs = self._queues(mark), self._pass()
            moved = replace(moved, queues=moved.queues + queues, jobs=moved.jobs + jobs, passes=number)
            if not jobs:
                break
        return moved

    def compare(self) -> Comparison:
        """Look at each job of the old store in both."""
        pairs, missing, different = 0, list[JobId](), list[JobId]()
        old_sum = new_sum = 0
        for part in self._parts("comparing", [*self._ids(LIVE), *self._ids(_FINAL)]):
            found = zip(self._old.reader.jobs(part), self._new.reader.jobs(part), strict=True)
            for old, new in found:
                if old is None:
                    continue  # pruned meanwhile
                pairs += 1
                # How it has ended counts, unless somebody has revived it in the new store.
                with_end = old.is_final and new is not None and new.is_final
                old_print = fingerprint(old, with_end=with_end)
                new_print = 0 if new is None else fingerprint(new, with_end=with_end)
                old_sum, new_sum = old_sum + old_print, new_sum + new_print
                if new is None:
                    missing.append(old.id)
                elif old_print != new_print:
                    different.append(old.id)
        return Comparison(
            jobs=pairs,
            missing=tuple(missing),
            different=tuple(different),
            old_checksum=f"{old_sum % _CHECKSUM:016x}",
            new_checksum=f"{new_sum % _CHECKSUM:016x}",
        )

    def finish(self, compared: Comparison) -> int:
        """Take what is in the new store out of the old one, and close the queues there; how many jobs went.
        For when nobody writes to the old store any more: who does so still gets QueueClosed in the end."""
        if not compared.agrees:
            raise IllegalTransition(
                f"{len(compared.missing):,} jobs of {self._old.name} are missing in {self._new.name} and "
                f"{len(compared.different):,} are another there, so none is taken out"
            )
        deleted = self._delete_all()
        for queue in self._old.reader.queues():
            if queue.state is not QueueState.DRAINING:
                self._old.store.save_queue(queue.name, state=QueueState.DRAINING, actor=self._actor)
        deleted += self._delete_all()  # what came between
        self._let_forget()
        self._drop_settings()
        if (mark := self._mark()) is not None:
            self._write_mark(replace(mark[0], is_finished=True), mark[1])
        self._new.store.drop_document(KIND, _NAME)  # of the time when it was the old one
        return deleted

    def _let_forget(self) -> None:
        """From now on the new store forgets jobs when the old one would have."""
        names = list(self._old.reader.counts())
        there = {queue.name: queue for queue in self._new.reader.queues(names)} if names else {}
        for queue in self._old.reader.queues(names) if names else ():
            changes = {
                keep: kept
                for keep in _KEEPS
                if queue.name in there
                and not getattr(there[queue.name].settings, keep)
                and (kept := getattr(queue.settings, keep))
            }
            if changes:
                state = there[queue.name].state  # else one that was dropped would be active again
                self._new.store.save_queue(queue.name, changes, state=state, actor=self._actor)

    def _drop_settings(self) -> None:
        """Schedules and limits that would be in the way of a move back. Documents stay: a server that finds
        no keys lets everybody in."""
        limits = {limit.scope for limit in self._new.reader.limits()}
        for limit in self._old.reader.limits():
            if limit.scope in limits:
                self._old.store.drop_limit(limit.scope, actor=self._actor)
        for schedule in list(self._schedules()):
            if self._new.reader.schedules([schedule.name]):
                self._old.store.drop_schedule(schedule.name, actor=self._actor)

    # Before the first job

    def _begun(self) -> Mark:
        """The mark of this move; all that gives work to somebody is stopped, and what was so before is
        written down first."""
        if (back := self._mark(self._new)) is not None and not back[0].is_finished:
            raise ConfigError(
                f"{self._new.name} is being moved to {back[0].to}, and that is not finished: jobs in it may "
                "have been done there; finish that move first"
            )
        found = self._mark()
        if found is not None and not found[0].is_finished and found[0].to != self._new.place:
            raise ConfigError(f"{self._old.name} is being moved to {found[0].to}; finish that move first")
        if found is not None and not found[0].is_finished:
            mark = found[0]
        else:
            queues: dict[QueueName, QueueState] = {
                queue.name: queue.state
                for queue in self._old.reader.queues()
                if queue.state is not QueueState.ACTIVE
            }
            paused = tuple(schedule.name for schedule in self._schedules() if schedule.is_paused)
            mark = Mark(to=self._new.place, queues=queues, schedules=paused)
            self._write_mark(mark, 0 if found is None else found[1])
        self._pause()
        return mark

    def _pause(self) -> None:
        for queue in self._old.reader.queues():
            if queue.state is not QueueState.PAUSED:
                self._old.store.save_queue(queue.name, state=QueueState.PAUSED, actor=self._actor)
        for schedule in self._schedules():
            if not schedule.is_paused:
                self._pause_schedule(schedule)

    def _pause_schedule(self, schedule: Schedule) -> None:
        while not self._old.store.save_schedule(
            replace(schedule, is_paused=True, due_at=None), actor=self._actor
        ):
            # It has fired, or somebody has changed it: the next look sees that.
            found = self._old.reader.schedules([schedule.name])
            if not found or found[0].is_paused:
                return
            [schedule] = found

    def _wait_for_attempts(self, wait_ms: int) -> None:
        until = self._clock.monotonic() + wait_ms / 1_000
        while running := sum(counts.running for counts in self._old.reader.counts().values()):
            if self._clock.monotonic() >= until:
                raise IllegalTransition(
                    f"{running:,} {'job is' if running == 1 else 'jobs are'} running in {self._old.name}; "
                    "its queues are paused, so no other begins: stop its workers, or wait for them, and "
                    "begin again"
                )
            Event().wait(_LOOK_EVERY_S)

    # Copying

    def _settings(self, mark: Mark) -> Moved:
        limits = {limit.scope for limit in self._new.reader.limits()}
        fresh = [limit for limit in self._old.reader.limits() if limit.scope not in limits]
        for limit in fresh:
            self._new.store.save_limit(limit, actor=self._actor)
        return Moved(
            limits=len(fresh),
            schedules=sum(self._copy_schedule(mark, schedule) for schedule in self._schedules()),
            documents=sum(self._copy_document(document) for document in self._documents()),
        )

    def _queues(self, mark: Mark) -> int:
        """Make queues that are not there yet, as they were before the move. Others are left alone, but for
        those that an earlier move away from there has closed."""
        names = list(self._old.reader.counts())
        if not names:
            return 0
        was_left = self._mark(self._new) is not None
        there = {
            queue.name
            for queue in self._new.reader.queues(names)
            if not (was_left and queue.state is QueueState.DRAINING)
        }
        queues = [queue for queue in self._old.reader.queues(names) if queue.name not in there]
        for queue in queues:
            self._make_queue(queue, mark)
        return len(queues)

    def _make_queue(self, queue: Queue, mark: Mark) -> None:
        state = mark.queues.get(queue.name, QueueState.ACTIVE)
        if queue.state is QueueState.DROPPED:
            state = QueueState.DROPPED
        # Until the end nothing is forgotten there: what has been done and pruned would be copied once more.
        changes = {**msgspec.to_builtins(queue.settings), **dict.fromkeys(_KEEPS, 0)}
        self._new.store.save_queue(queue.name, changes, state=state, actor=self._actor)

    def _copy_schedule(self, mark: Mark, schedule: Schedule) -> bool:
        """As it was before it was paused. Its next run is due at once if its time has come meanwhile."""
        is_paused = schedule.name in mark.schedules
        again = replace(
            schedule, revision=0, is_paused=is_paused, due_at=None if is_paused else schedule.next_at
        )
        return self._new.store.save_schedule(again, actor=self._actor)

    def _copy_document(self, document: Document) -> bool:
        return self._new.store.save_document(replace(document, revision=0))

    def _pass(self) -> int:
        """Copy jobs that are not there yet, the live ones first: then workers of the new store have something
        to do while history comes. In the order of their numbers, so that parents come before children."""
        copied = 0
        for label, states in (("live jobs", LIVE), ("history", _FINAL)):
            for part in self._parts(label, self._ids(states)):
                copied += self._copy(part)
        return copied

    def _copy(self, ids: Sequence[JobId]) -> int:
        there = self._new.reader.fates(ids)
        missing = [job_id for job_id, fate in zip(ids, there, strict=True) if fate is None]
        wholes = self._old.reader.wholes(missing) if missing else []
        return sum(self._adopted([whole for whole in wholes if whole is not None]))

    def _adopted(self, wholes: Sequence[Whole]) -> list[bool]:
        return self._new.store.adopt(wholes) if wholes else []

    # Taking out

    def _delete_all(self) -> int:
        """Page by page, newest first: a job has a greater number than those that it depends on."""
        deleted = 0
        total = sum(counts.total for counts in self._old.reader.counts().values())
        while ids := self._newest():
            for part in _parts_of(ids):
                self._copy(part)
                gone = sum(verdict.done for verdict in self._old.store.delete(part, actor=self._actor))
                if not gone:
                    raise IllegalTransition(
                        f"{part[0]} of {self._old.name} cannot be taken out: somebody works at it"
                    )
                deleted += gone
                self._tell("taking out", deleted, max(total, deleted))
        return deleted

    def _newest(self) -> list[JobId]:
        after: str | None = None
        while True:
            page = self._old.reader.search(JobQuery(), limit=MAX_PAGE, after=after)
            if page.jobs or page.after is None:
                return [job.id for job in page.jobs]
            after = page.after

    # Looking

    def _ids(self, states: Iterable[JobState]) -> list[JobId]:
        """The jobs of the old store in these states, in the order of their numbers."""
        query, after, ids = JobQuery(states=tuple(states)), None, list[JobId]()
        while True:
            page = self._old.reader.search(query, limit=MAX_PAGE, after=after)
            ids += [job.id for job in page.jobs]
            after = page.after
            if after is None:
                return ids[::-1]

    def _parts(self, label: str, ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
        done = 0
        for part in _parts_of(ids):
            yield part
            done += len(part)
            self._tell(label, done, len(ids))

    def _schedules(self) -> Iterator[Schedule]:
        after: str | None = None
        while found := self._old.reader.schedules(limit=MAX_PAGE, after=after):
            yield from found
            after = found[-1].name

    def _documents(self) -> Iterator[Document]:
        for kind in KINDS:
            after: str | None = None
            while found := self._old.reader.documents(kind, limit=MAX_PAGE, after=after):
                yield from found
                after = found[-1].name

    def _mark(self, place: Place | None = None) -> tuple[Mark, int] | None:
        for document in (place or self._old).reader.documents(KIND, [_NAME]):
            return msgspec.json.decode(document.body, type=Mark), document.revision
        return None

    def _write_mark(self, mark: Mark, revision: int) -> None:
        document = Document(kind=KIND, name=_NAME, body=msgspec.json.encode(mark).decode(), revision=revision)
        if not self._old.store.save_document(document):
            raise IllegalTransition(f"somebody else is moving {self._old.name} at the same time")


def _parts_of(ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
    return (ids[first : first + AT_ONCE] for first in range(0, len(ids), AT_ONCE))
