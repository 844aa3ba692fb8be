"""Commands of operators to a worker: execution and answers."""

from __future__ import annotations

import logging
from math import inf
from typing import Protocol

from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import ForebayError
from forebay.stores.contract.store import Store
from forebay.worker.slots import Slots
from forebay.worker.stack_report import stacks

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
