"""Jobs that come together and depend on each other alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.domain.job import JobId, NewJob, OnFailure
from forebay.stores.postgres.binary import Packed, bigint, bigints, text, uniform_texts


class InsertGraph(NamedTuple):
    """Who waits for whom, by their places among the jobs: a column for the jobs, and one for the edges."""

    unmet: list[int]  # for how many others each of the jobs waits
    has_dependants: list[int]  # 1 if others wait for it
    children: list[int]
    positions: list[int]  # each parent's place among those that its child has named
    parents: list[int]
    on_failure: OnFailure

    @property
    def blocked(self) -> int:
        """How many jobs wait for others."""
        return len(self.unmet) - self.unmet.count(0)

    def values(self, ids: Sequence[JobId]) -> dict[str, Packed]:
        """What a statement is given, for jobs with these ids."""
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
    """None where somebody has to look: at a job that is stored already, or at one that is not there. Failures
    that mean different things are left to the long way, too."""
    needs = next((job.depends_on for job in jobs if job.depends_on), ())
    on_failure = needs[0].on_failure if needs else OnFailure.CANCEL
    graph = InsertGraph([len(job.depends_on) for job in jobs], [0] * len(jobs), [], [], [], on_failure)
    _, marks, children, numbers, parents, _ = graph
    for at, job in enumerate(jobs):
        for need in job.depends_on:
            back = need.parent
            if not isinstance(back, int) or back > at or need.on_failure is not on_failure:
                return None
            parents.append(at - back)
            marks[at - back] = 1
        if count := len(job.depends_on):
            children += [at] * count
            numbers += range(count)
    return graph
