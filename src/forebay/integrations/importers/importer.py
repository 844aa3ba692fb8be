"""Importer: each job is stored first, and removed from its old place afterwards.

Whatever happens in between, an import that is begun again loses nothing and makes nothing twice. A job that
was stored and not yet removed is met again with the same idempotency key, and then only removed. The key
identifies the very message, so that a later one under the same id is a job of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.app.registry import Registry
from forebay.domain.dependency_graph import dependencies_of
from forebay.domain.job import JobId, NewJob, QueueName
from forebay.errors import ForebayError, InvalidJob, StoreUnavailable
from forebay.integrations.importers.source import (
    IDEMPOTENCY_TTL_MS,
    READ_ERRORS,
    ForeignJob,
    FoundJob,
    SkippedJob,
    Source,
    describe_error,
)
from forebay.payload.codec import encode_call
from forebay.stores.contract.claims_and_results import InsertResult
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store

MAX_PASSES: Final = 10
METADATA_KEY: Final = "imported"

DUPLICATE: Final = (
    "it waits twice under this id, and one of the two was carried over: enqueue the other here and remove "
    "it there, or let the old queue run it; a further import would take it for the first"
)

ProgressCallback = Callable[[str, int, int], None]  # the step, how far it is, of how much


class NameMapping(NamedTuple):
    """New names of queues and tasks; a name that is missing stays the same."""

    queues: Mapping[str, str] = {}
    tasks: Mapping[str, str] = {}


SAME_NAMES: Final = NameMapping()


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import.

    `already` were stored by an earlier one, and are only removed now. `contested` were gone from their old
    place when they were to be removed: the old queue may have run them. `dropped` counts features of messages
    that Forebay jobs do not have. `old_queues` and `old_tasks` are the names found there; `queues` and
    `tasks` count what was stored, by the new names. `remaining` is what still waits there.
    """

    found: int = 0
    stored: int = 0
    already: int = 0
    removed: int = 0
    remaining: int = 0
    contested: tuple[str, ...] = ()
    left: tuple[SkippedJob, ...] = ()
    queues: dict[str, int] = {}
    tasks: dict[str, int] = {}
    old_queues: tuple[str, ...] = ()
    old_tasks: tuple[str, ...] = ()
    unknown_tasks: tuple[str, ...] = ()
    dropped: dict[str, int] = {}

    @property
    def agrees(self) -> bool:
        """Whether each job that was found is accounted for, and nothing waits there but the skipped ones."""
        accounted = self.stored + self.already + len(self.left)
        return self.found == accounted and self.remaining == len(self.left) and not self.contested


class _ImportedJob(NamedTuple):
    """A job on its way: where it was, its message, and the new job."""

    found: FoundJob
    message: ForeignJob
    job: NewJob
    place: Hashable = None


class Importer:
    """Moves the waiting jobs of a source to a store. `registry` is that of an app, if one is known: its tasks
    give jobs their retries and time limits where messages have none, and check their arguments."""

    def __init__(
        self,
        source: Source,
        store: Store,
        reader: Reader,
        *,
        names: NameMapping = SAME_NAMES,
        registry: Registry | None = None,
        report_progress: ProgressCallback = lambda *_: None,
    ) -> None:
        self._source = source
        self._store = store
        self._reader = reader
        self._names = names
        self._registry = registry
        self._report_progress = report_progress
        self._skipped: dict[
            Hashable, list[SkippedJob]
        ] = {}  # several messages may have one and the same place
        self._keys: set[str] = set()  # of all messages met, to detect a second one of a key
        self._ids: dict[str, JobId] = {}  # of jobs that could not keep theirs
        self._stored = self._already = self._removed = 0
        self._contested: list[str] = []
        self._queues: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._unknown: set[str] = set()
        self._old_queues: set[str] = set()
        self._old_tasks: set[str] = set()

    def preview(self) -> ImportResult:
        """Return what an import would do; nothing is written anywhere."""
        done, total, ahead = 0, self._source.count(), set[str]()
        for page in self._source.pages():
            for item in self._build_items(page):
                missing = [
                    parent
                    for parent in item.message.depends_on
                    if parent not in ahead and not self._is_there(parent)
                ]
                if missing:
                    self._skip(item.found, item.message, _missing_reason(missing))
                    continue
                ahead.add(item.message.id)
                self._count(item)
            done += len(page)
            self._report_progress("reading", done, max(total, done))
        return self._build_result(remaining=self._source.count())

    def run(self) -> ImportResult:
        """Import all jobs, pass after pass, until one finds nothing new."""
        for _ in range(MAX_PASSES):
            done, total, imported = 0, self._source.count(), self._imported_count
            known = Counter({place: len(skipped) for place, skipped in self._skipped.items()})
            for page in self._source.pages():
                self._import_page([found_job for found_job in page if not _is_among(known, found_job.place)])
                done += len(page)
                self._report_progress("importing", done, max(total, done))
            if self._imported_count == imported:
                break
        return self._build_result(remaining=self._source.count())

    @property
    def _imported_count(self) -> int:
        return self._stored + self._already

    def _build_result(self, *, remaining: int) -> ImportResult:
        skipped = tuple(job for jobs in self._skipped.values() for job in jobs)
        return ImportResult(
            found=self._imported_count + len(skipped),
            stored=self._stored,
            already=self._already,
            removed=self._removed,
            remaining=remaining,
            contested=tuple(self._contested),
            left=skipped,
            queues=dict(sorted(self._queues.items())),
            tasks=dict(sorted(self._tasks.items())),
            old_queues=tuple(sorted(self._old_queues)),
            old_tasks=tuple(sorted(self._old_tasks - {""})),
            unknown_tasks=tuple(sorted(self._unknown)),
            dropped=dict(sorted(self._dropped.items())),
        )

    # From a page to jobs

    def _build_items(self, page: Sequence[FoundJob]) -> list[_ImportedJob]:
        items = []
        for found in page:
            self._old_queues.add(found.message.queue)
            self._old_tasks.add(found.message.task)
            if isinstance(found.message, SkippedJob):
                self._skipped.setdefault(found.place, []).append(found.message)
                continue
            if found.message.key in self._keys and not self._source.distinguishes_copies:
                self._skip(found, found.message, DUPLICATE)  # it would be taken for the first one, and lost
                continue
            self._keys.add(found.message.key)
            try:
                items.append(_ImportedJob(found, found.message, self._build_job(found.message)))
            except ForebayError as exc:
                self._skip(found, found.message, str(exc))
            except READ_ERRORS as exc:
                self._skip(found, found.message, describe_error(exc))
        return items

    def _build_job(self, message: ForeignJob) -> NewJob:
        task = self._names.tasks.get(message.task, message.task)
        base = self._base_job(task, message)
        return replace(
            base,
            payload=encode_call(message.args, message.kwargs),
            queue=QueueName(self._names.queues.get(message.queue, message.queue)),
            id=JobId(message.id),
            priority=base.priority if message.priority is None else message.priority,
            run_at=message.run_at,
            expires_at=base.expires_at if message.expires_at is None else message.expires_at,
            timeout_ms=base.timeout_ms if message.timeout_ms is None else message.timeout_ms,
            policy=base.policy if message.policy is None else message.policy,
            idempotency_key=message.key,
            idempotency_ttl_ms=IDEMPOTENCY_TTL_MS,
            metadata={**base.metadata, METADATA_KEY: message.details},
        )

    def _base_job(self, task: str, message: ForeignJob) -> NewJob:
        """Return the options that apply where the message has none."""
        if self._registry is None:
            return NewJob(task=task, timeout_ms=None, policy=self._source.default_policy)
        if task not in self._registry:
            self._unknown.add(task)
            return NewJob(task=task, timeout_ms=None, policy=self._source.default_policy)
        try:
            # As a call would make it: keys, sequences and times may come from the arguments and the clock.
            return self._registry[task].job(*message.args, **message.kwargs)
        except ForebayError:
            raise
        except Exception as exc:  # a function of the app that reads the arguments
            raise InvalidJob(f"task {task} makes no job of it: {type(exc).__name__}: {exc!s:.80}") from exc

    # Storing and removing

    def _import_page(self, page: Sequence[FoundJob]) -> None:
        items = self._prepare([item for item in self._build_items(page) if self._has_parents(item)])
        jobs = [self._with_dependencies(item) for item in items]
        receipts = self._store.insert(jobs, on_conflict="ignore", atomic=False) if jobs else []
        stored_items = zip(items, jobs, receipts, strict=True)
        settled = [self._resolve_conflict(item, job, receipt) for item, job, receipt in stored_items]
        visible = self._find_visible(settled)
        stored = []
        for item, receipt in zip(items, settled, strict=True):
            if isinstance(receipt.error, StoreUnavailable):
                raise receipt.error
            if receipt.error is not None:
                self._skip(item.found, item.message, str(receipt.error))
            elif receipt.is_new and receipt.id not in visible:
                self._skip(item.found, item.message, "the new store does not show it: begin again")
            else:
                stored.append((item, receipt.is_new))
        self._remove_stored(stored)

    def _prepare(self, items: Sequence[_ImportedJob]) -> list[_ImportedJob]:
        """Return the items without those that are gone: another program has taken them."""
        candidates = self._source.prepare([item.found for item in items]) if items else ()
        return [
            item._replace(place=candidate.place, job=replace(item.job, idempotency_key=candidate.key))
            for item, candidate in zip(items, candidates, strict=True)
            if candidate is not None
        ]

    def _remove_stored(self, stored: Sequence[tuple[_ImportedJob, bool]]) -> None:
        """Remove stored jobs from the source. Only now: the new store has answered that it has them."""
        removed = self._source.remove([item.place for item, _ in stored]) if stored else []
        for (item, is_new), is_removed in zip(stored, removed, strict=True):
            self._removed += is_removed
            if not is_removed:
                self._contested.append(item.message.id)
            if is_new:
                self._count(item)
            else:
                self._already += 1

    def _count(self, item: _ImportedJob) -> None:
        self._stored += 1
        self._queues[item.job.queue] += 1
        self._tasks[item.job.task] += 1
        self._dropped.update(item.message.dropped)

    def _skip(self, found: FoundJob, message: ForeignJob, reason: str) -> None:
        skipped = SkippedJob(id=message.id, task=message.task, queue=message.queue, reason=reason)
        self._skipped.setdefault(found.place, []).append(skipped)

    def _has_parents(self, item: _ImportedJob) -> bool:
        missing = [parent for parent in item.message.depends_on if not self._is_there(parent)]
        if missing:
            self._skip(item.found, item.message, _missing_reason(missing))
        return not missing

    def _is_there(self, old: str) -> bool:
        [state] = self._reader.job_states([self._ids.get(old, JobId(old))])
        return state is not None

    def _with_dependencies(self, item: _ImportedJob) -> NewJob:
        if not item.message.depends_on:
            return item.job
        parents = [self._ids.get(parent, JobId(parent)) for parent in item.message.depends_on]
        return replace(item.job, depends_on=dependencies_of(parents, item.message.on_failure))

    def _resolve_conflict(self, item: _ImportedJob, job: NewJob, receipt: InsertResult) -> InsertResult:
        """Return the receipt of a job that is stored, now or before; or of one that is refused."""
        if receipt.error is not None or receipt.is_new or receipt.id is None:
            return receipt
        [holder] = self._reader.jobs([receipt.id])
        if holder is None or holder.idempotency_key == job.idempotency_key:
            return receipt  # of an earlier import, and perhaps forgotten since
        # The id is taken by a job that was enqueued here, or by an earlier message under that id.
        [renamed] = self._store.insert([replace(job, id=None)], on_conflict="ignore", atomic=False)
        if renamed.id is not None:
            self._ids[item.message.id] = renamed.id
        return renamed

    def _find_visible(self, receipts: Sequence[InsertResult]) -> set[JobId]:
        """Return those of the new jobs that the store shows in a second query."""
        ids = [receipt.id for receipt in receipts if receipt.id is not None and receipt.is_new]
        states = self._reader.job_states(ids) if ids else []
        return {job_id for job_id, state in zip(ids, states, strict=True) if state is not None}


def _is_among(known: Counter[Hashable], place: Hashable) -> bool:
    """Return whether this is one of the skipped jobs; each is met once in a pass."""
    known[place] -= 1
    return known[place] >= 0


def _missing_reason(missing: Sequence[str]) -> str:
    return f"it depends on {missing[0]}, which was not carried over"
