"""Report of the stacks of a worker process: its jobs, its threads and its objects in memory."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Final

from forebay.domain.worker_command import truncate_answer
from forebay.worker.assigned_job import Assignment
from forebay.worker.process_usage import resident_memory
from forebay.worker.slots import Slots

_TYPES_SHOWN: Final = 15


def stacks(slots: Slots) -> str:
    """Return the state of this process: its jobs, the stacks of its threads, and the most frequent objects in
    memory."""
    return truncate_answer("\n".join(_stack_lines(slots)))


def _stack_lines(slots: Slots) -> Iterator[str]:
    jobs = [assignment for assignment in slots if assignment.is_running]
    abandoned = [assignment for assignment in slots.abandoned if assignment.ended_at is None]
    threads = {getattr(assignment.slot, "thread", None): assignment for assignment in (*abandoned, *jobs)}
    frames = sys._current_frames()
    yield f"{len(jobs)} running jobs, {len(frames)} threads, {resident_memory() // 2**20} MB resident"
    if abandoned:
        yield f"{len(abandoned)} abandoned calls still run"
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    # Threads that run a job first: they are of most interest, and a long text is cut at its end.
    for ident, frame in sorted(frames.items(), key=lambda pair: pair[0] not in threads):
        name = names.get(ident, "a thread without a name")
        yield f"\n{name} ({ident}){_describe_job(threads.get(ident))}"
        yield _format_stack(frame)
    for assignment in (*abandoned, *jobs):
        if hasattr(assignment.slot, "get_stack"):
            yield f"\ncoroutine{_describe_job(assignment)}"
            yield from map(_format_stack, assignment.slot.get_stack(limit=1))
    yield "\nobjects in memory, the most frequent"
    kinds = Counter(type(instance).__qualname__ for instance in gc.get_objects())
    yield from (f"{count:>9} {kind}" for kind, count in kinds.most_common(_TYPES_SHOWN))


def _describe_job(assignment: Assignment | None) -> str:
    if assignment is None:
        return ""
    verb = "runs" if assignment.abandoned_at is None else "was abandoned and runs"
    return f" {verb} {assignment.job.task}, job {assignment.job.id}, attempt {assignment.job.attempt}"


def _format_stack(frame: FrameType) -> str:
    return "".join(traceback.format_stack(frame)).rstrip()
