"""Decorators by which a program declares schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from forebay.app.client import Client
from forebay.app.registry import Registry
from forebay.app.task import Task
from forebay.domain.durations_and_instants import Duration
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.app.schedule_options import ScheduleOptions, ScheduleTimingOptions
    from forebay.app.schedules import Schedules

ScheduledTask = TypeVar("ScheduledTask", bound=Task[..., Any])


class ScheduleDecorators:
    """The part of an app that declares schedules."""

    client: Client
    registry: Registry

    def cron(
        self,
        line: str,
        /,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[ScheduledTask], ScheduledTask]:
        """Run a task by a cron line, once for each planned time, whatever the number of workers.

            @app.cron("0 9 * * MON-FRI", timezone="Europe/Berlin")
            @app.task
            def report() -> None: ...

        The schedule is stored when a worker of the program starts. Its name is that of its task unless `name`
        is given. `forebay schedules` shows it, and can pause it.
        """
        return self._declare_schedule(
            name, args, kwargs, cast("ScheduleTimingOptions", {"cron": line, **options})
        )

    def every(
        self,
        interval: Duration,
        /,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[ScheduledTask], ScheduledTask]:
        """Run a task at a fixed interval, a timedelta or seconds. It counts from `start` or from 1970: every
        hour is the full hour."""
        return self._declare_schedule(
            name, args, kwargs, cast("ScheduleTimingOptions", {"every": interval, **options})
        )

    def _declare_schedule(
        self,
        name: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        timing: ScheduleTimingOptions,
    ) -> Callable[[ScheduledTask], ScheduledTask]:
        from forebay.app.schedule_options import make_definition  # noqa: PLC0415 - programs without a schedule never load it

        def declare(task: ScheduledTask) -> ScheduledTask:
            if not isinstance(task, Task):
                raise ConfigError("a schedule is for a task: put @app.task below it, next to the function")
            self.registry.add_schedule(
                make_definition(
                    self.registry, name or task.name, task, args, kwargs, {}, timing, is_declared=True
                )
            )
            return task

        return declare

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules of the store, to be read and changed at run time."""
        from forebay.app.schedules import Schedules  # noqa: PLC0415 - as above

        return Schedules(self.client, self.registry, actor=self.client.actor)
