"""What engines have in common that take in jobs of another store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.domain.dependencies import UNMET_STATES, DependencyEvent, Edge, EdgeState, starting_state
from forebay.domain.history import Attempt
from forebay.domain.job import Job, JobId
from forebay.domain.lifecycle import JobState, is_final
from forebay.stores.shared.rows import json_text, options_of, options_text

# Columns that hold what the record says, as it says it.
_COLUMNS: Final = (
    "id", "queue", "task", "payload", "priority", "attempt", "failures", "crashes", "created_at",
    "updated_at", "ready_at", "run_at", "rank", "age_capped", "worker", "started_at", "deadline_at", "expires_at",
    "unique_key", "cancel_reason", "finished_at", "reason", "result",
)  # fmt: skip


class ImportedEdges(NamedTuple):
    """The edges of a job that is taken in: how they stand here, how many block it, and which parents here
    have ended without a word to them."""

    all: list[Edge]
    unmet: int
    ended: list[tuple[JobId, DependencyEvent]]


def resolve_imported_edges(edges: Sequence[Edge], states: Mapping[JobId, JobState]) -> ImportedEdges:
    """The edges of a job whose parents are in these states; those that are not there count as completed."""
    here, ended = [], []
    for edge in edges:
        state = states.get(edge.parent, JobState.COMPLETED)
        is_open = edge.state is EdgeState.OPEN
        into = starting_state(state, edge.on_failure) if is_open else edge.state
        if into is EdgeState.OPEN and is_final(state):
            ended.append((edge.parent, DependencyEvent(state.value)))
        here.append(replace(edge, state=into))
    return ImportedEdges(here, sum(edge.state in UNMET_STATES for edge in here), ended)


def job_params(job: Job) -> dict[str, object]:
    """The columns of a job by their names, but for what a store works out for itself."""
    return {
        **{name: getattr(job, name) for name in _COLUMNS},
        "options": options_text(replace(options_of(job), unstarted=job.unstarted)),
        "state": job.state.value,
        "errors": json_text(job.errors) if job.errors else None,
    }


def attempt_params(attempt: Attempt) -> dict[str, object]:
    """The columns of a bad attempt. Who wrote down how it ended is not told by readers, and not asked for
    any more where the job has gone."""
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
