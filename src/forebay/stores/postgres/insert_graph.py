"""Graph of one insert: jobs that depend on each other only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.stores.postgres.binary_parameters import Packed, bigint, bigints, text, uniform_texts


class InsertGraph(NamedTuple):
    """Edges by the indexes of their jobs: columns of the jobs, then columns of the edges."""

    unmet: list[int]  # number of parents of each job
    has_dependants: list[int]  # 1 if another job depends on it
    children: list[int]
    positions: list[int]  # of the parent among those that its child has named
    parents: list[int]
    on_failure: OnFailure

    @property
    def blocked(self) -> int:
        """Number of blocked jobs."""
        return len(self.unmet) - self.unmet.count(0)

    def values(self, ids: Sequence[JobId]) -> dict[str, Packed]:
        """Return the parameters of `insert_graph`, for jobs with these ids."""
        return {
            "unmet": bigints(self.unmet),
            "dependants": bigints(self.has_dependants),
            "child_ids": uniform_texts([ids[at] for at in self.children]),
            "positions": bigints(self.positions),
            "parent_ids": uniform_texts([ids[at] for at in self.parents]),
            "on_failure": text(self.on_failure.value),
            "blocked": bigint(self.blocked),
            "pending": bigint(len(ids) - self.blocked),
        }


def graph_of(jobs: Sequence[NewJob]) -> InsertGraph | None:
    """Return the graph of a batch; None if it needs the slow path.

    That is so for a parent that is stored already or missing, and for edges with different failure rules.
    """
    dependencies = next((job.depends_on for job in jobs if job.depends_on), ())
    on_failure = dependencies[0].on_failure if dependencies else OnFailure.CANCEL
    graph = InsertGraph([len(job.depends_on) for job in jobs], [0] * len(jobs), [], [], [], on_failure)
    _, marks, children, positions, parents, _ = graph
    for at, job in enumerate(jobs):
        for dependency in job.depends_on:
            back = dependency.parent
            if not isinstance(back, int) or back > at or dependency.on_failure is not on_failure:
                return None
            parents.append(at - back)
            marks[at - back] = 1
        if count := len(job.depends_on):
            children += [at] * count
            positions += range(count)
    return graph
