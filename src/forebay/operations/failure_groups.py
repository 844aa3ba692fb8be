"""Failure groups of the dead letters: worked out when somebody looks, from the newest ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from forebay.domain.failure_group import (
    DEFAULT_NEWEST,
    MAX_NEWEST,
    FailureGrouper,
    FailureGroups,
    group_of,
)
from forebay.domain.fingerprint import may_belong_to
from forebay.domain.job import JobSummary
from forebay.domain.lifecycle import JobState
from forebay.domain.query import MAX_PAGE, JobQuery, JobStateInfo
from forebay.errors import ConfigError
from forebay.stores.contract.reader import Reader

# Engines read a job as a whole, and a payload may have a megabyte.
STATES_BATCH: Final = 100
# A store looks at ten thousand jobs for a page, so that a hundred thousand are gone through for an answer.
MAX_SEARCHES: Final = 10


def failure_groups(reader: Reader, query: JobQuery, newest: int = DEFAULT_NEWEST) -> FailureGroups:
    """The dead letters that fit by what they died of, the largest group first; of the `newest` ones, and as
    far back as a search goes where few fit."""
    check_newest(newest)
    dead, gathered, after, looks = restrict_to_dead(query), FailureGrouper(), None, 0
    while True:
        page = reader.search(dead, limit=min(MAX_PAGE, newest - gathered.jobs), after=after)
        for fate in load_states(reader, page.jobs):
            gathered.add(fate)
        after, looks = page.after, looks + (page.scanned_back_to is not None)
        if after is None or gathered.jobs >= newest or looks == MAX_SEARCHES:
            return gathered.build_groups(is_complete=after is None)


def check_newest(newest: int) -> None:
    """Raise ConfigError unless so many jobs can be looked at."""
    if not 1 <= newest <= MAX_NEWEST:
        raise ConfigError(f"a look is at the newest 1 to {MAX_NEWEST:,} jobs, not at {newest:,}")


def restrict_to_dead(query: JobQuery) -> JobQuery:
    """The same question about dead letters alone."""
    return replace(query, states=(JobState.DEAD,))


def load_states(reader: Reader, jobs: Sequence[JobSummary]) -> Iterator[JobStateInfo]:
    """How these jobs have ended; those that are dead no more are left out."""
    for first in range(0, len(jobs), STATES_BATCH):
        ids = [job.id for job in jobs[first : first + STATES_BATCH]]
        for fate in reader.job_states(ids):
            if fate is not None and fate.state is JobState.DEAD:
                yield fate


def filter_by_group(reader: Reader, jobs: Sequence[JobSummary], group: str) -> Iterator[JobStateInfo]:
    """Those of these jobs that are of a group. Only those whose reason fits are looked at closer."""
    candidates = [job for job in jobs if may_belong_to(group, job.reason)]
    return (fate for fate in load_states(reader, candidates) if group_of(fate) == group)
