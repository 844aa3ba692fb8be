"""Whether what several threads were told of one job fits together in some order: linearisability.

Each call has a time at which it was made and one at which its answer came. There has to be an order of all
calls in which each stands between its two times, and in which every answer is what one job alone would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from forebay.domain.job_states import JobState

ENDS: Final = {"complete": JobState.COMPLETED, "hand back": JobState.PENDING}


class Call(NamedTuple):
    """What one thread did, and what it was told."""

    worker: str
    name: str
    began: int
    ended: int
    # Of a claim the attempt, 0 for nothing; of a look state and attempt; else whether it was done.
    answer: object
    attempt: int = 0  # which one is settled


class Model(NamedTuple):
    """A job, as far as these calls are concerned."""

    state: JobState = JobState.PENDING
    attempt: int = 0
    holder: str | None = None

    def after(self, call: Call) -> Model | None:
        """The job after a call; None if it would not have been answered like that."""
        if call.name == "claim":
            return self._claimed(call)
        if call.name == "look":
            return self if call.answer == (self.state, self.attempt) else None
        into = self._into(call)
        if call.answer is not (into is not None):
            return None
        return self if into is None else Model(into, self.attempt)

    def _claimed(self, call: Call) -> Model | None:
        # Nothing is an answer that promises nothing: who is in the way of another claim is passed over.
        if call.answer == 0:
            return self
        if self.state is not JobState.PENDING or call.answer != self.attempt + 1:
            return None
        return Model(JobState.RUNNING, self.attempt + 1, call.worker)

    def _into(self, call: Call) -> JobState | None:
        """Where a call puts the job; None where it is refused."""
        if call.name in ENDS:
            is_held = (self.holder, self.attempt) == (call.worker, call.attempt)
            return ENDS[call.name] if self.state is JobState.RUNNING and is_held else None
        if call.name == "revive":
            return JobState.PENDING if self.state in (JobState.DEAD, JobState.CANCELLED) else None
        forced = {JobState.PENDING: JobState.CANCELLED, JobState.RUNNING: JobState.DEAD}
        return forced.get(self.state)


def is_linear(calls: Sequence[Sequence[Call]]) -> bool:
    """Whether there is such an order. `calls` has those of each thread, one after the other.

    Of the calls that may come next each thread has one, and how the job stands: so there are few ways to be
    at, and none is looked at twice.
    """
    seen = set()
    ways = [((0,) * len(calls), Model())]
    while ways:
        places, model = way = ways.pop()
        if way in seen:
            continue
        seen.add(way)
        nexts = {
            thread: calls[thread][place] for thread, place in enumerate(places) if place < len(calls[thread])
        }
        if not nexts:
            return True
        first_end = min(call.ended for call in nexts.values())
        for thread, call in nexts.items():
            after = model.after(call) if call.began <= first_end else None
            if after is not None:
                moved = tuple(place + (number == thread) for number, place in enumerate(places))
                ways.append((moved, after))
    return False
