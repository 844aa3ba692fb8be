"""Import of jobs from another store, shared by all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.domain.dependencies import UNMET_STATES, DependencyEvent, Edge, EdgeState, starting_state
from forebay.domain.job import Job, JobId
from forebay.domain.job_history import Attempt
from forebay.domain.job_states import JobState, is_final
from forebay.stores.shared.rows import json_text, options_of, options_text

# Columns that hold fields of the record as they are.
_COLUMNS: Final = (
    "id", "queue", "task", "payload", "priority", "attempt", "failures", "crashes", "created_at",
    "updated_at", "ready_at", "run_at", "rank", "age_capped", "worker", "started_at", "deadline_at",
    "expires_at", "unique_key", "cancel_reason", "finished_at", "reason", "result",
)  # fmt: skip


class ImportedEdges(NamedTuple):
    """Edges of an imported job: their states here, the number of those that block it, and final parents
    that have not propagated to it."""

    all: list[Edge]
    unmet: int
    ended: list[tuple[JobId, DependencyEvent]]


def resolve_imported_edges(edges: Sequence[Edge], states: Mapping[JobId, JobState]) -> ImportedEdges:
    """Return the edges of a job whose parents are in these states; unknown parents count as completed."""
    resolved, ended = [], []
    for edge in edges:
        state = states.get(edge.parent, JobState.COMPLETED)
        is_open = edge.state is EdgeState.OPEN
        edge_state = starting_state(state, edge.on_failure) if is_open else edge.state
        if edge_state is EdgeState.OPEN and is_final(state):
            ended.append((edge.parent, DependencyEvent(state.value)))
        resolved.append(replace(edge, state=edge_state))
    return ImportedEdges(resolved, sum(edge.state in UNMET_STATES for edge in resolved), ended)


def job_params(job: Job) -> dict[str, object]:
    """Return the columns of a job by name, except those that the store computes itself."""
    return {
        **{name: getattr(job, name) for name in _COLUMNS},
        "options": options_text(replace(options_of(job), unstarted=job.unstarted)),
        "state": job.state.value,
        "errors": json_text(job.errors) if job.errors else None,
    }


def attempt_params(attempt: Attempt) -> dict[str, object]:
    """Return the columns of a failed attempt. Readers do not show which worker settled it, and a store
    needs that no more after the job has moved."""
    return {
        "job_id": attempt.job_id,
        "attempt": attempt.attempt,
        "outcome": attempt.outcome.value,
        "ran_by": attempt.worker,
        "worker": attempt.worker or "",
        "started_at": attempt.started_at,
        "now": attempt.ended_at,
        "error": json_text(attempt.error),
    }
