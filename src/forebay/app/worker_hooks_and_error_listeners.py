"""Hooks of a program: functions called at the start and the stop of a worker, and on errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec.structs import replace

from forebay.domain.job import Job
from forebay.domain.job_states import JobState
from forebay.errors import ConfigError
from forebay.telemetry.observers import Observers

if TYPE_CHECKING:
    from forebay.domain.outcome import AttemptError
    from forebay.domain.settlement import Settlement
    from forebay.stores.contract.claims_and_results import SettleAndClaimResult

Hook: TypeAlias = Callable[[], Any]
# The job is None if the error is one of the worker itself.
Listener: TypeAlias = "Callable[[Job | None, AttemptError], object]"
Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], object]

F = TypeVar("F", bound=Callable[..., Any])


def run_in_new_loop(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine on a new event loop."""
    from asyncio import run  # noqa: PLC0415 - most programs have no event loop

    run(coroutine)


class Hooks:
    """The hooks of one program. A worker and each isolated process call `start` before their first job and
    `stop` after the last."""

    def __init__(self, observers: Observers | None = None) -> None:
        self.observers: Observers = Observers() if observers is None else observers
        self.on_start: list[Hook] = []
        self.on_stop: list[Hook] = []
        self.on_error: list[Listener] = []

    def start(self, run: Run = run_in_new_loop) -> None:
        """Call the start hooks in order; stop at the first error and raise it. `run` runs coroutines."""
        for hook in tuple(self.on_start):
            _call_hook(hook, run)

    def stop(self, run: Run = run_in_new_loop) -> None:
        """Call all stop hooks in reverse order, also after an error; then raise the first error."""
        first: BaseException | None = None
        for hook in reversed(tuple(self.on_stop)):
            try:
                _call_hook(hook, run)
            except BaseException as exc:  # the remaining hooks have to clean up too
                _log("stop hook %r has failed", hook, exc)
                first = first or exc
        if first is not None:
            raise first

    def report(self, job: Job | None, error: AttemptError) -> None:
        """Call the error listeners. A listener that fails is logged and skipped: it must add no second
        failure."""
        for listener in tuple(self.on_error):
            try:
                listener(job, error)
            except BaseException as exc:  # also one that calls sys.exit
                _log("error listener %r has failed", listener, exc)

    def report_dead(
        self, jobs: Iterable[Job], settlements: Sequence[Settlement], answer: SettleAndClaimResult
    ) -> None:
        """Report jobs that became dead letters. A refused settlement is skipped: another worker holds the
        lease."""
        from forebay.domain.outcome import AttemptError  # noqa: PLC0415 - programs that only enqueue need none

        if not self.on_error:
            return
        settled = {*answer.settled, *answer.repeated}
        # By lease too: another attempt at the same job may have been settled in the same call.
        refused = {refusal.lease for refusal in answer.refused}
        for job, end in zip(jobs, settlements, strict=True):
            if end.state is JobState.DEAD and job.id in settled and (job.id, end.attempt) not in refused:
                dead = replace(
                    job, state=end.state, reason=end.reason, failures=end.failures, crashes=end.crashes
                )
                self.report(dead, end.error or AttemptError(type="Dead", message=end.reason or ""))


def register(hooks: list[Any], hook: F) -> F:
    """Append a function to a list and return it, so that a decorator can be built on this."""
    if not callable(hook):
        raise ConfigError(f"give a function, not {hook!r:.60}")
    hooks.append(hook)
    return hook


def _call_hook(hook: Hook, run: Run) -> None:
    answer = hook()
    if inspect.iscoroutine(answer):
        run(answer)


def _log(message: str, subject: object, exc: BaseException) -> None:
    from logging import getLogger  # noqa: PLC0415 - programs that only enqueue need none

    getLogger(__name__).error(message, subject, exc_info=exc)
