"""Ramps: dead letters are revived in batches that grow while they do well.

A ramp is a document, written by whoever has read its newest revision. A turn looks at the jobs that were put
back, and then, if it is time, picks the next ones, writes them down and only then puts them back. So:

- Of two who take a turn at once one writes, and the other does nothing.
- Who dies before the write has done nothing; who dies after it leaves jobs that are written down and not put
  back yet, and the next turn finds them still dead and puts them back.
- Nobody puts a job back twice, not even one who was held up for an hour between the write and the deed, while
  another one did it and the job died again: the store refuses a job that has ended since the ramp began.
- A pause or a stop does not call a batch back that is already written down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.domain.document import Document
from forebay.domain.gradual_revive import (
    MAX_QUERY_BYTES,
    GradualRevive,
    GradualRevivePlan,
    GradualReviveState,
    check_completion,
    evaluate_batch,
    is_still_dead,
)
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import MAX_PAGE, JobQuery, JobStateInfo
from forebay.errors import ConfigError, GradualReviveNotFound, IllegalTransition, StoreUnavailable
from forebay.operations.failure_groups import (
    STATES_BATCH,
    filter_by_group,
    load_states,
    restrict_to_dead,
)
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.revive_options import ENDED_SINCE
from forebay.stores.contract.store import Store
from forebay.stores.ids import new_id

KIND: Final = "gradual_revive"
KEPT_FINISHED: Final = 50  # of those that have ended; the list is read every few seconds
MAX_OPEN: Final = 50
MAX_TRIES: Final = 20

_decode: Final = msgspec.json.Decoder(GradualRevive).decode
_encode: Final = msgspec.json.Encoder().encode

logger: logging.Logger = logging.getLogger(__name__)


def list_gradual_revives(reader: Reader) -> list[GradualRevive]:
    """All ramps that are kept, the newest first."""
    found = [ramp for document in _load_documents(reader) if (ramp := _decode_document(document))]
    return sorted(found, key=lambda ramp: (-ramp.started_at, ramp.name))


def find_gradual_revive(reader: Reader, name: str) -> GradualRevive:
    """One ramp; raises GradualReviveNotFound."""
    return _decode(_require_document(reader, name).body)


def _decode_document(document: Document) -> GradualRevive | None:
    """What a document says; a later release may have written more than this one can read."""
    try:
        return _decode(document.body)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        logger.warning("ramp %s cannot be read, and is left alone: %s", document.name, exc)
        return None


def _load_documents(reader: Reader) -> list[Document]:
    return reader.documents(KIND, limit=1_000)


def _require_document(reader: Reader, name: str) -> Document:
    found = reader.documents(KIND, [name])
    if not found:
        raise GradualReviveNotFound(f"there is no ramp {name}; `forebay ramps list` shows those there are")
    return found[0]


# What operators do


def start_gradual_revive(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    plan: GradualRevivePlan | None = None,
    actor: str = "",
) -> GradualRevive:
    """Begin to revive the dead letters that fit and are dead by now; whoever does the duties goes on with it.
    Raises IllegalTransition if another one is at the same jobs."""
    # Jobs that die in this very millisecond are meant too, so it begins with the next one. Nobody puts a job
    # back before that, and therefore none that was put back has ended before it.
    begins_at = reader.now() + 1
    asked = GradualRevive(
        name=new_id(),
        query=restrict_to_dead(query),
        group=group,
        plan=plan or GradualRevivePlan(),
        started_at=begins_at,
        started_by=actor,
        next_batch_at=begins_at,
    )
    if len(_encode(asked.query)) > MAX_QUERY_BYTES:
        raise ConfigError(f"the conditions of a ramp have at most {MAX_QUERY_BYTES:,} bytes")
    known = list_gradual_revives(reader)
    _check_no_overlap(asked, known)
    told = {"group": (None, group), "pace": (None, msgspec.to_builtins(asked.plan))}
    _save(store, asked, 0, _event(asked, "started", told, actor))
    for old in [one for one in known if not one.is_open][KEPT_FINISHED - 1 :]:
        if not any(one.is_open for one in _load_named(reader, old.name)):  # somebody may just have resumed it
            store.drop_document(KIND, old.name)
    return asked


def _load_named(reader: Reader, name: str) -> list[GradualRevive]:
    return [ramp for document in reader.documents(KIND, [name]) if (ramp := _decode_document(document))]


def _check_no_overlap(requested: GradualRevive, known: Sequence[GradualRevive]) -> None:
    # Two that begin in the same moment may both pass. Then each puts a job back once, and so does the other
    # if it has died meanwhile.
    running = [one for one in known if one.is_open]
    for one in running:
        if (one.group, one.query) == (requested.group, requested.query):
            raise IllegalTransition(f"ramp {one.name} is {one.state} and revives the same jobs")
    if len(running) >= MAX_OPEN:
        raise IllegalTransition(f"there are {MAX_OPEN} ramps already; let some of them end")


def pause_gradual_revive(store: Store, reader: Reader, name: str, *, actor: str = "") -> GradualRevive:
    """Revive no more until it is resumed; what was revived goes on. Raises GradualReviveNotFound and
    IllegalTransition, like the next two."""
    return _update_with_retry(store, reader, name, "paused", actor, lambda one, _: one.pause())


def resume_gradual_revive(store: Store, reader: Reader, name: str, *, actor: str = "") -> GradualRevive:
    """Go on, also with one that was stopped. Raises IllegalTransition too if another one is at the same jobs
    by now."""
    others = [one for one in list_gradual_revives(reader) if one.name != name]
    _check_no_overlap(find_gradual_revive(reader, name), others)
    return _update_with_retry(store, reader, name, "resumed", actor, lambda one, now: one.resume(now))


def stop_gradual_revive(store: Store, reader: Reader, name: str, *, actor: str = "") -> GradualRevive:
    """End it; what was revived goes on."""
    return _update_with_retry(
        store, reader, name, "stopped", actor, lambda one, now: one.stop(now, "by hand")
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
        told: Changes = {"state": (str(before.state), str(after.state))}
        if _save(store, after, document.revision, _event(after, action, told, actor)):
            return after
    raise StoreUnavailable(f"ramp {name} is changed by others all the time; try again")


def _event(revive: GradualRevive, action: str, changes: Changes, actor: str) -> Event:
    return Event(
        kind=EventKind.GRADUAL_REVIVE, actor=actor or None, detail=f"{action} {revive.name}", changes=changes
    )


def _save(store: Store, revive: GradualRevive, revision: int, event: Event | None = None) -> bool:
    document = Document(kind=KIND, name=revive.name, body=_encode(revive).decode(), revision=revision)
    return store.save_document(document, event=event)


# What the duty does


def advance_gradual_revives(store: Store, reader: Reader) -> bool:
    """Take a turn for each ramp that is running; whether there is one."""
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
            # One that cannot go on does not hold up the others.
            logger.exception("ramp %s cannot go on for now", known.name)
    return running > 0


def _advance_one(store: Store, reader: Reader, current: GradualRevive, revision: int) -> None:
    """A bounded one, because a worker with jobs in its hands takes it: a look at what is watched, and at one
    page of dead letters. The next turn goes on behind that page."""
    now = reader.now()
    ramp = _check_watched(store, reader, current, now)
    if ramp.is_due(now):
        ramp, has_all = _pick_batch(reader, ramp)
        if has_all:
            ramp = ramp.start_batch(now) if ramp.picked else check_completion(ramp, now)
    if ramp != current and not _save(store, ramp, revision, _state_event(current, ramp)):
        return  # somebody else has taken the turn
    if ramp.batches > current.batches:
        _revive(store, ramp, ramp.watched[-ramp.size :])


def _state_event(before: GradualRevive, after: GradualRevive) -> Event | None:
    """The line of the audit log for what a ramp has come to by itself."""
    if before.state is after.state:
        return None
    changes: Changes = {"state": (str(before.state), str(after.state)), "reason": (None, after.reason)}
    return _event(after, str(after.state), changes, "")


def _check_watched(store: Store, reader: Reader, revive: GradualRevive, now: int) -> GradualRevive:
    """After a look at the jobs that were put back, and another try with those that were only written down.
    Not each time: there may be a thousand."""
    if revive.watched and not revive.is_check_due(now):
        return revive
    fates = _load_states(reader, revive.watched)
    left = [fate.id for fate in fates.values() if fate is not None and is_still_dead(revive, fate)]
    refused = _revive(store, revive, left) if left else []
    return evaluate_batch(revive, fates, refused, now)


def _load_states(reader: Reader, ids: Sequence[JobId]) -> dict[JobId, JobStateInfo | None]:
    found: dict[JobId, JobStateInfo | None] = {}
    for first in range(0, len(ids), STATES_BATCH):
        part = ids[first : first + STATES_BATCH]
        found |= zip(part, reader.job_states(part), strict=True)
    return found


def _revive(store: Store, revive: GradualRevive, ids: Sequence[JobId]) -> list[JobId]:
    """Put jobs back; answers those that stay dead for a reason of their own, such as a key that another one
    has. One that is not dead any more, or has died since, was put back by somebody else: it is watched."""
    actor = f"{revive.started_by.partition('#')[0]}#ramp-{revive.name}"
    verdicts = store.revive(ids, ended_before=revive.started_at, actor=actor)
    return [
        verdict.job_id
        for verdict in verdicts
        if not verdict.applied and verdict.state is JobState.DEAD and verdict.reason != ENDED_SINCE
    ]


def _pick_batch(reader: Reader, revive: GradualRevive) -> tuple[GradualRevive, bool]:
    """With jobs of its next batch from one more page; whether it has all of them."""
    query = replace(
        revive.query, finished_before=_earlier_of(revive.query.finished_before, revive.started_at)
    )
    limit = MAX_PAGE if revive.group else min(MAX_PAGE, revive.wanted)
    page = reader.search(query, limit=limit, after=revive.after)
    fates = (
        filter_by_group(reader, page.jobs, revive.group) if revive.group else load_states(reader, page.jobs)
    )
    ids: list[JobId] = []
    after = revive.after
    for fate in fates:
        if not is_still_dead(revive, fate):
            continue
        if not revive.has_room_for((*ids, fate.id)):
            # The next batch goes on right behind the last one that was taken.
            return revive.with_picked(ids, after, scanned=0, is_searched=False), True
        ids.append(fate.id)
        after = str(fate.seq)
    is_searched = page.after is None
    found = revive.with_picked(ids, page.after, scanned=len(page.jobs), is_searched=is_searched)
    return found, is_searched or found.wanted <= 0


def _earlier_of(left: int | None, right: int) -> int:
    return right if left is None else min(left, right)
