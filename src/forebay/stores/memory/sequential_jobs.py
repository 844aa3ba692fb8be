"""Sequential jobs: the first of a sequence may run; the others are blocked until it is final or removed."""

from __future__ import annotations

from forebay.domain.job import Job, JobId
from forebay.domain.job_states import JobState
from forebay.stores.memory.dependency_edges import count_unmet, release
from forebay.stores.memory.state import State


def join(state: State, job: Job) -> None:
    """Add a new or revived job at the end of its sequence. One that is still in it keeps its position."""
    if job.sequence is not None and job.id not in state.sequence_positions:
        position = state.next_number("sequence position")
        state.write(state.sequence_positions, job.id, (job.sequence, position))
        state.write(state.sequences.setdefault(job.sequence, {}), position, job.id)
        count_unmet(state, job.id)


def leave(state: State, job_id: JobId) -> None:
    """Remove a final or removed job from its sequence, and release the next one."""
    record = state.jobs.get(job_id)
    if job_id not in state.sequence_positions or (record is not None and not record.job.is_final):
        return
    name, position = state.sequence_positions[job_id]
    positions = state.sequences[name]
    state.write(positions, position, None)
    state.write(state.sequence_positions, job_id, None)
    if record is not None:
        count_unmet(state, job_id)
    if not positions:
        state.write(state.sequences, name, None)
    elif position < (first := min(positions)):
        _release_next(state, positions[first])


def _release_next(state: State, job_id: JobId) -> None:
    record = state.jobs.get(job_id)
    # A job that is removed too has an outbox entry of its own, which releases the next one.
    if record is not None and not count_unmet(state, job_id) and record.job.state is JobState.BLOCKED:
        release(state, job_id)
