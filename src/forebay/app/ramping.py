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

from forebay.app.grouping import FATES_AT_ONCE, among_dead, fates_of, of_group
from forebay.domain.document import Document
from forebay.domain.history import Changes, Event, EventKind
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState
from forebay.domain.query import MAX_PAGE, Fate, JobQuery
from forebay.domain.ramp import MAX_QUERY_BYTES, Pace, Ramp, RampState, is_unrevived, judged, ruled
from forebay.errors import ConfigError, IllegalTransition, RampNotFound, StoreUnavailable
from forebay.stores.ids import new_id
from forebay.stores.protocol import Reader, Store
from forebay.stores.reviving import ENDED_SINCE

KIND: Final = "ramp"
KEPT: Final = 50  # of those that have ended; the list is read every few seconds
MOST_OPEN: Final = 50
TRIES: Final = 20

_decode: Final = msgspec.json.Decoder(Ramp).decode
_encode: Final = msgspec.json.Encoder().encode

logger: logging.Logger = logging.getLogger(__name__)


def all_ramps(reader: Reader) -> list[Ramp]:
    """All ramps that are kept, the newest first."""
    found = [ramp for document in _documents(reader) if (ramp := _readable(document))]
    return sorted(found, key=lambda ramp: (-ramp.started_at, ramp.name))


def find_ramp(reader: Reader, name: str) -> Ramp:
    """One ramp; raises RampNotFound."""
    return _decode(_document(reader, name).body)


def _readable(document: Document) -> Ramp | None:
    """What a document says; a later release may have written more than this one can read."""
    try:
        return _decode(document.body)
    except (msgspec.ValidationError, msgspec.DecodeError) as exc:
        logger.warning("ramp %s cannot be read, and is left alone: %s", document.name, exc)
        return None


def _documents(reader: Reader) -> list[Document]:
    return reader.documents(KIND, limit=1_000)


def _document(reader: Reader, name: str) -> Document:
    found = reader.documents(KIND, [name])
    if not found:
        raise RampNotFound(f"there is no ramp {name}; `forebay ramps list` shows those there are")
    return found[0]


# What operators do


def start_ramp(
    store: Store,
    reader: Reader,
    query: JobQuery,
    *,
    group: str | None = None,
    pace: Pace | None = None,
    actor: str = "",
) -> Ramp:
    """Begin to revive the dead letters that fit and are dead by now; whoever does the duties goes on with it.
    Raises IllegalTransition if another one is at the same jobs."""
    # Jobs that die in this very millisecond are meant too, so it begins with the next one. Nobody puts a job
    # back before that, and therefore none that was put back has ended before it.
    begins_at = reader.now() + 1
    asked = Ramp(
        name=new_id(),
        query=among_dead(query),
        group=group,
        pace=pace or Pace(),
        started_at=begins_at,
        started_by=actor,
        next_at=begins_at,
    )
    if len(_encode(asked.query)) > MAX_QUERY_BYTES:
        raise ConfigError(f"the conditions of a ramp have at most {MAX_QUERY_BYTES:,} bytes")
    known = all_ramps(reader)
    _check_alone(asked, known)
    told = {"group": (None, group), "pace": (None, msgspec.to_builtins(asked.pace))}
    _save(store, asked, 0, _event(asked, "started", told, actor))
    for old in [one for one in known if not one.is_open][KEPT - 1 :]:
        if not any(one.is_open for one in _named(reader, old.name)):  # somebody may just have resumed it
            store.drop_document(KIND, old.name)
    return asked


def _named(reader: Reader, name: str) -> list[Ramp]:
    return [ramp for document in reader.documents(KIND, [name]) if (ramp := _readable(document))]


def _check_alone(asked: Ramp, known: Sequence[Ramp]) -> None:
    # Two that begin in the same moment may both pass. Then each puts a job back once, and so does the other
    # if it has died meanwhile.
    running = [one for one in known if one.is_open]
    for one in running:
        if (one.group, one.query) == (asked.group, asked.query):
            raise IllegalTransition(f"ramp {one.name} is {one.state} and revives the same jobs")
    if len(running) >= MOST_OPEN:
        raise IllegalTransition(f"there are {MOST_OPEN} ramps already; let some of them end")


def pause_ramp(store: Store, reader: Reader, name: str, *, actor: str = "") -> Ramp:
    """Revive no more until it is resumed; what was revived goes on. Raises RampNotFound and
    IllegalTransition, like the next two."""
    return _changed(store, reader, name, "paused", actor, lambda one, _: one.paused())


def resume_ramp(store: Store, reader: Reader, name: str, *, actor: str = "") -> Ramp:
    """Go on, also with one that was stopped. Raises IllegalTransition too if another one is at the same jobs
    by now."""
    others = [one for one in all_ramps(reader) if one.name != name]
    _check_alone(find_ramp(reader, name), others)
    return _changed(store, reader, name, "resumed", actor, lambda one, now: one.resumed(now))


def stop_ramp(store: Store, reader: Reader, name: str, *, actor: str = "") -> Ramp:
    """End it; what was revived goes on."""
    return _changed(store, reader, name, "stopped", actor, lambda one, now: one.stopped(now, "by hand"))


def _changed(
    store: Store, reader: Reader, name: str, done: str, actor: str, change: Callable[[Ramp, int], Ramp]
) -> Ramp:
    for _ in range(TRIES):
        document = _document(reader, name)
        before = _decode(document.body)
        after = change(before, reader.now())
        told: Changes = {"state": (str(before.state), str(after.state))}
        if _save(store, after, document.revision, _event(after, done, told, actor)):
            return after
    raise StoreUnavailable(f"ramp {name} is changed by others all the time; try again")


def _event(one: Ramp, done: str, changes: Changes, actor: str) -> Event:
    return Event(kind=EventKind.RAMP, actor=actor or None, detail=f"{done} {one.name}", changes=changes)


def _save(store: Store, one: Ramp, revision: int, event: Event | None = None) -> bool:
    document = Document(kind=KIND, name=one.name, body=_encode(one).decode(), revision=revision)
    return store.save_document(document, event=event)


# What the duty does


def advance_ramps(store: Store, reader: Reader) -> bool:
    """Take a turn for each ramp that is running; whether there is one."""
    running = 0
    for document in _documents(reader):
        known = _readable(document)
        if known is None or known.state is not RampState.RUNNING:
            continue
        running += 1
        try:
            _turn(store, reader, known, document.revision)
        except StoreUnavailable:
            raise
        except Exception:
            # One that cannot go on does not hold up the others.
            logger.exception("ramp %s cannot go on for now", known.name)
    return running > 0


def _turn(store: Store, reader: Reader, known: Ramp, revision: int) -> None:
    """A bounded one, because a worker with jobs in its hands takes it: a look at what is watched, and at one
    page of dead letters. The next turn goes on behind that page."""
    now = reader.now()
    ramp = _looked_after(store, reader, known, now)
    if ramp.is_due(now):
        ramp, has_all = _picked(reader, ramp)
        if has_all:
            ramp = ramp.begun(now) if ramp.picked else ruled(ramp, now)
    if ramp != known and not _save(store, ramp, revision, _told(known, ramp)):
        return  # somebody else has taken the turn
    if ramp.batches > known.batches:
        _revive(store, ramp, ramp.watched[-ramp.size :])


def _told(before: Ramp, after: Ramp) -> Event | None:
    """The line of the audit log for what a ramp has come to by itself."""
    if before.state is after.state:
        return None
    changes: Changes = {"state": (str(before.state), str(after.state)), "reason": (None, after.reason)}
    return _event(after, str(after.state), changes, "")


def _looked_after(store: Store, reader: Reader, ramp: Ramp, now: int) -> Ramp:
    """After a look at the jobs that were put back, and another try with those that were only written down.
    Not each time: there may be a thousand."""
    if ramp.watched and not ramp.is_to_be_seen(now):
        return ramp
    fates = _fates(reader, ramp.watched)
    left = [fate.id for fate in fates.values() if fate is not None and is_unrevived(ramp, fate)]
    refused = _revive(store, ramp, left) if left else []
    return judged(ramp, fates, refused, now)


def _fates(reader: Reader, ids: Sequence[JobId]) -> dict[JobId, Fate | None]:
    found: dict[JobId, Fate | None] = {}
    for first in range(0, len(ids), FATES_AT_ONCE):
        part = ids[first : first + FATES_AT_ONCE]
        found |= zip(part, reader.fates(part), strict=True)
    return found


def _revive(store: Store, ramp: Ramp, ids: Sequence[JobId]) -> list[JobId]:
    """Put jobs back; answers those that stay dead for a reason of their own, such as a key that another one
    has. One that is not dead any more, or has died since, was put back by somebody else: it is watched."""
    actor = f"{ramp.started_by.partition('#')[0]}#ramp-{ramp.name}"
    verdicts = store.revive(ids, ended_before=ramp.started_at, actor=actor)
    return [
        verdict.job_id
        for verdict in verdicts
        if not verdict.done and verdict.state is JobState.DEAD and verdict.reason != ENDED_SINCE
    ]


def _picked(reader: Reader, ramp: Ramp) -> tuple[Ramp, bool]:
    """With jobs of its next batch from one more page; whether it has all of them."""
    query = replace(ramp.query, finished_before=_earlier(ramp.query.finished_before, ramp.started_at))
    limit = MAX_PAGE if ramp.group else min(MAX_PAGE, ramp.wanted)
    page = reader.search(query, limit=limit, after=ramp.after)
    fates = of_group(reader, page.jobs, ramp.group) if ramp.group else fates_of(reader, page.jobs)
    ids: list[JobId] = []
    after = ramp.after
    for fate in fates:
        if not is_unrevived(ramp, fate):
            continue
        if not ramp.has_room_for((*ids, fate.id)):
            # The next batch goes on right behind the last one that was taken.
            return ramp.with_picked(ids, after, looked=0, is_searched=False), True
        ids.append(fate.id)
        after = str(fate.seq)
    is_searched = page.after is None
    found = ramp.with_picked(ids, page.after, looked=len(page.jobs), is_searched=is_searched)
    return found, is_searched or found.wanted <= 0


def _earlier(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
