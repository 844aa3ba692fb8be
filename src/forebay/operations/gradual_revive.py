"""Gradual revives: dead letters are revived in batches that grow while few of the jobs fail again.

A gradual revive is one document. Each run of the maintenance task reads it and checks the jobs that were
revived. If the next batch is due, it picks the jobs, saves the document under its revision, and revives them
only then. So:

- Of two concurrent runs one saves, and the other does nothing.
- A process that dies before the save has done nothing. One that dies after it leaves picked jobs that are not
  revived yet; the next run finds them still dead and revives them.
- No job is revived twice, even by a process that was suspended for an hour between the save and the revive,
  while another run revived the job and it died again. The store refuses a job that has ended since the start.
- A pause or a stop does not undo a saved batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.gradual_revive import (
    MAX_QUERY_BYTES,
    GradualRevive,
    GradualRevivePlan,
    GradualReviveState,
    check_completion,
    evaluate_batch,
    is_still_dead,
)
from forebay.domain.job import JobId
from forebay.domain.job_history import Changes, Event, EventKind
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import JobState
from forebay.domain.job_views import JobStateInfo
from forebay.domain.stored_document import Document
from forebay.errors import ConfigError, GradualReviveNotFound, IllegalTransition, StoreUnavailable
from forebay.operations.failure_groups import STATES_BATCH, filter_by_group, load_states, restrict_to_dead
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ENDED_SINCE
from forebay.stores.contract.store import Store
from forebay.stores.id_generator import new_id

KIND: Final = "gradual_revive"
MAX_FINISHED_REVIVES: Final = 50  # the list is read every few seconds
MAX_OPEN: Final = 50
MAX_TRIES: Final = 20

_decode: Final = msgspec.json.Decoder(GradualRevive).decode
_encode: Final = msgspec.json.Encoder().encode

logger: logging.Logger = logging.getLogger(__name__)


def list_gradual_revives(reader: Reader) -> list[GradualRevive]:
    """Return all stored gradual revives, the newest first."""
    revives = [revive for document in _load_documents(reader) if (revive := _decode_document(document))]
    return sorted(revives, key=lambda revive: (-revive.started_at, revive.name))


def find_gradual_revive(reader: Reader, name: str) -> GradualRevive:
    """Return one gradual revive; raise GradualReviveNotFound if there is none."""
    return _decode(_require_document(reader, name).body)


def _decode_document(document: Document) -> GradualRevive | None:
    """Decode a document; None for one of a later release that this one cannot read."""
    try:
        return _decode(document.body)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        logger.warning("gradual revive %s cannot be read, and is skipped: %s", document.name, exc)
        return None


def _load_documents(reader: Reader) -> list[Document]:
    return reader.documents(KIND, limit=1_000)


def _require_document(reader: Reader, name: str) -> Document:
    documents = reader.documents(KIND, [name])
    if not documents:
        raise GradualReviveNotFound(
            f"there is no gradual revive {name}; list them with `forebay gradual-revives list`"
        )
    return documents[0]


# Actions of operators


def start_gradual_revive(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    plan: GradualRevivePlan | None = None,
    actor: str = "",
) -> GradualRevive:
    """Start to revive the matching jobs that are dead by now; the maintenance task continues it.

    Raises IllegalTransition if another gradual revive covers the same jobs.
    """
    # It starts with the next millisecond, to include jobs that die in this one. No job is revived before
    # that, so no revived job has ended before the start.
    begins_at = reader.now() + 1
    revive = GradualRevive(
        name=new_id(),
        query=restrict_to_dead(query),
        group=group,
        plan=plan or GradualRevivePlan(),
        started_at=begins_at,
        started_by=actor,
        next_batch_at=begins_at,
    )
    if len(_encode(revive.query)) > MAX_QUERY_BYTES:
        raise ConfigError(f"the query of a gradual revive has at most {MAX_QUERY_BYTES:,} bytes")
    known = list_gradual_revives(reader)
    _check_no_overlap(revive, known)
    changes = {"group": (None, group), "plan": (None, msgspec.to_builtins(revive.plan))}
    _save(store, revive, 0, _event(revive, "started", changes, actor))
    for old in [finished for finished in known if not finished.is_open][MAX_FINISHED_REVIVES - 1 :]:
        # It may have been resumed since it was read.
        if not any(current.is_open for current in _load_named(reader, old.name)):
            store.drop_document(KIND, old.name)
    return revive


def _load_named(reader: Reader, name: str) -> list[GradualRevive]:
    return [revive for document in reader.documents(KIND, [name]) if (revive := _decode_document(document))]


def _check_no_overlap(requested: GradualRevive, known: Sequence[GradualRevive]) -> None:
    # Two that start in the same moment may both pass. Then each of them revives a job once, the second one if
    # the job has died again.
    running = [revive for revive in known if revive.is_open]
    for revive in running:
        if (revive.group, revive.query) == (requested.group, requested.query):
            raise IllegalTransition(
                f"gradual revive {revive.name} is {revive.state} and revives the same jobs"
            )
    if len(running) >= MAX_OPEN:
        raise IllegalTransition(f"there are {MAX_OPEN} gradual revives already; let some of them end")


def pause_gradual_revive(store: Store, reader: Reader, name: str, *, actor: str = "") -> GradualRevive:
    """Revive no more jobs until it is resumed; revived jobs are not affected. Raises GradualReviveNotFound
    and IllegalTransition, like the next two functions."""
    return _update_with_retry(store, reader, name, "paused", actor, lambda revive, _: revive.pause())


def resume_gradual_revive(store: Store, reader: Reader, name: str, *, actor: str = "") -> GradualRevive:
    """Continue a paused or stopped gradual revive. Raises IllegalTransition too if another one covers the
    same jobs by now."""
    rest = [revive for revive in list_gradual_revives(reader) if revive.name != name]
    _check_no_overlap(find_gradual_revive(reader, name), rest)
    return _update_with_retry(store, reader, name, "resumed", actor, lambda revive, now: revive.resume(now))


def stop_gradual_revive(store: Store, reader: Reader, name: str, *, actor: str = "") -> GradualRevive:
    """End a gradual revive; revived jobs are not affected."""
    return _update_with_retry(
        store, reader, name, "stopped", actor, lambda revive, now: revive.stop(now, "by hand")
    )


def _update_with_retry(
    store: Store,
    reader: Reader,
    name: str,
    action: str,
    actor: str,
    change: Callable[[GradualRevive, int], GradualRevive],
) -> GradualRevive:
    for _ in range(MAX_TRIES):
        document = _require_document(reader, name)
        before = _decode(document.body)
        after = change(before, reader.now())
        changes: Changes = {"state": (str(before.state), str(after.state))}
        if _save(store, after, document.revision, _event(after, action, changes, actor)):
            return after
    raise StoreUnavailable(f"gradual revive {name} is changed by other clients all the time; try again")


def _event(revive: GradualRevive, action: str, changes: Changes, actor: str) -> Event:
    return Event(
        kind=EventKind.GRADUAL_REVIVE, actor=actor or None, detail=f"{action} {revive.name}", changes=changes
    )


def _save(store: Store, revive: GradualRevive, revision: int, event: Event | None = None) -> bool:
    document = Document(kind=KIND, name=revive.name, body=_encode(revive).decode(), revision=revision)
    return store.save_document(document, event=event)


# The maintenance task


def advance_gradual_revives(store: Store, reader: Reader) -> bool:
    """Advance each running gradual revive; return whether there is one."""
    running = 0
    for document in _load_documents(reader):
        known = _decode_document(document)
        if known is None or known.state is not GradualReviveState.RUNNING:
            continue
        running += 1
        try:
            _advance_one(store, reader, known, document.revision)
        except StoreUnavailable:
            raise
        except Exception:
            # An error of one must not stop the rest.
            logger.exception("gradual revive %s cannot continue for now", known.name)
    return running > 0


def _advance_one(store: Store, reader: Reader, current: GradualRevive, revision: int) -> None:
    """Check the watched jobs, and pick jobs of the next batch from one page of dead letters. The next run
    continues after that page. This is bounded because a worker with running jobs does it."""
    now = reader.now()
    revive = _check_watched(store, reader, current, now)
    if revive.is_due(now):
        revive, has_all = _pick_batch(reader, revive)
        if has_all:
            revive = revive.start_batch(now) if revive.picked else check_completion(revive, now)
    if revive != current and not _save(store, revive, revision, _state_event(current, revive)):
        return  # a concurrent run has saved first
    if revive.batches > current.batches:
        _revive(store, revive, revive.watched[-revive.size :])


def _state_event(before: GradualRevive, after: GradualRevive) -> Event | None:
    """Return the audit event for a change of state without an operator; None for no change."""
    if before.state is after.state:
        return None
    changes: Changes = {"state": (str(before.state), str(after.state)), "reason": (None, after.reason)}
    return _event(after, str(after.state), changes, "")


def _check_watched(store: Store, reader: Reader, revive: GradualRevive, now: int) -> GradualRevive:
    """Return the state after a check of the revived jobs. Picked jobs that are still dead are revived again.
    Not in each run: there may be a thousand."""
    if revive.watched and not revive.is_check_due(now):
        return revive
    infos = _load_states(reader, revive.watched)
    left = [info.id for info in infos.values() if info is not None and is_still_dead(revive, info)]
    refused = _revive(store, revive, left) if left else []
    return evaluate_batch(revive, infos, refused, now)


def _load_states(reader: Reader, ids: Sequence[JobId]) -> dict[JobId, JobStateInfo | None]:
    infos: dict[JobId, JobStateInfo | None] = {}
    for first in range(0, len(ids), STATES_BATCH):
        batch = ids[first : first + STATES_BATCH]
        infos |= zip(batch, reader.job_states(batch), strict=True)
    return infos


def _revive(store: Store, revive: GradualRevive, ids: Sequence[JobId]) -> list[JobId]:
    """Revive jobs; return those that stay dead for a reason of their own, such as a key of another job. A job
    that is no longer dead, or has died since, was revived by another run: it is watched."""
    actor = f"{revive.started_by.partition('#')[0]}#gradual-revive-{revive.name}"
    results = store.revive(ids, ended_before=revive.started_at, actor=actor)
    return [
        result.job_id
        for result in results
        if not result.applied and result.state is JobState.DEAD and result.reason != ENDED_SINCE
    ]


def _pick_batch(reader: Reader, revive: GradualRevive) -> tuple[GradualRevive, bool]:
    """Add jobs of the next batch from one more page; return also whether the batch is complete."""
    query = replace(
        revive.query, finished_before=_earlier_of(revive.query.finished_before, revive.started_at)
    )
    limit = MAX_PAGE if revive.group else min(MAX_PAGE, revive.wanted)
    page = reader.search(query, limit=limit, after=revive.after)
    infos = (
        filter_by_group(reader, page.jobs, revive.group) if revive.group else load_states(reader, page.jobs)
    )
    ids: list[JobId] = []
    after = revive.after
    for info in infos:
        if not is_still_dead(revive, info):
            continue
        if not revive.has_room_for((*ids, info.id)):
            # The next batch continues right after the last picked job.
            return revive.with_picked(ids, after, scanned=0, is_searched=False), True
        ids.append(info.id)
        after = str(info.seq)
    is_searched = page.after is None
    picked = revive.with_picked(ids, page.after, scanned=len(page.jobs), is_searched=is_searched)
    return picked, is_searched or picked.wanted <= 0


def _earlier_of(left: int | None, right: int) -> int:
    return right if left is None else min(left, right)
