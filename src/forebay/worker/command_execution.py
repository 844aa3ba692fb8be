"""Commands of operators to a worker: execution and answers."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from math import inf
from types import FrameType
from typing import Final, Protocol

from forebay.domain.worker import WorkerInfo
from forebay.domain.worker_command import Command, CommandKind, truncate_answer
from forebay.errors import ForebayError
from forebay.stores.contract.store import Store
from forebay.worker.slots import Assignment, Slots
from forebay.worker.status import resident_memory

_TYPES_SHOWN: Final = 15

logger: logging.Logger = logging.getLogger(__name__)


class ControlledWorker(Protocol):
    """Actions of a worker that a command may call."""

    @property
    def drain_seconds(self) -> float: ...

    def pause(self, queue: str | None = None) -> None: ...

    def resume(self, queue: str | None = None) -> None: ...

    def request_stop(self, drain: float | None = None) -> None: ...

    def stop_now(self) -> None: ...


class Control:
    """Carries out commands for one worker, on the thread that calls it.

    The worker itself or its supervisor fetches them from the store, calls `carry_out` and stores the answer.
    Nothing here waits for the coordinator: a worker that hangs still shows its stacks.
    """

    def __init__(self, worker: ControlledWorker, slots: Slots) -> None:
        self._worker = worker
        self._slots = slots
        self._unanswered: list[tuple[str, str]] = []

    def serve(self, store: Store, commands: list[Command]) -> None:
        """Carry out commands that were just fetched, and store the answers. An answer that could not be
        stored is offered again the next time; its command is not carried out again."""
        self._unanswered += [(command.id, self.carry_out(command)) for command in commands]
        while self._unanswered:
            command_id, text = self._unanswered[0]
            store.answer_command(command_id, text)
            self._unanswered.pop(0)

    def carry_out(self, command: Command) -> str:
        """Carry out a command and return its answer. Never raises: the operator reads the error in the
        answer."""
        logger.info("command %s from %s", command.kind, command.actor or "an unknown actor")
        try:
            return self._execute(command)
        except ForebayError as exc:
            return f"refused: {exc}"
        except Exception as exc:
            logger.exception("a command to %s went wrong", command.kind)
            return f"failed: {type(exc).__name__}: {exc}"

    def _execute(self, command: Command) -> str:
        worker, queues = self._worker, command.queue or "all queues"
        match command.kind:
            case CommandKind.PAUSE:
                worker.pause(command.queue)
                return f"paused {queues}; {self._describe_running()}"
            case CommandKind.RESUME:
                worker.resume(command.queue)
                return f"resumed {queues}"
            case CommandKind.STOP:
                worker.request_stop(worker.drain_seconds)
                return f"stopping; {self._describe_running()}, for up to {worker.drain_seconds:g} s"
            case CommandKind.DRAIN:
                worker.request_stop(inf)
                return f"draining; {self._describe_running()}, for as long as it takes"
            case CommandKind.HALT:
                worker.stop_now()
                return "halting; what runs is interrupted and handed back"
            case CommandKind.STACKS:
                return stacks(self._slots)

    def _describe_running(self) -> str:
        running = sum(assignment.is_running for assignment in self._slots)
        return "1 running job goes on" if running == 1 else f"{running} running jobs go on"


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


class PausableWorker(Protocol):
    @property
    def info(self) -> WorkerInfo: ...

    def pause(self, queue: str | None = None) -> None: ...

    def resume(self, queue: str | None = None) -> None: ...


class SignalPause:
    """Pauses all queues of a worker, and later resumes these. Queues that an operator had paused before stay
    paused."""

    def __init__(self, worker: PausableWorker) -> None:
        self._worker = worker
        self._paused_queues: set[str] = set()

    def pause(self) -> None:
        info = self._worker.info
        self._paused_queues |= set(info.queues) - set(info.paused)
        self._worker.pause()

    def resume(self) -> None:
        while self._paused_queues:
            self._worker.resume(self._paused_queues.pop())
