"""Carrying jobs over: each is stored first, and taken out of its old place afterwards.

Whatever happens in between, an import that is begun again loses nothing and makes nothing twice: a job that
was stored and not yet removed is met again with the same once key, and then only removed. The key names the
very message, so that a later one under the same id is a job of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.app.codec import encode_call
from forebay.app.registry import Registry
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.domain.workflow import needs_of
from forebay.errors import ForebayError, InvalidJob, StoreUnavailable
from forebay.integrations.moving_in.found import ODD, REMEMBERED_MS, Found, Left, Source, Waiting, why
from forebay.stores.protocol import Reader, Receipt, Store

MOST_PASSES: Final = 10
NOTES: Final = "imported"

TWICE: Final = (
    "it waits twice under this id, and one of the two was carried over: enqueue the other here and remove "
    "it there, or let the old queue run it; a further import would take it for the first"
)

Tell = Callable[[str, int, int], None]  # what is being done, how far it is, of how much


class Names(NamedTuple):
    """What is called otherwise here; what is not named keeps its name."""

    queues: Mapping[str, str] = {}
    tasks: Mapping[str, str] = {}


SAME_NAMES: Final = Names()


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an import. `already` were stored by an earlier one, and are only removed now.
    `contested` were gone from their old place when they were to be removed: somebody may have run them there.
    `dropped` counts what messages said and jobs of ours cannot. `old_queues` and `old_tasks` are the names
    that were met, as they are there; `queues` and `tasks` count what was stored, by the names here.
    `remaining` is what waits there still."""

    found: int = 0
    stored: int = 0
    already: int = 0
    removed: int = 0
    remaining: int = 0
    contested: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
    queues: dict[str, int] = {}
    tasks: dict[str, int] = {}
    old_queues: tuple[str, ...] = ()
    old_tasks: tuple[str, ...] = ()
    unknown_tasks: tuple[str, ...] = ()
    dropped: dict[str, int] = {}

    @property
    def agrees(self) -> bool:
        """Whether each job that was found is accounted for, and nothing waits there but what was left."""
        accounted = self.stored + self.already + len(self.left)
        return self.found == accounted and self.remaining == len(self.left) and not self.contested


class _Carried(NamedTuple):
    """A job on its way: where it was, what it was, and what it is here."""

    found: Found
    waiting: Waiting
    job: NewJob
    place: Hashable = None


class Importer:
    """Carries what waits in a source over to a store. `registry` is that of an app, if one is known: its
    tasks say what jobs that say nothing get for retries and time limits, and check their arguments."""

    def __init__(
        self,
        source: Source,
        store: Store,
        reader: Reader,
        *,
        names: Names = SAME_NAMES,
        registry: Registry | None = None,
        tell: Tell = lambda *_: None,
    ) -> None:
        self._source = source
        self._store = store
        self._reader = reader
        self._names = names
        self._registry = registry
        self._tell = tell
        self._left: dict[Hashable, list[Left]] = {}  # several messages may have one and the same place
        self._keys: set[str] = set()  # of all that was met, to tell a second message of one key
        self._ids: dict[str, JobId] = {}  # of jobs that could not keep theirs
        self._stored = self._already = self._removed = 0
        self._contested: list[str] = []
        self._queues: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._unknown: set[str] = set()
        self._old_queues: set[str] = set()
        self._old_tasks: set[str] = set()

    def look(self) -> Imported:
        """What an import would do; nothing is written anywhere."""
        done, total, ahead = 0, self._source.count(), set[str]()
        for page in self._source.pages():
            for one in self._made(page):
                missing = [
                    need for need in one.waiting.needs if need not in ahead and not self._is_there(need)
                ]
                if missing:
                    self._leave(one.found, one.waiting, _not_carried(missing))
                    continue
                ahead.add(one.waiting.id)
                self._count(one)
            done += len(page)
            self._tell("reading", done, max(total, done))
        return self._told(remaining=self._source.count())

    def run(self) -> Imported:
        """Carry over all there is, pass after pass, until one finds nothing new."""
        for _ in range(MOST_PASSES):
            done, total, carried = 0, self._source.count(), self._carried_so_far
            known = Counter({place: len(left) for place, left in self._left.items()})
            for page in self._source.pages():
                self._carry([one for one in page if not _is_among(known, one.place)])
                done += len(page)
                self._tell("importing", done, max(total, done))
            if self._carried_so_far == carried:
                break
        return self._told(remaining=self._source.count())

    @property
    def _carried_so_far(self) -> int:
        return self._stored + self._already

    def _told(self, *, remaining: int) -> Imported:
        left = tuple(each for lefts in self._left.values() for each in lefts)
        return Imported(
            found=self._carried_so_far + len(left),
            stored=self._stored,
            already=self._already,
            removed=self._removed,
            remaining=remaining,
            contested=tuple(self._contested),
            left=left,
            queues=dict(sorted(self._queues.items())),
            tasks=dict(sorted(self._tasks.items())),
            old_queues=tuple(sorted(self._old_queues)),
            old_tasks=tuple(sorted(self._old_tasks - {""})),
            unknown_tasks=tuple(sorted(self._unknown)),
            dropped=dict(sorted(self._dropped.items())),
        )

    # From a page to jobs

    def _made(self, page: Sequence[Found]) -> list[_Carried]:
        made = []
        for found in page:
            self._old_queues.add(found.what.queue)
            self._old_tasks.add(found.what.task)
            if isinstance(found.what, Left):
                self._left.setdefault(found.place, []).append(found.what)
                continue
            if found.what.key in self._keys and not self._source.tells_copies:
                self._leave(found, found.what, TWICE)  # it would be taken for the first one, and lost
                continue
            self._keys.add(found.what.key)
            try:
                made.append(_Carried(found, found.what, self._job(found.what)))
            except ForebayError as exc:
                self._leave(found, found.what, str(exc))
            except ODD as exc:
                self._leave(found, found.what, why(exc))
        return made

    def _job(self, what: Waiting) -> NewJob:
        task = self._names.tasks.get(what.task, what.task)
        base = self._base(task, what)
        return replace(
            base,
            payload=encode_call(what.args, what.kwargs),
            queue=QueueName(self._names.queues.get(what.queue, what.queue)),
            id=JobId(what.id),
            priority=base.priority if what.priority is None else what.priority,
            run_at=what.run_at,
            expires_at=base.expires_at if what.expires_at is None else what.expires_at,
            timeout_ms=base.timeout_ms if what.timeout_ms is None else what.timeout_ms,
            policy=base.policy if what.policy is None else what.policy,
            once_key=what.key,
            once_ms=REMEMBERED_MS,
            metadata={**base.metadata, NOTES: what.notes},
        )

    def _base(self, task: str, what: Waiting) -> NewJob:
        """What holds where the message says nothing."""
        if self._registry is None:
            return NewJob(task=task, timeout_ms=None, policy=self._source.default_policy)
        if task not in self._registry:
            self._unknown.add(task)
            return NewJob(task=task, timeout_ms=None, policy=self._source.default_policy)
        try:
            # As a call would make it: keys, sequences and times may come from the arguments and the clock.
            return self._registry[task].job(*what.args, **what.kwargs)
        except ForebayError:
            raise
        except Exception as exc:  # a function of the app that looks at the arguments
            raise InvalidJob(f"task {task} makes no job of it: {type(exc).__name__}: {exc!s:.80}") from exc

    # Storing and removing

    def _carry(self, page: Sequence[Found]) -> None:
        made = self._begun([one for one in self._made(page) if self._has_parents(one)])
        jobs = [self._tied(one) for one in made]
        receipts = self._store.insert(jobs, on_conflict="ignore", atomic=False) if jobs else []
        asked = zip(made, jobs, receipts, strict=True)
        settled = [self._settled(one, job, receipt) for one, job, receipt in asked]
        there = self._there(settled)
        stored = []
        for one, receipt in zip(made, settled, strict=True):
            if isinstance(receipt.error, StoreUnavailable):
                raise receipt.error
            if receipt.error is not None:
                self._leave(one.found, one.waiting, str(receipt.error))
            elif receipt.is_new and receipt.id not in there:
                self._leave(one.found, one.waiting, "the new store does not show it: begin again")
            else:
                stored.append((one, receipt.is_new))
        self._take_out(stored)

    def _begun(self, made: Sequence[_Carried]) -> list[_Carried]:
        """Without those that are gone: they are somebody else's."""
        begun = self._source.begun([one.found for one in made]) if made else ()
        return [
            one._replace(place=known.place, job=replace(one.job, once_key=known.key))
            for one, known in zip(made, begun, strict=True)
            if known is not None
        ]

    def _take_out(self, stored: Sequence[tuple[_Carried, bool]]) -> None:
        """Only now: the new store has answered that it has them."""
        gone = self._source.remove([one.place for one, _ in stored]) if stored else []
        for (one, is_new), is_gone in zip(stored, gone, strict=True):
            self._removed += is_gone
            if not is_gone:
                self._contested.append(one.waiting.id)
            if is_new:
                self._count(one)
            else:
                self._already += 1

    def _count(self, one: _Carried) -> None:
        self._stored += 1
        self._queues[one.job.queue] += 1
        self._tasks[one.job.task] += 1
        self._dropped.update(one.waiting.dropped)

    def _leave(self, found: Found, what: Waiting, reason: str) -> None:
        left = Left(id=what.id, task=what.task, queue=what.queue, reason=reason)
        self._left.setdefault(found.place, []).append(left)

    def _has_parents(self, one: _Carried) -> bool:
        missing = [need for need in one.waiting.needs if not self._is_there(need)]
        if missing:
            self._leave(one.found, one.waiting, _not_carried(missing))
        return not missing

    def _is_there(self, old: str) -> bool:
        [fate] = self._reader.fates([self._ids.get(old, JobId(old))])
        return fate is not None

    def _tied(self, one: _Carried) -> NewJob:
        if not one.waiting.needs:
            return one.job
        parents = [self._ids.get(need, JobId(need)) for need in one.waiting.needs]
        return replace(one.job, depends_on=needs_of(parents, one.waiting.on_failure))

    def _settled(self, one: _Carried, job: NewJob, receipt: Receipt) -> Receipt:
        """The receipt of a job that is stored, now or before; or of one that is refused."""
        if receipt.error is not None or receipt.is_new or receipt.id is None:
            return receipt
        [holder] = self._reader.jobs([receipt.id])
        if holder is None or holder.once_key == job.once_key:
            return receipt  # of an earlier import, and perhaps forgotten since
        # The id is somebody else's: of a job that was enqueued here, or of an earlier message under that id.
        [again] = self._store.insert([replace(job, id=None)], on_conflict="ignore", atomic=False)
        if again.id is not None:
            self._ids[one.waiting.id] = again.id
        return again

    def _there(self, receipts: Sequence[Receipt]) -> set[JobId]:
        """Those of the new ones that the store shows when it is asked once more."""
        ids = [receipt.id for receipt in receipts if receipt.id is not None and receipt.is_new]
        fates = self._reader.fates(ids) if ids else []
        return {job_id for job_id, fate in zip(ids, fates, strict=True) if fate is not None}


def _is_among(known: Counter[Hashable], place: Hashable) -> bool:
    """Whether this is one of those that are known to be left; each is met once in a pass."""
    known[place] -= 1
    return known[place] >= 0


def _not_carried(missing: Sequence[str]) -> str:
    return f"it depends on {missing[0]}, which was not carried over"
