"""Effects of tasks on the outside world, recorded call by call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from forebay.app.current_job import current_job
from forebay.domain.job import Job
from forebay.testing.trial_worker import WorkerStep

P = ParamSpec("P")
R = TypeVar("R")


class Effect(NamedTuple):
    """One call: what was done, and by which attempt; `job` is None outside of jobs."""

    name: str
    call: str
    job: Job | None


class Crash(NamedTuple):
    """A worker was killed after a step with this job."""

    step: WorkerStep | str
    job: Job


class Effects:
    """Records watched calls and crashes. `on_step` is called with each effect of a job."""

    def __init__(self, on_step: Callable[[WorkerStep | str, Job], None]) -> None:
        self._on_step = on_step
        self.done: list[Effect] = []
        self.crashes: list[Crash] = []

    def watch(self, func: Callable[P, R], name: str) -> Callable[P, R]:
        """Return the function with every call recorded as an effect once it has returned."""

        @wraps(func)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            value = func(*args, **kwargs)
            self._record(name, args, kwargs)
            return value

        @wraps(func)
        async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            value = await func(*args, **kwargs)  # type: ignore[misc]  # only where func is a coroutine function
            self._record(name, args, kwargs)
            return value

        # `wraps` keeps the signature, so the type for the caller is unchanged.
        chosen: Any = call_async if inspect.iscoroutinefunction(func) else call
        watched: Callable[P, R] = chosen
        return watched

    def _record(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        words = [*(f"{value!r:.200}" for value in args), *(f"{key}={kwargs[key]!r:.200}" for key in kwargs)]
        try:
            job = current_job().job
        except LookupError:
            job = None
        self.done.append(Effect(name, f"{name}({', '.join(words)})", job))
        if job is not None:
            self._on_step(name, job)

    def assert_once(self, names: tuple[str, ...]) -> None:
        """Raise AssertionError if an effect of a job has happened more than once, or one of these never has;
        without names, if nothing has happened at all."""
        missing = [name for name in names if name not in {effect.name for effect in self.done}]
        if missing or not self.done:
            what = ", ".join(missing) or "no effect that is watched"
            never = "has never happened" if missing else "has happened"
            raise AssertionError(f"{what} {never}; {self._describe_crashes()}")
        by_call: dict[tuple[str | None, str], list[Effect]] = {}
        for effect in self.done:
            by_call.setdefault((None if effect.job is None else effect.job.id, effect.call), []).append(
                effect
            )
        repeated = [same for same in by_call.values() if len(same) > 1]
        if repeated:
            raise AssertionError("\n".join(map(self._describe_repeats, repeated)))

    def _describe_repeats(self, repeats: list[Effect]) -> str:
        job = repeats[0].job
        if job is None:
            return f"{repeats[0].call} has happened {len(repeats)} times, outside of any job"
        attempts = ", ".join(str(effect.job.attempt) for effect in repeats if effect.job is not None)
        return (
            f"{repeats[0].call} has happened {len(repeats)} times for job {job.id} of task "
            f"{job.task}, in attempts "
            f"{attempts}; {self._describe_crashes(job)}. An attempt whose end the store has not "
            f"heard of is made "
            "again: let the effect know that it was done, by a key, a step or a transaction"
        )

    def _describe_crashes(self, job: Job | None = None) -> str:
        found = [crash for crash in self.crashes if job is None or crash.job.id == job.id]
        if not found:
            return "no worker has crashed with it"
        crash_text = ", ".join(
            f"after the step {str(crash.step)!r} of attempt {crash.job.attempt} of {crash.job.task}"
            for crash in found
        )
        return f"a worker has crashed {crash_text}"
