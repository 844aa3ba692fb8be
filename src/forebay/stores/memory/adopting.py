"""Jobs of another store, taken in with all that is known of them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forebay.domain.job import Job, WorkerId
from forebay.domain.lifecycle import JobState
from forebay.domain.moving import Whole, waiting_state
from forebay.domain.note import Notes
from forebay.domain.workflow import Aftermath
from forebay.stores.adopting import edges_as_they_stand
from forebay.stores.memory.edges import add_edges
from forebay.stores.memory.inserting import fresh, open_queue
from forebay.stores.memory.order import Record
from forebay.stores.memory.sequences import join
from forebay.stores.memory.state import State


def adopt(state: State, wholes: Sequence[Whole]) -> list[bool]:
    return [_adopt(state, whole) for whole in wholes]


def _adopt(state: State, whole: Whole) -> bool:
    whole.check()
    job = whole.job
    if job.id in state.jobs:
        return False
    if whole.takes_key:
        holder = state.unique.get((job.queue, job.unique_key or ""))
        whole = whole if holder is None else whole.without_key(holder)
    open_queue(state, job.queue)
    job = replace(
        whole.job, seq=state.number("seq"), gate=None, lease_expires_at=None, metadata=fresh(job.metadata)
    )
    _take_once(state, whole)
    if whole.edges:
        parents = {edge.parent: state.jobs.get(edge.parent) for edge in whole.edges}
        states = {parent: record.job.state for parent, record in parents.items() if record is not None}
        add_edges(state, job.id, edges_as_they_stand(whole.edges, states).all)
    if job.is_final:
        state.put(Record(job, ended=state.number("ended")))
        state.list_aftermath(job.id, Aftermath(job.state.value))
    else:
        if whole.takes_key:
            state.write(state.unique, (job.queue, job.unique_key or ""), job.id)
        _wait(state, job)
    _keep_history(state, whole)
    return True


def _wait(state: State, job: Job) -> None:
    join(state, job)
    into = waiting_state(job, state.now, is_blocked=job.id in state.unmet)
    state.put_new(job)
    if into is JobState.RETRYING:
        record = state.jobs[job.id]
        state.put(record._replace(job=replace(record.job, state=into)))


def _take_once(state: State, whole: Whole) -> None:
    job, until = whole.job, whole.once_until
    if job.once_key is None or until is None or until <= state.now:
        return
    _, held_until = state.once.get((job.queue, job.once_key), (None, 0))
    if held_until <= state.now:
        state.write(state.once, (job.queue, job.once_key), (job.id, until))


def _keep_history(state: State, whole: Whole) -> None:
    if whole.attempts:
        bad = tuple((attempt, attempt.worker or WorkerId("")) for attempt in whole.attempts)
        state.write(state.attempts, whole.job.id, bad)
    if whole.notes != Notes():
        state.write(state.notes, whole.job.id, whole.notes)
    for event in whole.events:
        state.record(event)
