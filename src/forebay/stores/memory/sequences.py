"""Sequences: of the jobs of one, the first may run; the others are blocked until it is final or gone."""

from __future__ import annotations

from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState
from forebay.stores.memory.edges import count_unmet, release
from forebay.stores.memory.state import State


def join(state: State, job: Job) -> None:
    """A job that is new or lives again comes last in its sequence; one whose end was not heard of there keeps
    its turn."""
    if job.sequence is not None and job.id not in state.sequence_positions:
        turn = state.next_number("turn")
        state.write(state.sequence_positions, job.id, (job.sequence, turn))
        state.write(state.sequences.setdefault(job.sequence, {}), turn, job.id)
        count_unmet(state, job.id)


def leave(state: State, job_id: JobId) -> None:
    """A job that does not live any more is out of its sequence, and the next one may run."""
    record = state.jobs.get(job_id)
    if job_id not in state.sequence_positions or (record is not None and not record.job.is_final):
        return
    name, turn = state.sequence_positions[job_id]
    turns = state.sequences[name]
    state.write(turns, turn, None)
    state.write(state.sequence_positions, job_id, None)
    if record is not None:
        count_unmet(state, job_id)
    if not turns:
        state.write(state.sequences, name, None)
    elif turn < (first := min(turns)):
        _release_next(state, turns[first])


def _release_next(state: State, job_id: JobId) -> None:
    record = state.jobs.get(job_id)
    # One that is gone too has a line of its own on the list, and lets the next one run.
    if record is not None and not count_unmet(state, job_id) and record.job.state is JobState.BLOCKED:
        release(state, job_id)
